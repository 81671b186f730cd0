#include "rtrs/fabric/tcp/socket_options.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

#include "rtrs/base/error.h"
#include "rtrs/fabric.h"

namespace rtrs::tcp {

namespace {

// An idle flow is tried too, in halves of the time: probes at 5, 6, ... s of 10.
constexpr int keepalive_parts = 2;
constexpr int keepalive_probes = 5;

int seconds_of(Duration time) noexcept {
    constexpr Duration most = std::chrono::hours(3);  // more than any heartbeat wants
    return std::max(1, static_cast<int>(std::min(time, most) / std::chrono::seconds(1)));
}

}  // namespace

std::expected<int, std::error_code> open_socket(int family) noexcept {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) return std::unexpected(from_errno(errno));
    prepare_socket(fd);
    return fd;
}

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

Duration quietness_of(int fd) noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return Duration::zero();
    int under_way = 0;
    if (::ioctl(fd, SIOCOUTQ, &under_way) != 0 || under_way > 0) return Duration::zero();
    return std::chrono::milliseconds(info.tcpi_last_data_recv);
}

std::optional<unsigned> processor_of_arrival(int fd) noexcept {
    int processor = -1;
    socklen_t bytes = sizeof processor;
    const bool known =
        ::getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &processor, &bytes) == 0 && processor >= 0;
    return known ? std::optional(static_cast<unsigned>(processor)) : std::nullopt;
}

void limit_packets(int fd) noexcept {
    // What an IPv6 packet of 1280 bytes, which each link must take (RFC 8200, 5), has left.
    constexpr int segment_bytes = 1280 - 40 - 20;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof segment_bytes);
}

}  // namespace rtrs::tcp
