#include "rtrs/fabric/tcp/dial.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>

namespace rtrs::tcp {

std::expected<int, std::error_code> open_socket(int family) noexcept {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) return std::unexpected(from_errno(errno));
    prepare_socket(fd);
    return fd;
}

namespace {

// An idle flow is tried too, in halves of the time: probes at 5, 6, ... s of 10.
constexpr int keepalive_parts = 2;
constexpr int keepalive_probes = 5;

int seconds_of(Duration time) noexcept {
    constexpr Duration most = std::chrono::hours(3);  // more than any heartbeat wants
    return std::max(1, static_cast<int>(std::min(time, most) / std::chrono::seconds(1)));
}

}  // namespace

void prepare_socket(int fd) noexcept {
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // ICMP errors end a connection at once; otherwise TCP would try on for minutes, and a path
    // would be lost by its heartbeat only. A socket of IPv6 may have a peer of IPv4: it wants both.
    (void)::setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
    (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
    limit_silence(fd, EndpointOptions{}.silence_max);
    (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

// A flow whose packets vanish (a dead member of a bond, a forgotten entry of a NAT) while others of
// its path go on: heartbeats run on one connection only and say nothing of it, and TCP by itself
// would try for a quarter of an hour. With a user timeout, that ends the probes, too. (The system
// also ends a connection whose window is shut for so long.)
void limit_silence(int fd, Duration silence_max) noexcept {
    const auto user_timeout_ms = static_cast<unsigned>(1000 * seconds_of(silence_max));
    const int idle_s = seconds_of(silence_max / keepalive_parts);
    const int interval_s = seconds_of(silence_max / keepalive_parts / keepalive_probes);
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &keepalive_probes, sizeof keepalive_probes);
}

// The system counts from when something was received last: after a second of that it asks at once.
void try_silence_soon(int fd) noexcept {
    constexpr int idle_s = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

// A peer that stands still acknowledges, also what asks for its window. One question by itself may
// be under way just now.
Duration unacknowledged_by(int fd) noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return Duration::zero();
    const bool sent_again = info.tcpi_unacked > 0 && info.tcpi_retransmits > 0;
    if (!sent_again && info.tcpi_probes < 2) return Duration::zero();
    return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

void limit_packets(int fd) noexcept {
    // What an IPv6 packet of 1280 bytes, which each link must take (RFC 8200, 5), has left.
    constexpr int segment_bytes = 1280 - 40 - 20;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof segment_bytes);
}

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
