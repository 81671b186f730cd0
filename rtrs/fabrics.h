// The only way to make a fabric of a given implementation. Included by the daemons' main files,
// librnbd's SessionFabrics and tests.
//
// OWNER: the caller owns the fabric. LIFE: the reactor outlives the fabric.
// THREAD: the reactor's (rtrs/fabric.h).
// ERRORS: only make_verbs_fabric() fails; it says how.
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
    // Whether this side wants checksums of payloads (CRC32C). They are used if both sides want
    // them; frame headers always have a checksum.
    enum class DataChecksum : std::uint8_t { on, off };
    DataChecksum data_checksum = DataChecksum::on;
    // Whether accepted connections send payloads of 64 KiB and more without a copy, as long as the
    // kernel does not report that it copies them nevertheless, and nothing was read from this
    // side's memory. The payloads stay in use until the peer's machine has acknowledged them; when
    // the connection is closed on request, the peer has half a second for that. Dialled connections
    // never do this, because a client gets its memory back, and may reuse it, once another path has
    // brought the answer.
    enum class ZeroCopy : std::uint8_t { on, off };
    ZeroCopy zero_copy = ZeroCopy::off;
    // A dialled connection that is not answered within this time fails with ETIMEDOUT.
    Duration connect_timeout = std::chrono::seconds(3);
    // An accepted socket that has not sent its whole connect request within this time is closed.
    Duration handshake_timeout = std::chrono::seconds(5);
    // How many sockets may be in the handshake at the same time, at least 1; one more closes the
    // oldest of them.
    std::uint32_t handshakes_max = 1024;
    // Is told in words when a peer did something that ends its connection. May be null. Outlives
    // the fabric and its endpoints.
    Tracer* tracer = nullptr;
};

// RDMA operations over TCP sockets (docs/reference/tcp-fabric.md). The reactor outlives the
// fabric. It may be any member of a ReactorGroup: all members carry connections, as
// EndpointOptions::worker says.
std::unique_ptr<Fabric> make_tcp_fabric(Reactor& reactor, const TcpFabricOptions& options);

#ifdef RTRS_VERBS  // built with librdmacm and libibverbs

struct VerbsFabricOptions {
    // A numeric address of this machine; the fabric uses the device that has it. Empty: the first
    // device with an active port. Connections whose addresses lead to another device are refused
    // (ENODEV).
    std::string local_host;
    // A connection that is not established within this time fails with ETIMEDOUT.
    Duration connect_timeout = std::chrono::seconds(10);
    // May be null. Outlives the fabric.
    Tracer* tracer = nullptr;
};

// RDMA with one device, by rdma_cm. The reactor outlives the fabric, and the fabric outlives
// its endpoints, listeners and domains.
// ERRORS: ENODEV (no RDMA device, or none behind local_host), EINVAL (local_host not understood),
// EMFILE, ENOMEM.
std::expected<std::unique_ptr<Fabric>, std::error_code> make_verbs_fabric(
    Reactor& reactor, const VerbsFabricOptions& options);

#endif

// The function by which RdmaDevices makes its fabrics; empty if this was built without RDMA. The
// arguments outlive the fabrics that it makes.
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
