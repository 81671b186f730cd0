// The only door to fabric implementations. Included by the daemons' main files, librnbd's world and
// tests.
#pragma once

#include <expected>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rtrs/fabric.h"
#include "rtrs/rdma_devices.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rtrs {

struct TcpFabricOptions {
    // Whether this side wants payloads checksummed (CRC32C). On if both sides want it; frame
    // headers always are.
    enum class DataChecksum : std::uint8_t { on, off };
    DataChecksum data_checksum = DataChecksum::on;
    // Whether connections that this side accepts send payloads of 64 KiB and more without a copy,
    // as long as the kernel does not report that it copies them all the same, and nothing was read
    // from this side's memory. They stay in use until the peer's machine has acknowledged them: at
    // an end that was asked for it has half a second for that. (Not those that it
    // dials: a client has its memory back, maybe to be used, once another path has brought the
    // answer.)
    enum class ZeroCopy : std::uint8_t { on, off };
    ZeroCopy zero_copy = ZeroCopy::off;
    // A dialled connection that is not answered by then fails with ETIMEDOUT.
    Duration connect_timeout = std::chrono::seconds(3);
    // An accepted socket that has not sent its whole connect request by then is closed.
    Duration handshake_timeout = std::chrono::seconds(5);
    // Sockets in the handshake at one time, at least 1; one more closes the oldest of them.
    std::uint32_t handshakes_max = 1024;
    // Hears in words what peers did that ends their connection. May be null. Lives longer than the
    // fabric and its endpoints.
    Tracer* tracer = nullptr;
};

// RDMA's words over sockets (docs/reference/tcp-fabric.md). Lives shorter than the reactor. Of a
// ReactorGroup, any member: all of them carry connections, as EndpointOptions::worker says.
std::unique_ptr<Fabric> make_tcp_fabric(Reactor& reactor, const TcpFabricOptions& options);

#ifdef RTRS_VERBS  // built with librdmacm and libibverbs

struct VerbsFabricOptions {
    // A numeric address of this machine: its device is the fabric's. Empty: the first device with
    // an active port. Connections whose addresses lead to another device are refused (ENODEV).
    std::string local_host;
    // A connection that is not established by then fails with ETIMEDOUT.
    Duration connect_timeout = std::chrono::seconds(10);
    // May be null. Lives longer than the fabric.
    Tracer* tracer = nullptr;
};

// RDMA by one device, with rdma_cm. Lives shorter than the reactor, and longer than its endpoints,
// listeners and domains.
// ERRORS: ENODEV (no RDMA device, or none behind local_host), EINVAL (local_host not understood),
// EMFILE, ENOMEM.
std::expected<std::unique_ptr<Fabric>, std::error_code> make_verbs_fabric(
    Reactor& reactor, const VerbsFabricOptions& options);

#endif

// What RdmaDevices makes its fabrics with; empty if this was built without RDMA. The arguments live
// longer than what it makes.
inline RdmaDevices::Make rdma_fabrics([[maybe_unused]] Reactor& reactor,
                                      [[maybe_unused]] Tracer& tracer) {
#ifdef RTRS_VERBS
    return [&reactor, &tracer](std::string host) {
        return make_verbs_fabric(reactor, {.local_host = std::move(host), .tracer = &tracer});
    };
#else
    return {};
#endif
}

}  // namespace rtrs
