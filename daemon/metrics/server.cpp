#include "daemon/metrics/server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/metrics/http_request.h"
#include "daemon/sockets/stream_server.h"
#include "daemon/sockets/unix_listener.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"
#include "rtrs/sockets/address.h"
#include "rtrs/sockets/listening_socket.h"

namespace rnbd {

namespace {

constexpr std::string_view unix_prefix = "unix:";
// What it says is no secret on this machine: a port of 127.0.0.1 is everybody's too.
constexpr mode_t socket_mode = 0666;
constexpr int backlog = 64;
// Of a document, written in one turn: a tenth of a millisecond.
constexpr std::size_t piece_bytes = 64u << 10;
constexpr std::string_view metrics_type =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

// text: "HOST:PORT", numeric.
std::expected<rtrs::Descriptor, std::error_code> listen_on(std::string_view text) {
    const auto address = rtrs::parse_address(text);
    if (!address) return std::unexpected(address.error());
    return rtrs::listen_on_tcp(*address, backlog);
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

// None: it asks for the document.
std::optional<HttpStatus> refusal_of(std::string_view head) {
    const auto request = parse_http_request(head);
    if (!request) return request.error();
    if (request->path != "/metrics") return HttpStatus::not_found;
    if (request->method != "GET") return HttpStatus::method_not_allowed;
    return std::nullopt;
}

}  // namespace

struct MetricsServer::Inside {
    class Connection;

    Inside(rtrs::Reactor& loop, MetricsServerOptions given, Text made_by, rtrs::Descriptor listener)
        : options(std::move(given)),
          text(std::move(made_by)),
          address(options.listen.starts_with(unix_prefix) ? options.listen
                                                          : rtrs::local_address(listener.get())),
          streams(loop, std::move(listener), options.connections_max,
                  [this](const StreamConnection::Accepted& accepted) { return make(accepted); }),
          next_piece(loop, this, rtrs::member_call<&Inside::go_on>) {
        if (options.listen.starts_with(unix_prefix)) {
            socket_file = UnixSocketFile(options.listen.substr(unix_prefix.size()));
        }
    }

    // A document on its way: as it was noted, its text so far, and who gets it.
    struct Document {
        MetricsText noted;
        std::string text{};
        std::vector<StreamConnection::Id> readers{};
    };

    std::unique_ptr<StreamConnection> make(const StreamConnection::Accepted& accepted);
    void ask(StreamConnection::Id reader);
    void go_on();
    void deliver(Document whole);

    const MetricsServerOptions options;
    const Text text;
    std::string address;
    UnixSocketFile socket_file;
    StreamServer streams;
    std::vector<StreamConnection::Id> waiting;  // for the next document
    std::optional<Document> document;
    rtrs::Timer next_piece;
};

// One client: its request comes in, its answer goes out, it is closed.
class MetricsServer::Inside::Connection final : public StreamConnection {
  public:
    Connection(Inside& inside, const Accepted& accepted)
        : StreamConnection(accepted), inside_(inside) {}

    void begin() override {
        limit_time(inside_.options.request_time);
        await_readable();
    }

    void answer(std::string head, std::shared_ptr<const std::string> body) {
        if (!ended()) send(std::move(head), std::move(body));
    }

  private:
    void on_readable() override {
        char block[http_head_bytes_max];
        const ssize_t bytes =
            ::recv(fd(), block, http_head_bytes_max - input_.size(), MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return await_readable();
        if (bytes <= 0) return end();
        input_.append(block, static_cast<std::size_t>(bytes));
        if (const auto head = http_head_bytes(input_)) {
            const auto refused = refusal_of(std::string_view(input_).substr(0, *head));
            if (refused) return refuse(*refused);
            asked_ = true;
            limit_time(inside_.options.answer_time);
            return inside_.ask(id());
        }
        if (input_.size() >= http_head_bytes_max) return refuse(HttpStatus::fields_too_large);
        await_readable();
    }

    void refuse(HttpStatus status) {
        limit_time(inside_.options.answer_time);
        send(failure(status));
    }

    bool is_idle() const override { return !asked_ && !sending(); }
    void on_sent() override { end(); }

    Inside& inside_;
    std::string input_;
    bool asked_ = false;  // for a document
};

std::unique_ptr<StreamConnection> MetricsServer::Inside::make(
    const StreamConnection::Accepted& accepted) {
    return std::make_unique<Connection>(*this, accepted);
}

void MetricsServer::Inside::ask(StreamConnection::Id reader) {
    waiting.push_back(reader);
    if (!document && !next_piece.armed()) next_piece.arm(streams.reactor().now());
}

// Others' work goes between.
void MetricsServer::Inside::go_on() {
    bool more = true;
    if (!document) {
        document.emplace(Document{.noted = text(), .readers = std::exchange(waiting, {})});
        document->text.reserve(document->noted.bytes_max());
    } else {
        more = document->noted.write(document->text, piece_bytes);
    }
    if (!more) {
        Document whole = std::move(*document);
        document.reset();
        deliver(std::move(whole));
    }
    if (document || !waiting.empty()) next_piece.arm(streams.reactor().now());
}

void MetricsServer::Inside::deliver(Document whole) {
    const auto body = std::make_shared<const std::string>(std::move(whole.text));
    for (const StreamConnection::Id reader : whole.readers) {
        if (auto* const connection = static_cast<Connection*>(streams.find(reader)))
            connection->answer(head_of(HttpStatus::ok, metrics_type, body->size()), body);
    }
}

MetricsServer::MetricsServer(std::unique_ptr<Inside> inside) noexcept
    : inside_(std::move(inside)) {}

MetricsServer::~MetricsServer() = default;

std::expected<std::unique_ptr<MetricsServer>, std::error_code> MetricsServer::create(
    rtrs::Reactor& reactor, MetricsServerOptions options, Text text) {
    auto listener = while_in_use(options.in_use_timeout, [&] {
        return options.listen.starts_with(unix_prefix)
                   ? listen_on_unix_in_folder(options.listen.substr(unix_prefix.size()),
                                              socket_mode)
                   : listen_on(options.listen);
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
    inside_->next_piece.disarm();
    inside_->streams.close(std::move(closed));
}

}  // namespace rnbd
