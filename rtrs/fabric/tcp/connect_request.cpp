#include "rtrs/fabric/tcp/connect_request.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/fabric/tcp/dial.h"
#include "rtrs/fabric/tcp/endpoint.h"
#include "rtrs/fabric/tcp/socket_options.h"

namespace rtrs::tcp {

TcpConnectRequest::TcpConnectRequest(Reactor& reactor, const TcpFabricOptions& options, int fd,
                                     const Hello& hello, Bytes private_data) noexcept
    : reactor_(reactor),
      payload_crc_(hello.payload_crc &&
                   options.data_checksum == TcpFabricOptions::DataChecksum::on),
      zero_copy_(options.zero_copy == TcpFabricOptions::ZeroCopy::on),
      tracer_(options.tracer),
      peer_reads_max_(std::min(hello.reads_max, TcpEndpoint::reads_max)),
      fd_(fd),
      private_bytes_(private_data.size()) {
    std::ranges::copy(private_data, private_data_.begin());
}

TcpConnectRequest::~TcpConnectRequest() { reject({}); }

Bytes TcpConnectRequest::private_data() const noexcept {
    return Bytes(private_data_).first(private_bytes_);
}

std::string TcpConnectRequest::local_address() const { return rtrs::local_address(fd_); }
std::string TcpConnectRequest::remote_address() const { return rtrs::remote_address(fd_); }
DescriptorsLeft TcpConnectRequest::descriptors_left() const noexcept {
    return rtrs::descriptors_left(fd_);
}

std::optional<ConnectRequest::NearestWorker> TcpConnectRequest::nearest_worker() const noexcept {
    const auto processor = processor_of_arrival(fd_);
    const auto worker = processor ? reactor_.member_held_on(*processor) : std::nullopt;
    if (!worker) return std::nullopt;
    return NearestWorker{*worker, reactor_.members()};
}

std::expected<std::unique_ptr<Endpoint>, std::error_code> TcpConnectRequest::accept(
    ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
    EndpointHandler& handler) {
    RTRS_ASSERT(fd_ >= 0);
    if (private_data.size() > private_data_reply_max) return std::unexpected(from_errno(EMSGSIZE));
    auto endpoint =
        TcpEndpoint::create({reactor_.member(options.worker % reactor_.members()),
                             static_cast<TcpDomain&>(domain), options, handler, tracer_});
    if (!endpoint) return std::unexpected(endpoint.error());
    Hello hello;
    hello.payload_crc = payload_crc_;
    hello.reads_max = TcpEndpoint::reads_max;
    if (send_now(fd_, emit_handshake(Opcode::accept, hello, private_data))) {
        reactor_.close_fd(std::exchange(fd_, -1));
        return std::unexpected(from_errno(ECONNRESET));
    }
    (*endpoint)->adopt(std::exchange(fd_, -1), {payload_crc_ ? SendQueue::PayloadCrc::computed
                                                             : SendQueue::PayloadCrc::none,
                                                peer_reads_max_});
    if (zero_copy_) (*endpoint)->send_without_copies();
    return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

void TcpConnectRequest::reject(Bytes private_data) {
    if (fd_ < 0) return;
    const Bytes fitting = private_data.first(std::min(private_data.size(), private_data_reply_max));
    (void)send_now(fd_, emit_handshake(Opcode::reject, Hello{}, fitting));
    reactor_.close_fd(std::exchange(fd_, -1));
}

}  // namespace rtrs::tcp
