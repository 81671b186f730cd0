#include "daemon/metrics_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "daemon/http_request.h"
#include "daemon/unix_listener.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

using rtrs::Operation;

namespace {

constexpr std::string_view unix_prefix = "unix:";
// What it says is no secret on this machine: a port of 127.0.0.1 is everybody's too.
constexpr mode_t socket_mode = 0666;
constexpr int backlog = 64;
constexpr std::string_view metrics_type =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

std::error_code last_error() noexcept { return rtrs::from_errno(errno); }

struct FreeAddresses {
    void operator()(addrinfo* found) const noexcept { ::freeaddrinfo(found); }
};

// text: "HOST:PORT", numeric.
std::expected<int, std::error_code> listen_on_tcp(const std::string& text) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos) return std::unexpected(rtrs::from_errno(EINVAL));
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    addrinfo* first = nullptr;
    if (::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &wanted, &first) != 0)
        return std::unexpected(rtrs::from_errno(EINVAL));
    const std::unique_ptr<addrinfo, FreeAddresses> found(first);
    const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return std::unexpected(last_error());
    const int on = 1;
    static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    if (::bind(fd, found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd, backlog) == 0) return fd;
    const auto error = last_error();
    ::close(fd);
    return std::unexpected(error);
}

// "HOST:PORT" of a socket that listens.
std::string address_of(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
        ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof host, port,
                      sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "";
    return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                         : fmt::format("{}:{}", host, port);
}

std::string head_of(HttpStatus status, std::string_view type, std::size_t bytes) {
    return fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
        static_cast<unsigned>(status), reason_phrase(status), type, bytes,
        status == HttpStatus::method_not_allowed ? "Allow: GET\r\n" : "");
}

std::string failure(HttpStatus status) {
    const std::string text = fmt::format("{}\n", reason_phrase(status));
    return head_of(status, "text/plain; charset=utf-8", text.size()) + text;
}

}  // namespace

struct MetricsServer::Inside {
    class Connection;

    Inside(rtrs::Reactor& loop, MetricsServerOptions given, Text document, int fd)
        : reactor(loop), options(std::move(given)), text(std::move(document)), listen_fd(fd) {
        if (options.listen.starts_with(unix_prefix)) {
            socket_file = UnixSocketFile(options.listen.substr(unix_prefix.size()));
            address = options.listen;
        } else {
            address = address_of(fd);
        }
    }

    void wait_for_connections() {
        if (!closing && !accepting.in_flight) reactor.poll_readable(accepting, listen_fd);
    }
    void accept_all();
    void close_when_empty();
    std::string answer_to(std::string_view head) const;

    struct AcceptOperation : Operation {
        explicit AcceptOperation(Inside& owner) noexcept : Operation(&ready), inside(owner) {}
        static void ready(Operation& operation, const Result&) {
            Inside& inside = static_cast<AcceptOperation&>(operation).inside;
            if (inside.closing) return inside.close_when_empty();
            inside.accept_all();
        }
        Inside& inside;
    };

    rtrs::Reactor& reactor;
    const MetricsServerOptions options;
    const Text text;
    int listen_fd;
    std::string address;
    UnixSocketFile socket_file;
    AcceptOperation accepting{*this};
    // Out of file descriptors: waits a little before the next accept.
    rtrs::Timer accept_again{
        reactor, this, [](void* self) { static_cast<Inside*>(self)->wait_for_connections(); }};
    std::map<std::uint64_t, std::unique_ptr<Connection>> connections;
    std::uint64_t connections_ever = 0;
    bool closing = false;
    bool closed_posted = false;
    std::function<void()> closed;
};

