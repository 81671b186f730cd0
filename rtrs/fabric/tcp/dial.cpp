#include "rtrs/fabric/tcp/dial.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "rtrs/fabric/tcp/socket_options.h"

namespace rtrs::tcp {

std::error_code send_now(int fd, const HandshakeFrame& frame) noexcept {
    const ssize_t sent = ::send(fd, frame.bytes.data(), frame.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return from_errno(errno);
    return sent == static_cast<ssize_t>(frame.size) ? std::error_code{} : from_errno(ECONNRESET);
}

Dial::Dial(TcpEndpoint& endpoint, const TcpEndpoint::DialOptions& options)
    : endpoint_(endpoint),
      destination_(options.destination),
      payload_crc_(options.payload_crc),
      timeout_(options.timeout),
      timer_(endpoint.reactor_, &endpoint, [](void* context) {
          static_cast<TcpEndpoint*>(context)->fail(from_errno(ETIMEDOUT));
      }) {
    Hello hello;
    hello.payload_crc = payload_crc_ == SendQueue::PayloadCrc::computed;
    hello.reads_max = TcpEndpoint::reads_max;
    request_ = emit_handshake(Opcode::connect_request, hello, options.private_data);
    open_error_ = open(options.source);
}

std::error_code Dial::open(const Address* source) {
    const auto fd = open_socket(destination_.family());
    if (!fd) return fd.error();
    endpoint_.fd_ = *fd;
    limit_silence(*fd, endpoint_.silence_max_);
    if (endpoint_.packets_ == EndpointOptions::Packets::small) limit_packets(*fd);
    if (source == nullptr) return {};
    const int on = 1;
    (void)::setsockopt(*fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    return ::bind(*fd, source->get(), source->bytes) == 0 ? std::error_code{} : from_errno(errno);
}

void Dial::start() {
    if (open_error_) return endpoint_.fail(open_error_);
    timer_.arm(endpoint_.reactor_.now() + timeout_);
    endpoint_.reactor_.connect(connect_, endpoint_.fd_, destination_.get(), destination_.bytes);
}

void Dial::stop() noexcept {
    timer_.disarm();
    endpoint_.reactor_.cancel(connect_);
    endpoint_.reactor_.cancel(receive_);
}

void Dial::on_connected(const Operation::Result& result) {
    if (endpoint_.state_ != TcpEndpoint::State::connecting) return endpoint_.schedule();
    if (result.value < 0) return endpoint_.fail(from_errno(result.value));
    if (const std::error_code error = send_now(endpoint_.fd_, request_)) {
        return endpoint_.fail(error);
    }
    receive();
}

void Dial::receive() { endpoint_.reactor_.recv_all(receive_, endpoint_.fd_, answer_.space()); }

void Dial::on_received(const Operation::Result& result) {
    if (endpoint_.state_ != TcpEndpoint::State::connecting) return endpoint_.schedule();
    if (result.value <= 0) {
        return endpoint_.fail(from_errno(result.value == 0 ? ECONNRESET : result.value));
    }
    const auto progress = answer_.received(static_cast<std::size_t>(result.value));
    if (!progress) return endpoint_.refuse(progress.error(), answer_.complaint());
    return *progress == HandshakeReader::Progress::more ? receive() : take_answer();
}

void Dial::take_answer() {
    const Hello& hello = answer_.hello();
    if (hello.version != fabric_version || hello.reason == RejectReason::version) {
        return endpoint_.refuse(Error::protocol, "version of its answer: found " +
                                                     std::to_string(hello.version) + ", expected " +
                                                     std::to_string(fabric_version));
    }
    if (answer_.opcode() == Opcode::reject) {
        if (hello.reason != RejectReason::refused) {
            return endpoint_.refuse(Error::protocol,
                                    "reason of its reject: found " +
                                        std::to_string(static_cast<unsigned>(hello.reason)) +
                                        ", expected 0 or 1");
        }
        endpoint_.rejected_ = true;
        return endpoint_.fail(Error::rejected);
    }
    if (hello.payload_crc && payload_crc_ == SendQueue::PayloadCrc::none) {
        return endpoint_.refuse(Error::protocol,
                                "its answer: found payload checksums, expected none, as none were "
                                "asked for");
    }
    accepted();
}

void Dial::accepted() {
    timer_.disarm();
    endpoint_.agreement_.payload_crc =
        answer_.hello().payload_crc ? SendQueue::PayloadCrc::computed : SendQueue::PayloadCrc::none;
    endpoint_.agreement_.peer_reads_max =
        std::min(answer_.hello().reads_max, TcpEndpoint::reads_max);
    const std::unique_ptr<Dial> self = std::move(endpoint_.dial_);
    endpoint_.establish(private_data());
}

}  // namespace rtrs::tcp
