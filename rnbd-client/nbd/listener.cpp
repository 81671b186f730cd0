#include "rnbd-client/nbd/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/descriptors.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

using rtrs::TraceLevel;

constexpr std::string_view subsystem = "rnbd.nbd";
// Out of descriptors or memory: time for some to come back.
constexpr rtrs::Duration accept_pause = std::chrono::milliseconds(100);
constexpr int backlog = SOMAXCONN;  // a client that does not wait is turned away by a full queue

struct AddressList {
    addrinfo* first = nullptr;
    ~AddressList() {
        if (first != nullptr) ::freeaddrinfo(first);
    }
};

std::string peer_text(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host, sizeof host, port,
                      sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "unknown";
    }
    const bool six = address.ss_family == AF_INET6;
    return fmt::format("{}{}{}:{}", six ? "[" : "", host, six ? "]" : "", port);
}

void set(int fd, int level, int name) noexcept {
    const int on = 1;
    (void)::setsockopt(fd, level, name, &on, sizeof on);
}

}  // namespace

NbdListener::NbdListener(NbdConnection::Environment environment, const NbdExports& exports,
                         NbdListenerOptions options, Handler& handler)
    : environment_(environment),
      exports_(exports),
      options_(std::move(options)),
      handler_(handler),
      accept_again_(environment_.reactor, this, rtrs::member_call<&NbdListener::accept>) {}

NbdListener::~NbdListener() {
    RTRS_ASSERT(!open_ && connections_.empty());
    rtrs::Reactor::cancel_turn_end(turn_end_);
}

NbdListener::Failure NbdListener::failure(int error, std::string_view what) const {
    const std::error_code code = rtrs::from_errno(error);
    return {code, fmt::format("{}: {}: {}", options_.address.text(), what, code.message())};
}

std::expected<void, NbdListener::Failure> NbdListener::open() {
    RTRS_ASSERT(!open_ && fd_ < 0);
    const auto listening =
        options_.address.transport == NbdTransport::unix_socket ? open_unix() : open_tcp();
    if (!listening) {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
        return listening;
    }
    open_ = true;
    accept();
    environment_.tracer.trace(TraceLevel::info, subsystem, bound().text(), "listening");
    return {};
}

NbdAddress NbdListener::bound() const {
    NbdAddress address = options_.address;
    if (port_ != 0) address.port = std::to_string(port_);
    return address;
}

std::expected<void, NbdListener::Failure> NbdListener::open_unix() {
    auto listening = listen_on_unix(options_.address.path, options_.mode, backlog);
    if (!listening) {
        const int error = rtrs::to_errno(listening.error());
        if (error == EEXIST) {
            return std::unexpected(failure(ENOTSOCK, "the path exists and is no socket"));
        }
        return std::unexpected(failure(error, error == EADDRINUSE
                                                  ? "another process serves on this socket"
                                                  : "making the socket"));
    }
    fd_ = listening->release();
    // The ring waits; of a socket that does not block some kernels' rings only ask.
    (void)::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
    file_.emplace(options_.address.path);
    return {};
}

std::expected<void, NbdListener::Failure> NbdListener::open_tcp() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    AddressList found;
    const int result = ::getaddrinfo(options_.address.host.c_str(), options_.address.port.c_str(),
                                     &hints, &found.first);
    if (result != 0) {
        return std::unexpected(failure(EADDRNOTAVAIL, ::gai_strerror(result)));
    }
    fd_ = ::socket(found.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return std::unexpected(failure(errno, "socket"));
    set(fd_, SOL_SOCKET, SO_REUSEADDR);
    if (::bind(fd_, found.first->ai_addr, found.first->ai_addrlen) != 0) {
        return std::unexpected(failure(errno, "bind"));
    }
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &bytes) == 0) {
        port_ = ntohs(bound.ss_family == AF_INET6
                          ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                          : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    }
    if (::listen(fd_, backlog) != 0) return std::unexpected(failure(errno, "listen"));
    return {};
}

void NbdListener::remove_file() noexcept {
    if (file_) file_->remove();
    file_.reset();
}

void NbdListener::listen_again() {
    if (!open_ || closing_ || !file_ || file_->is_there()) return;
    const int old = fd_;
    if (const auto made = open_unix(); !made) {
        return environment_.tracer.trace(TraceLevel::error, subsystem, bound().text(),
                                         "its file is gone: " + made.error().text);
    }
    // It goes on with the new one when this has ended, or when its pause is over.
    if (accept_.in_flight) environment_.reactor.cancel(accept_);
    environment_.reactor.close_fd(old);
    environment_.tracer.trace(TraceLevel::warning, subsystem, bound().text(),
                              "its file was gone, and is made anew");
}