// One client: its request comes in, its answer goes out, it is closed.
class MetricsServer::Inside::Connection {
  public:
    Connection(Inside& inside, std::uint64_t id, int fd)
        : inside_(inside), id_(id), fd_(fd), reading_(*this), sending_(*this) {}
    ~Connection() {
        RTRS_ASSERT(!reading_.in_flight && !sending_.in_flight);
        ::close(fd_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start() {
        timer_.arm(inside_.reactor.now() + inside_.options.request_time);
        inside_.reactor.poll_readable(reading_, fd_);
    }

    // May be called from this connection's own handlers; the object goes in a later turn.
    void end() {
        if (ending_) return;
        ending_ = true;
        timer_.disarm();
        ::shutdown(fd_, SHUT_RDWR);
        if (reading_.in_flight) inside_.reactor.cancel(reading_);
        if (sending_.in_flight) inside_.reactor.cancel(sending_);
        leave_if_idle();
    }

  private:
    struct ReadOperation : Operation {
        explicit ReadOperation(Connection& owner) noexcept : Operation(&ready), connection(owner) {}
        static void ready(Operation& operation, const Result&) {
            static_cast<ReadOperation&>(operation).connection.on_readable();
        }
        Connection& connection;
    };
    struct SendOperation : Operation {
        explicit SendOperation(Connection& owner) noexcept : Operation(&sent), connection(owner) {}
        static void sent(Operation& operation, const Result& result) {
            static_cast<SendOperation&>(operation).connection.on_sent(result.value);
        }
        Connection& connection;
    };

    void leave_if_idle() {
        if (!ending_ || left_ || reading_.in_flight || sending_.in_flight) return;
        left_ = true;
        // Not now: this may be inside a handler that still uses the connection. The server waits
        // for its connections before it goes.
        inside_.reactor.post([&inside = inside_, id = id_] {
            inside.connections.erase(id);
            inside.close_when_empty();
        });
    }

    void on_readable() {
        if (ending_) return leave_if_idle();
        char block[http_head_bytes_max];
        const ssize_t bytes = ::recv(fd_, block, http_head_bytes_max - input_.size(), MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return inside_.reactor.poll_readable(reading_, fd_);
        if (bytes <= 0) return end();
        input_.append(block, static_cast<std::size_t>(bytes));
        if (const auto head = http_head_bytes(input_))
            return answer(inside_.answer_to(std::string_view(input_).substr(0, *head)));
        if (input_.size() >= http_head_bytes_max)
            return answer(failure(HttpStatus::fields_too_large));
        inside_.reactor.poll_readable(reading_, fd_);
    }

    void answer(std::string text) {
        output_ = std::move(text);
        timer_.arm(inside_.reactor.now() + inside_.options.answer_time);
        send_rest();
    }

    void send_rest() {
        piece_ = {output_.data() + sent_, output_.size() - sent_};
        message_ = {};
        message_.msg_iov = &piece_;
        message_.msg_iovlen = 1;
        inside_.reactor.sendmsg(sending_, fd_, &message_);
    }

    void on_sent(std::int32_t result) {
        if (ending_) return leave_if_idle();
        if (result <= 0) return end();
        sent_ += static_cast<std::size_t>(result);
        if (sent_ < output_.size()) return send_rest();
        end();
    }

    Inside& inside_;
    const std::uint64_t id_;
    const int fd_;
    ReadOperation reading_;
    SendOperation sending_;
    rtrs::Timer timer_{inside_.reactor, this,
                       [](void* self) { static_cast<Connection*>(self)->end(); }};
    std::string input_;
    std::string output_;
    std::size_t sent_ = 0;
    iovec piece_{};
    msghdr message_{};
    bool ending_ = false;
    bool left_ = false;
};

void MetricsServer::Inside::accept_all() {
    for (;;) {
        // Blocking sockets: the ring waits by itself, and a non-blocking one would answer EAGAIN.
        const int fd = ::accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && errno != EAGAIN)
            return accept_again.arm(reactor.now() + std::chrono::milliseconds(100));
        if (fd < 0) return wait_for_connections();
        if (connections.size() >= options.connections_max) {
            ::close(fd);
            continue;
        }
        const std::uint64_t id = ++connections_ever;
        connections.emplace(id, std::make_unique<Connection>(*this, id, fd)).first->second->start();
    }
}

std::string MetricsServer::Inside::answer_to(std::string_view head) const {
    const auto request = parse_http_request(head);
    if (!request) return failure(request.error());
    if (request->path != "/metrics") return failure(HttpStatus::not_found);
    if (request->method != "GET") return failure(HttpStatus::method_not_allowed);
    const std::string body = text();
    return head_of(HttpStatus::ok, metrics_type, body.size()) + body;
}

void MetricsServer::Inside::close_when_empty() {
    if (!closing || closed_posted || accepting.in_flight || !connections.empty()) return;
    closed_posted = true;
    ::close(std::exchange(listen_fd, -1));
    reactor.post([done = std::move(closed)] { done(); });
}

MetricsServer::MetricsServer(std::unique_ptr<Inside> inside) noexcept
    : inside_(std::move(inside)) {}

MetricsServer::~MetricsServer() { RTRS_ASSERT(inside_->closed_posted); }

std::expected<std::unique_ptr<MetricsServer>, std::error_code> MetricsServer::create(
    rtrs::Reactor& reactor, MetricsServerOptions options, Text text) {
    const auto fd = while_in_use(options.patience, [&] {
        return options.listen.starts_with(unix_prefix)
                   ? listen_on_unix(options.listen.substr(unix_prefix.size()), socket_mode)
                   : listen_on_tcp(options.listen);
    });
    if (!fd) return std::unexpected(fd.error());
    auto inside = std::make_unique<Inside>(reactor, std::move(options), std::move(text), *fd);
    inside->wait_for_connections();
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(inside)));
}

const std::string& MetricsServer::address() const noexcept { return inside_->address; }

void MetricsServer::close(std::function<void()> closed) {
    RTRS_ASSERT(!inside_->closing);
    inside_->closing = true;
    inside_->closed = std::move(closed);
    inside_->accept_again.disarm();
    inside_->socket_file.remove();
    if (inside_->accepting.in_flight) inside_->reactor.cancel(inside_->accepting);
    for (const auto& [id, connection] : inside_->connections) connection->end();
    inside_->close_when_empty();
}

}  // namespace rnbd
