#include "daemon/metrics/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "daemon/metrics/http_request.h"
#include "daemon/sockets/stream_server.h"
#include "daemon/sockets/unix_listener.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"

namespace rnbd {

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
std::expected<rtrs::Descriptor, std::error_code> listen_on_tcp(const std::string& text) {
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
    rtrs::Descriptor listener(
        ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener) return std::unexpected(last_error());
    const int on = 1;
    static_cast<void>(::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    if (::bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
        ::listen(listener.get(), backlog) != 0)
        return std::unexpected(last_error());
    return listener;
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

    Inside(rtrs::Reactor& loop, MetricsServerOptions given, Text document,
           rtrs::Descriptor listener)
        : options(std::move(given)),
          text(std::move(document)),
          address(options.listen.starts_with(unix_prefix) ? options.listen
                                                          : address_of(listener.get())),
          streams(loop, std::move(listener), options.connections_max,
                  [this](const StreamConnection::Accepted& accepted) { return make(accepted); }) {
        if (options.listen.starts_with(unix_prefix)) {
            socket_file = UnixSocketFile(options.listen.substr(unix_prefix.size()));
        }
    }

    std::unique_ptr<StreamConnection> make(const StreamConnection::Accepted& accepted) const;
    std::string answer_to(std::string_view head) const;

    const MetricsServerOptions options;
    const Text text;
    std::string address;
    UnixSocketFile socket_file;
    StreamServer streams;
};

// One client: its request comes in, its answer goes out, it is closed.
class MetricsServer::Inside::Connection final : public StreamConnection {
  public:
    Connection(const Inside& inside, const Accepted& accepted)
        : StreamConnection(accepted), inside_(inside) {}

    void begin() override {
        limit_time(inside_.options.request_time);
        await_readable();
    }

  private:
    void on_readable() override {
        char block[http_head_bytes_max];
        const ssize_t bytes =
            ::recv(fd(), block, http_head_bytes_max - input_.size(), MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return await_readable();
        if (bytes <= 0) return end();
        input_.append(block, static_cast<std::size_t>(bytes));
        if (const auto head = http_head_bytes(input_))
            return answer(inside_.answer_to(std::string_view(input_).substr(0, *head)));
        if (input_.size() >= http_head_bytes_max)
            return answer(failure(HttpStatus::fields_too_large));
        await_readable();
    }

    void answer(std::string whole) {
        limit_time(inside_.options.answer_time);
        send(std::move(whole));
    }

    bool is_idle() const override { return !sending(); }
    void on_sent() override { end(); }

    const Inside& inside_;
    std::string input_;
};

std::unique_ptr<StreamConnection> MetricsServer::Inside::make(
    const StreamConnection::Accepted& accepted) const {
    return std::make_unique<Connection>(*this, accepted);
}

std::string MetricsServer::Inside::answer_to(std::string_view head) const {
    const auto request = parse_http_request(head);
    if (!request) return failure(request.error());
    if (request->path != "/metrics") return failure(HttpStatus::not_found);
    if (request->method != "GET") return failure(HttpStatus::method_not_allowed);
    const std::string body = text();
    return head_of(HttpStatus::ok, metrics_type, body.size()) + body;
}

MetricsServer::MetricsServer(std::unique_ptr<Inside> inside) noexcept
    : inside_(std::move(inside)) {}

MetricsServer::~MetricsServer() = default;

std::expected<std::unique_ptr<MetricsServer>, std::error_code> MetricsServer::create(
    rtrs::Reactor& reactor, MetricsServerOptions options, Text text) {
    auto listener = while_in_use(options.patience, [&] {
        return options.listen.starts_with(unix_prefix)
                   ? listen_on_unix_in_folder(options.listen.substr(unix_prefix.size()),
                                              socket_mode)
                   : listen_on_tcp(options.listen);
    });
    if (!listener) return std::unexpected(listener.error());
    auto inside = std::make_unique<Inside>(reactor, std::move(options), std::move(text),
                                           std::move(*listener));
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(inside)));
}

const std::string& MetricsServer::address() const noexcept { return inside_->address; }

std::expected<bool, std::error_code> MetricsServer::listen_again() {
    const std::string_view listen = inside_->options.listen;
    if (!listen.starts_with(unix_prefix) || inside_->socket_file.is_there()) return false;
    const std::string path(listen.substr(unix_prefix.size()));
    auto listener = listen_on_unix_in_folder(path, socket_mode);
    if (!listener) return std::unexpected(listener.error());
    inside_->socket_file = UnixSocketFile(path);
    inside_->streams.listen_on(std::move(*listener));
    return true;
}

void MetricsServer::remove_file() noexcept { inside_->socket_file.remove(); }

void MetricsServer::close(std::function<void()> closed) {
    inside_->socket_file.remove();
    inside_->streams.close(std::move(closed));
}

}  // namespace rnbd
