// The daemon's control socket: JSON lines on a Unix socket (docs/reference/control-protocol.md).
//
//   auto control = ControlServer::create(reactor, "/run/rnbd/server.ctl");
//   (*control)->add_command("status", [&](const nlohmann::json& arguments, ControlReply reply) {
//       reply.succeed(status_document());   // now or later
//   });
//   (*control)->close([&] { ... });         // then destroy it
//
// The socket has mode 0600: only the daemon's user may use it. Requests of a connection are handled
// one at a time, in order. A client that sends nonsense, too much, or nothing for idle_time, or
// that does not take its answer, loses its own connection and affects nothing else.
//
// THREAD: the reactor's (rtrs/reactor.h). OWNER: the daemon.
// LIFE: create() -> close() -> closed() -> destroyed.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <system_error>

#include "daemon/control/protocol.h"
#include "daemon/sockets/in_use.h"
#include "rtrs/reactor.h"

namespace rnbd {

class ControlServer;

// The right and the duty to answer one request, once. If it is destroyed without an answer, it
// reports "failed". It may outlive the connection and the server; then the answer is dropped.
class ControlReply {
  public:
    ControlReply(ControlReply&& other) noexcept;
    ControlReply& operator=(ControlReply&&) = delete;
    ~ControlReply();

    void succeed(const nlohmann::json& result);
    // line: from emit_control_result_text(), for what is too much for a document.
    void succeed_with(std::string line);
    void fail(ControlError code, std::string message);
    void fail(const ControlFailure& failure);

  private:
    friend class ControlServer;
    struct Target;
    explicit ControlReply(std::unique_ptr<Target> target) noexcept;
    void answer(std::string line);
    std::unique_ptr<Target> target_;
};

struct ControlServerOptions {
    std::string socket_path;
    // How many connections there may be at a time, 1..1000. One more takes the place of the oldest
    // connection without a request under way, or whose answer is left unread for 2 s; if there is
    // none, the new one is closed.
    std::uint32_t connections_max = 64;
    // How long a connection may be silent between requests, or leave its answer unread.
    rtrs::Duration idle_time = std::chrono::seconds(60);
    // How long create() waits for the path while another process listens there.
    rtrs::Duration in_use_timeout = rnbd::in_use_timeout;
};

class ControlServer {
  public:
    // Replaces a socket file that nobody listens on; makes its directory if that is absent (mode
    // 0755). Blocks while somebody listens there, at most for in_use_timeout.
    // ERRORS: EADDRINUSE (another daemon listens there), EEXIST (the path is not a socket),
    // ENAMETOOLONG, EACCES, EROFS, ...
    static std::expected<std::unique_ptr<ControlServer>, std::error_code> create(
        rtrs::Reactor& reactor, ControlServerOptions options);
    ~ControlServer();  // ASSUMES: closed() was delivered
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

    // arguments: valid only during the call. add_command() may be called before and between
    // requests.
    using Handler = std::function<void(const nlohmann::json& arguments, ControlReply reply)>;
    void add_command(std::string name, Handler handler);
    // A command that takes no arguments: with any it fails with bad_arguments.
    using PlainHandler = std::function<void(ControlReply reply)>;
    void add_command(std::string name, PlainHandler handler);

    // If others have removed the socket's file, makes it anew and returns true. Connections stay.
    // ERRORS: as create(); then the old socket stays.
    std::expected<bool, std::error_code> listen_again();

    // Removes the socket, sends the answers that were already given (for a second at most), and
    // then drops every connection, answered or not. closed() comes in a later turn.
    void close(std::function<void()> closed);
    // Only removes the socket's file; for a daemon that ends at once without close().
    void remove_file() noexcept;

  private:
    friend class ControlReply;
    struct Inside;
    explicit ControlServer(std::unique_ptr<Inside> inside) noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rnbd
