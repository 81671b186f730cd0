#include "daemon/control/server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/control/arguments.h"
#include "daemon/sockets/stream_server.h"
#include "daemon/sockets/unix_listener.h"
#include "rtrs/base/assert.h"

namespace rnbd {

using nlohmann::json;

namespace {

// How long the daemon's end waits for a client to take its answer.
constexpr std::chrono::seconds farewell_time{1};

// Of empty lines that one turn passes over: a megabyte of newlines holds up nobody.
constexpr std::size_t empty_bytes_a_turn = 16u << 10;

constexpr mode_t socket_mode = 0600;

}  // namespace

struct ControlServer::Inside {
    class Connection;

    Inside(rtrs::Reactor& loop, ControlServerOptions given, rtrs::Descriptor listener)
        : options(std::move(given)),
          socket_file(options.socket_path),
          streams(loop, std::move(listener), options.connections_max,
                  [this](const StreamConnection::Accepted& accepted) { return make(accepted); }) {}

    std::unique_ptr<StreamConnection> make(const StreamConnection::Accepted& accepted);
    void handle(Connection& connection, std::string_view line);
    // Null: it has gone.
    Connection* find(StreamConnection::Id id) const;

    ControlServerOptions options;
    UnixSocketFile socket_file;
    std::map<std::string, Handler, std::less<>> commands;
    StreamServer streams;
    // Replies hold it weakly: the server's end is known to them.
    std::shared_ptr<Inside*> alive = std::make_shared<Inside*>(this);
};

struct ControlReply::Target {
    std::weak_ptr<ControlServer::Inside*> server;
    StreamConnection::Id connection;
};

// One client. States by what is pending: reading (waiting for a line), handling (a command has not
// answered yet), sending (the answer is on its way), ended.
class ControlServer::Inside::Connection final : public StreamConnection {
  public:
    Connection(Inside& inside, const Accepted& accepted)
        : StreamConnection(accepted), inside_(inside) {}

    void begin() override { next_line(); }

    void answer(std::string line) {
        if (ended() || !handling_) return;
        handling_ = false;
        limit_time(inside_.options.idle_time);
        send(std::move(line += '\n'));
    }

    // What is being sent may go out first.
    void farewell() override {
        if (!sending()) return end();
        end_after_answer_ = true;
        limit_time(farewell_time);
    }

  private:
    // Handles a line that is complete already, or waits for more bytes.
    void next_line() {
        if (ended() || handling_ || sending() || later_) return;
        const std::size_t enough = handled_ + empty_bytes_a_turn;
        while (handled_ < enough) {
            const auto newline = input_.find('\n', searched_);
            if (newline == std::string::npos) return wait_for_line();
            const std::string line = input_.substr(handled_, newline - handled_);
            handled_ = searched_ = newline + 1;
            if (line.find_first_not_of(" \t\r") != std::string::npos) return handle(line);
        }
        next_line_later();
    }

    void handle(const std::string& line) {
        handling_ = true;
        unlimit_time();
        inside_.handle(*this, line);
        // Nobody may be left to hear the answer: a place is not kept for one that has gone.
        if (handling_ && !ended()) read_more();
    }

    void wait_for_line() {
        searched_ = input_.size();
        if (room() == 0) return refuse_long_line();
        if (!time_is_limited()) limit_time(inside_.options.idle_time);
        read_more();
    }

    std::size_t room() const noexcept {
        return control_request_bytes_max - (input_.size() - handled_);
    }

    void read_more() {
        if (room() > 0) await_readable();
    }

    // What is left moves to the front when that is the smaller part, so that no byte moves often.
    void drop_handled() {
        if (handled_ <= input_.size() / 2) return;
        input_.erase(0, handled_);
        searched_ -= handled_;
        handled_ = 0;
    }

    // A client may say with shutdown() that it asks nothing more, and wait for its answer.
    bool client_has_gone() const {
        pollfd look{fd(), 0, 0};
        return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
    }

    void next_line_later() {
        later_ = true;
        inside_.streams.reactor().post([alive = std::weak_ptr(inside_.alive), id = id()] {
            const auto server = alive.lock();
            if (!server) return;
            Connection* const connection = (*server)->find(id);
            if (connection == nullptr) return;
            connection->later_ = false;
            connection->next_line();
        });
    }

    void refuse_long_line() {
        handling_ = true;
        end_after_answer_ = true;
        answer(emit_control_failure(
            {ControlError::bad_request,
             fmt::format("a request is one line of at most {} bytes", control_request_bytes_max)}));
    }