void NbdListener::close() {
    if (!open_ || closing_) return;
    closing_ = true;
    remove_file();
    accept_again_.disarm();
    if (accept_.in_flight) environment_.reactor.cancel(accept_);
    for (const auto& connection : connections_) connection->finish();
    environment_.reactor.at_turn_end(turn_end_);
}

void NbdListener::finish_connections(const Device& device) {
    for (const auto& connection : connections_) {
        if (connection->device() == &device) connection->finish();
    }
}

void NbdListener::abort_connections(const Device& device) {
    for (const auto& connection : connections_) {
        if (connection->device() == &device) connection->abort("shut down");
    }
}

std::size_t NbdListener::connections_of(const Device& device) const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(
        connections_, [&](const auto& connection) { return connection->device() == &device; }));
}

void NbdListener::accept() { environment_.reactor.accept(accept_, fd_); }

void NbdListener::on_accepted(const rtrs::Operation::Result& result) {
    if (result.value >= 0) {
        cannot_accept_ = false;
        add(result.value);
    } else if (!closing_ && result.value != -ECANCELED && !std::exchange(cannot_accept_, true)) {
        const std::string text =
            "accept: " + rtrs::from_errno(result.value).message() + ", trying again";
        environment_.tracer.trace(TraceLevel::warning, subsystem, bound().text(), text);
    }
    if (closing_) return environment_.reactor.at_turn_end(turn_end_);
    accept_again_.arm(environment_.reactor.now() +
                      (result.value >= 0 ? rtrs::Duration::zero() : accept_pause));
}

void NbdListener::add(int fd) {
    if (closing_) return environment_.reactor.close_fd(fd);
    if (connections_.size() >= options_.connections_max) {
        return refuse(fd, "too many connections");
    }
    if (rtrs::is_of_the_last_quarter(fd)) {
        return refuse(fd, "the limit of open files is near, and the rest is for paths");
    }
    ++accepted_;
    if (options_.address.transport == NbdTransport::tcp) {
        set(fd, IPPROTO_TCP, TCP_NODELAY);
        // A client that vanished between requests is noticed in the end.
        set(fd, SOL_SOCKET, SO_KEEPALIVE);
    }
    NbdConnection::Owner& self = *this;
    // They are spread over the workers.
    rtrs::Reactor& reactor = environment_.reactor;
    const NbdConnection::Environment environment{
        reactor.member(static_cast<std::uint32_t>(accepted_ % reactor.members())),
        environment_.tracer};
    connections_.push_back(std::make_unique<NbdConnection>(
        environment, NbdConnection::Socket{fd, options_.address.transport, name_of(fd)}, exports_,
        options_.connection, self));
    connections_.back()->start();
}

void NbdListener::refuse(int fd, std::string_view reason) {
    ++refused_;
    // Once until there is room again: a client that insists must not fill the log.
    if (!std::exchange(full_, true)) {
        environment_.tracer.trace(TraceLevel::warning, subsystem, bound().text(),
                                  fmt::format("refusing clients: {}", reason));
    }
    environment_.reactor.close_fd(fd);
}

// "unix:/run/x.sock#3 pid 77", "tcp:127.0.0.1:10809#3 127.0.0.1:51234".
std::string NbdListener::name_of(int fd) const {
    std::string base = fmt::format("{}#{}", bound().text(), accepted_);
    if (options_.address.transport == NbdTransport::tcp) {
        return fmt::format("{} {}", base, peer_text(fd));
    }
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return base;
    return fmt::format("{} pid {}", base, peer.pid);
}

void NbdListener::on_connection_closed(NbdConnection& connection) {
    const auto at =
        std::ranges::find(connections_, &connection, &std::unique_ptr<NbdConnection>::get);
    RTRS_ASSERT(at != connections_.end());
    std::swap(*at, connections_.back());
    connections_.pop_back();
    full_ = false;
    if (closing_) environment_.reactor.at_turn_end(turn_end_);
    handler_.on_connection_gone(*this);
}

// Whoever can connect can cause it as often as they like.
std::optional<std::uint64_t> NbdListener::handshake_failed() noexcept {
    return failed_handshakes_.happened(environment_.reactor.now());
}

void NbdListener::end_if_idle() {
    if (!closing_ || !open_ || accept_.in_flight) return;
    // Connections may be left for long. Who comes now must not wait for one to be accepted.
    if (fd_ >= 0) {
        environment_.reactor.close_fd(std::exchange(fd_, -1));
        handler_.on_address_free(*this);
    }
    if (!connections_.empty()) return;
    open_ = false;
    environment_.tracer.trace(TraceLevel::info, subsystem, bound().text(), "closed");
    handler_.on_listener_closed(*this);
}

}  // namespace rnbd
