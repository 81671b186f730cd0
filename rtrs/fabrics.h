// The only door to fabric implementations. Included by the daemons' main files and by tests.
#pragma once

#include <memory>

#include "rtrs/fabric.h"
#include "rtrs/reactor.h"

namespace rtrs {

struct TcpFabricOptions {
    // Whether this side wants payloads checksummed (CRC32C). On if both sides want it; frame
    // headers always are.
    enum class DataChecksum : std::uint8_t { on, off };
    DataChecksum data_checksum = DataChecksum::on;
    // A dialled connection that is not answered by then fails with ETIMEDOUT.
    Duration connect_timeout = std::chrono::seconds(3);
    // An accepted socket that has not sent its whole connect request by then is closed.
    Duration handshake_timeout = std::chrono::seconds(5);
    // Sockets in the handshake at one time, beyond which new ones are closed.
    std::uint32_t handshakes_max = 1024;
};

// RDMA's words over sockets (docs/reference/tcp-fabric.md). Lives shorter than the reactor.
std::unique_ptr<Fabric> make_tcp_fabric(Reactor& reactor, const TcpFabricOptions& options);

}  // namespace rtrs