    void on_readable() override {
        char block[64u << 10];
        const ssize_t bytes = ::recv(fd(), block, std::min(room(), sizeof block), MSG_DONTWAIT);
        if (bytes > 0) {
            drop_handled();
            input_.append(block, static_cast<std::size_t>(bytes));
            next_line();
            read_more();
        } else if (bytes == 0 && (handling_ || sending()) && !client_has_gone()) {
            return;
        } else if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
            await_readable();
        } else {
            end();
        }
    }

    bool is_idle() const override { return !handling_ && !sending(); }

    void on_sent() override {
        unlimit_time();
        if (end_after_answer_) return end();
        next_line();
    }

    Inside& inside_;
    std::string input_;
    std::size_t handled_ = 0;   // of input_
    std::size_t searched_ = 0;  // without a newline, from handled_ on
    bool handling_ = false;
    bool later_ = false;  // empty lines go on in a coming turn
    bool end_after_answer_ = false;
};

std::unique_ptr<StreamConnection> ControlServer::Inside::make(
    const StreamConnection::Accepted& accepted) {
    return std::make_unique<Connection>(*this, accepted);
}

ControlServer::Inside::Connection* ControlServer::Inside::find(StreamConnection::Id id) const {
    return static_cast<Connection*>(streams.find(id));
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
    auto target =
        std::make_unique<ControlReply::Target>(ControlReply::Target{alive, connection.id()});
    command->second(*request->arguments, ControlReply(std::move(target)));
}

ControlServer::ControlServer(std::unique_ptr<Inside> inside) noexcept
    : inside_(std::move(inside)) {}

ControlServer::~ControlServer() = default;

std::expected<std::unique_ptr<ControlServer>, std::error_code> ControlServer::create(
    rtrs::Reactor& reactor, ControlServerOptions options) {
    auto listener = while_in_use(options.in_use_timeout, [&] {
        return listen_on_unix_in_folder(options.socket_path, socket_mode);
    });
    if (!listener) return std::unexpected(listener.error());
    auto inside = std::make_unique<Inside>(reactor, std::move(options), std::move(*listener));
    return std::unique_ptr<ControlServer>(new ControlServer(std::move(inside)));
}

void ControlServer::add_command(std::string name, Handler handler) {
    inside_->commands.insert_or_assign(std::move(name), std::move(handler));
}

void ControlServer::add_command(std::string name, PlainHandler handler) {
    add_command(std::move(name),
                [handler = std::move(handler)](const nlohmann::json& given, ControlReply reply) {
                    ControlArguments arguments(given);
                    if (const auto failure = arguments.failure()) return reply.fail(*failure);
                    handler(std::move(reply));
                });
}

std::expected<bool, std::error_code> ControlServer::listen_again() {
    if (inside_->socket_file.is_there()) return false;
    auto listener = listen_on_unix_in_folder(inside_->options.socket_path, socket_mode);
    if (!listener) return std::unexpected(listener.error());
    inside_->socket_file = UnixSocketFile(inside_->options.socket_path);
    inside_->streams.listen_on(std::move(*listener));
    return true;
}

void ControlServer::remove_file() noexcept { inside_->socket_file.remove(); }

void ControlServer::close(std::function<void()> closed) {
    inside_->socket_file.remove();
    inside_->streams.close(std::move(closed));
}

// --- ControlReply ---

ControlReply::ControlReply(std::unique_ptr<Target> target) noexcept : target_(std::move(target)) {}
ControlReply::ControlReply(ControlReply&& other) noexcept = default;

ControlReply::~ControlReply() {
    if (target_) fail(ControlError::failed, "the daemon gave no answer to this command");
}

void ControlReply::succeed(const json& result) { answer(emit_control_result(result)); }

void ControlReply::succeed_with(std::string line) { answer(std::move(line)); }

void ControlReply::fail(ControlError code, std::string message) {
    answer(emit_control_failure({code, std::move(message)}));
}

void ControlReply::fail(const ControlFailure& failure) { answer(emit_control_failure(failure)); }

void ControlReply::answer(std::string line) {
    RTRS_ASSERT(target_ != nullptr);
    const auto target = std::exchange(target_, nullptr);
    const auto server = target->server.lock();
    if (!server) return;
    if (auto* const connection = (*server)->find(target->connection)) {
        connection->answer(std::move(line));
    }
}

}  // namespace rnbd
