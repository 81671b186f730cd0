#include "rnbd-client/nbd/listener.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/descriptors.h"
#include "rtrs/base/error.h"
#include "rtrs/sockets/address.h"
#include "rtrs/sockets/listening_socket.h"

namespace rnbd {
namespace {

using rtrs::TraceLevel;

constexpr std::string_view subsystem = "rnbd.nbd";
// How long a client may take to choose, though others find no room.
constexpr rtrs::Duration choosing_min = std::chrono::seconds(1);
constexpr int backlog = SOMAXCONN;  // a client that does not wait is turned away by a full queue

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
      bound_(options_.address),
      accepting_(environment_.reactor, *this) {}

NbdListener::~NbdListener() {
    RTRS_ASSERT(!open_ && connections_.empty());
    rtrs::Reactor::cancel_turn_end(turn_end_);
}

NbdListener::Failure NbdListener::failure(std::error_code error, std::string_view what) const {
    return {error, fmt::format("{}: {}: {}", options_.address.text(), what, error.message())};
}

std::expected<void, NbdListener::Failure> NbdListener::open() {
    RTRS_ASSERT(!open_ && accepting_.idle());
    auto listener = options_.address.transport == NbdTransport::unix_socket
                        ? listen_on_unix_socket()
                        : listen_on_port();
    if (!listener) return std::unexpected(std::move(listener.error()));
    open_ = true;
    accepting_.start(std::move(*listener));
    environment_.tracer.trace(TraceLevel::info, subsystem, bound_.text(), "listening");
    return {};
}

std::expected<rtrs::Descriptor, NbdListener::Failure> NbdListener::listen_on_unix_socket() {
    auto listener = listen_on_unix(options_.address.place, options_.mode, backlog);
    if (!listener) {
        const std::error_code error = listener.error();
        if (error == std::errc::file_exists) {
            return std::unexpected(
                failure(rtrs::from_errno(ENOTSOCK), "the path exists and is no socket"));
        }
        if (const auto others = whose_socket_file(options_.address.place);
            !others.empty() && error != std::errc::address_in_use) {
            return std::unexpected(failure(error, others));
        }
        return std::unexpected(failure(error, error == std::errc::address_in_use
                                                  ? "another process serves on this socket"
                                                  : "making the socket"));
    }
    file_.emplace(options_.address.place);
    return std::move(*listener);
}

std::expected<rtrs::Descriptor, NbdListener::Failure> NbdListener::listen_on_port() {
    const auto address = rtrs::parse_address(options_.address.place);
    if (!address) return std::unexpected(failure(address.error(), "expected HOST:PORT"));
    auto listener = rtrs::listen_on_tcp(*address, backlog);
    if (!listener) return std::unexpected(failure(listener.error(), "listen"));
    bound_.place = rtrs::local_address(listener->get());
    return std::move(*listener);
}

void NbdListener::remove_file() noexcept {
    if (file_) file_->remove();
    file_.reset();
}

void NbdListener::listen_again() {
    if (!open_ || closing_ || !file_ || file_->is_there()) return;
    auto listener = listen_on_unix_socket();
    if (!listener) {
        return environment_.tracer.trace(TraceLevel::error, subsystem, bound().text(),
                                         "its file is gone: " + listener.error().text);
    }
    accepting_.replace(std::move(*listener));
    environment_.tracer.trace(TraceLevel::warning, subsystem, bound().text(),
                              "its file was gone, and is made anew");
}

void NbdListener::close() {
    if (!open_ || closing_) return;
    closing_ = true;
    remove_file();
    // Connections may be left for long. Who comes now must not wait for one to be accepted.
    accepting_.stop();
    for (const auto& connection : connections_) connection->finish();
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

void NbdListener::on_cannot_accept(std::error_code error) {
    environment_.tracer.trace(TraceLevel::warning, subsystem, bound().text(),
                              "accept: " + error.message() + ", trying again");
}

void NbdListener::on_accepted(int fd) {
    std::string_view full;
    if (connections_.size() >= options_.connections_max) full = "too many connections";
    if (rtrs::is_of_the_last_quarter(fd)) {
        full = "the limit of open files is near, and the rest is for paths";
    }
    if (!full.empty() && !make_room(full)) return refuse(fd, full);
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

// Whoever can connect could keep all others out by connecting, and no more. A client that means it
// chooses at once. One is accepted per turn, and who is ended here is gone in the next.
bool NbdListener::make_room(std::string_view reason) {
    NbdConnection* longest = nullptr;
    rtrs::Instant since = environment_.reactor.now() - choosing_min;
    for (const auto& connection : connections_) {
        const auto chooses = connection->chooses_since();
        if (!chooses || *chooses > since) continue;
        since = *chooses;
        longest = connection.get();
    }
    if (longest == nullptr) return false;
    longest->abort(fmt::format("makes room for another client: {}", reason));
    return true;
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
        return fmt::format("{} {}", base, rtrs::remote_address(fd));
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

void NbdListener::on_accept_stopped() {
    environment_.reactor.at_turn_end(turn_end_);
    handler_.on_address_free(*this);
}

void NbdListener::end_if_idle() {
    if (!closing_ || !open_ || listening() || !connections_.empty()) return;
    open_ = false;
    environment_.tracer.trace(TraceLevel::info, subsystem, bound().text(), "closed");
    handler_.on_listener_closed(*this);
}

}  // namespace rnbd
