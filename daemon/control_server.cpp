#include "daemon/control_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/unix_listener.h"
#include "rtrs/base/assert.h"

namespace rnbd {

using nlohmann::json;
using rtrs::Operation;

namespace {

enum class ConnectionId : std::uint64_t {};

// How long the daemon's end waits for a client to take its answer.
constexpr std::chrono::seconds farewell_time{1};

constexpr mode_t socket_mode = 0600;

}  // namespace

struct ControlServer::Inside {
    class Connection;

    Inside(rtrs::Reactor& loop, ControlServerOptions given, int fd)
        : reactor(loop),
          options(std::move(given)),
          listen_fd(fd),
          socket_file(options.socket_path) {}

    void wait_for_connections() {
        if (!closing && !accepting.in_flight) reactor.poll_readable(accepting, listen_fd);
    }
    void accept_all();
    void forget(ConnectionId id);
    void close_when_empty();
    void handle(Connection& connection, std::string_view line);

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
    ControlServerOptions options;
    int listen_fd;
    UnixSocketFile socket_file;
    AcceptOperation accepting{*this};
    // Out of file descriptors: waits a little before the next accept.
    rtrs::Timer accept_again{
        reactor, this, [](void* self) { static_cast<Inside*>(self)->wait_for_connections(); }};
    std::map<std::string, Handler, std::less<>> commands;
    std::map<ConnectionId, std::unique_ptr<Connection>> connections;
    std::uint64_t connections_ever = 0;
    bool closing = false;
    bool closed_posted = false;
    std::function<void()> closed;
    // Replies hold it weakly: the server's end is known to them.
    std::shared_ptr<Inside*> alive = std::make_shared<Inside*>(this);
};

struct ControlReply::Target {
    std::weak_ptr<ControlServer::Inside*> server;
    ConnectionId connection;
};

// One client. States by what is pending: reading (waiting for a line), handling (a command has not
// answered yet), sending (the answer is on its way), ending (waits for its operations).
class ControlServer::Inside::Connection {
  public:
    Connection(Inside& inside, ConnectionId id, int fd)
        : inside_(inside), id_(id), fd_(fd), reading_(*this), sending_(*this) {}
    ~Connection() {
        RTRS_ASSERT(!reading_.in_flight && !sending_.in_flight);
        ::close(fd_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start() { next_line(); }

    void answer(std::string line) {
        if (ending_ || !handling_) return;
        handling_ = false;
        output_ = std::move(line);
        output_ += '\n';
        sent_ = 0;
        timer_.arm(inside_.reactor.now() + inside_.options.idle_time);
        send_rest();
    }

    // What is being sent may go out first.
    void end_politely() {
        if (!sending_.in_flight) return end();
        end_after_answer_ = true;
        timer_.arm(inside_.reactor.now() + farewell_time);
    }

    // May be called from any of this connection's own handlers; the object goes in a later turn.
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
        // Not now: this may be inside a handler that still uses the connection.
        inside_.reactor.post([alive = std::weak_ptr(inside_.alive), id = id_] {
            if (const auto server = alive.lock()) (*server)->forget(id);
        });
    }

    // Handles a line that is complete already, or waits for more bytes.
    void next_line() {
        if (ending_ || handling_ || sending_.in_flight) return;
        const auto newline = input_.find('\n', searched_);
        if (newline != std::string::npos) {
            const std::string line = input_.substr(0, newline);
            input_.erase(0, newline + 1);
            searched_ = 0;
            if (line.find_first_not_of(" \t\r") == std::string::npos) return next_line_later();
            handling_ = true;
            timer_.disarm();
            inside_.handle(*this, line);
            // Nobody may be left to hear the answer: a place is not kept for one that has gone.
            if (handling_ && !ending_) read_more();
            return;
        }
        searched_ = input_.size();
        if (input_.size() >= control_request_bytes_max) return refuse_long_line();
        if (!timer_.armed()) timer_.arm(inside_.reactor.now() + inside_.options.idle_time);
        read_more();
    }

    void read_more() {
        const bool room = input_.size() < control_request_bytes_max;
        if (room && !reading_.in_flight) inside_.reactor.poll_readable(reading_, fd_);
    }

    // A client may say with shutdown() that it asks nothing more, and wait for its answer.
    bool client_has_gone() const {
        pollfd look{fd_, 0, 0};
        return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
    }

    // An empty line costs a turn, so that a megabyte of newlines neither recurses nor hogs.
    void next_line_later() {
        inside_.reactor.post([alive = std::weak_ptr(inside_.alive), id = id_] {
            const auto server = alive.lock();
            if (!server) return;
            const auto found = (*server)->connections.find(id);
            if (found != (*server)->connections.end()) found->second->next_line();
        });
    }

    void refuse_long_line() {
        handling_ = true;
        end_after_answer_ = true;
        answer(emit_control_failure(
            {ControlError::bad_request,
             fmt::format("a request is one line of at most {} bytes", control_request_bytes_max)}));
    }

    void on_readable() {
        if (ending_) return leave_if_idle();
        char block[64u << 10];
        const std::size_t room = control_request_bytes_max - input_.size();
        const ssize_t bytes = ::recv(fd_, block, std::min(room, sizeof block), MSG_DONTWAIT);
        if (bytes > 0) {
            input_.append(block, static_cast<std::size_t>(bytes));
            next_line();
            read_more();
        } else if (bytes == 0 && (handling_ || sending_.in_flight) && !client_has_gone()) {
            return;
        } else if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
            inside_.reactor.poll_readable(reading_, fd_);
        } else {
            end();
        }
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
        output_.clear();
        timer_.disarm();
        if (end_after_answer_) return end();
        next_line();
    }

    Inside& inside_;
    const ConnectionId id_;
    const int fd_;
    ReadOperation reading_;
    SendOperation sending_;
    rtrs::Timer timer_{inside_.reactor, this,
                       [](void* self) { static_cast<Connection*>(self)->end(); }};
    std::string input_;
    std::size_t searched_ = 0;
    std::string output_;
    std::size_t sent_ = 0;
    iovec piece_{};
    msghdr message_{};
    bool handling_ = false;
    bool end_after_answer_ = false;
    bool ending_ = false;
    bool left_ = false;
};

void ControlServer::Inside::accept_all() {
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
        const ConnectionId id{++connections_ever};
        const auto added = connections.emplace(id, std::make_unique<Connection>(*this, id, fd));
        added.first->second->start();
    }
}

void ControlServer::Inside::handle(Connection& connection, std::string_view line) {
    auto request = parse_control_request(line);
    if (!request) return connection.answer(emit_control_failure(request.error()));
    const auto command = commands.find(request->command);
    if (command == commands.end()) {
        std::string known;
        for (const auto& [name, handler] : commands) known += (known.empty() ? "" : ", ") + name;
        return connection.answer(emit_control_failure(
            {ControlError::unknown_command, fmt::format("this daemon's commands are: {}", known)}));
    }
    ConnectionId id{};
    for (const auto& [key, value] : connections)
        if (value.get() == &connection) id = key;
    auto target = std::make_unique<ControlReply::Target>(ControlReply::Target{alive, id});
    command->second(*request->arguments, ControlReply(std::move(target)));
}

void ControlServer::Inside::forget(ConnectionId id) {
    connections.erase(id);
    close_when_empty();
}

void ControlServer::Inside::close_when_empty() {
    if (!closing || closed_posted || accepting.in_flight || !connections.empty()) return;
    closed_posted = true;
    ::close(std::exchange(listen_fd, -1));
    reactor.post([done = std::move(closed)] { done(); });
}

ControlServer::ControlServer(std::unique_ptr<Inside> inside) noexcept
    : inside_(std::move(inside)) {}

ControlServer::~ControlServer() { RTRS_ASSERT(inside_->closed_posted); }

std::expected<std::unique_ptr<ControlServer>, std::error_code> ControlServer::create(
    rtrs::Reactor& reactor, ControlServerOptions options) {
    const auto fd = while_in_use(options.in_use_patience,
                                 [&] { return listen_on_unix(options.socket_path, socket_mode); });
    if (!fd) return std::unexpected(fd.error());
    auto inside = std::make_unique<Inside>(reactor, std::move(options), *fd);
    inside->wait_for_connections();
    return std::unique_ptr<ControlServer>(new ControlServer(std::move(inside)));
}

void ControlServer::add_command(std::string name, Handler handler) {
    inside_->commands.insert_or_assign(std::move(name), std::move(handler));
}

void ControlServer::close(std::function<void()> closed) {
    RTRS_ASSERT(!inside_->closing);
    inside_->closing = true;
    inside_->closed = std::move(closed);
    inside_->accept_again.disarm();
    inside_->socket_file.remove();
    if (inside_->accepting.in_flight) inside_->reactor.cancel(inside_->accepting);
    for (const auto& [id, connection] : inside_->connections) connection->end_politely();
    inside_->close_when_empty();
}

// --- ControlReply ---

ControlReply::ControlReply(std::unique_ptr<Target> target) noexcept : target_(std::move(target)) {}
ControlReply::ControlReply(ControlReply&& other) noexcept = default;

ControlReply::~ControlReply() {
    if (target_) fail(ControlError::failed, "the daemon gave no answer to this command");
}

void ControlReply::succeed(const json& result) { answer(emit_control_result(result)); }

void ControlReply::fail(ControlError code, std::string message) {
    answer(emit_control_failure({code, std::move(message)}));
}

void ControlReply::fail(const ControlFailure& failure) { answer(emit_control_failure(failure)); }

void ControlReply::answer(std::string line) {
    RTRS_ASSERT(target_ != nullptr);
    const auto target = std::exchange(target_, nullptr);
    const auto server = target->server.lock();
    if (!server) return;
    const auto found = (*server)->connections.find(target->connection);
    if (found != (*server)->connections.end()) found->second->answer(std::move(line));
}

}  // namespace rnbd
