// The server's half of RTRS: accepts sessions and hands their requests to the layer above.
//
//   class Target : public ServerHandler {
//       void on_request(ServerOp& op) override { ... op.respond(...); }
//   };
//   Server server(environment, options, target);
//   server.listen(fabric, "0.0.0.0:1235");
//   server.close();   // on_closed() when the last operation was answered and all is drained
//
// THREAD: the reactor's (reactor.h), that of its clock and fabrics, or the simulator's. Handlers
// are called on it, one at a time.
// Life of a session: it begins with the first connection of an unknown paths_uuid and ends when its
// last path is gone and its operations have been answered.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rtrs/base/bytes.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/error.h"
#include "rtrs/base/random.h"
#include "rtrs/base/uuid.h"
#include "rtrs/client.h"
#include "rtrs/fabric.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/limits.h"
#include "rtrs/messages.h"
#include "rtrs/trace.h"

namespace rtrs {

class Server;
class ServerSession;

// One request at the server: from on_request until respond(), which every one gets exactly once.
// Answers of a path that has died meanwhile go nowhere, but must be given all the same.
class ServerOp {
  public:
    ServerSession& session() const noexcept { return *session_; }
    PermitId permit() const noexcept { return permit_; }
    Direction direction() const noexcept { return direction_; }
    // A private copy: the peer cannot change it any more.
    Bytes message() const noexcept { return message_; }
    // write: the payload; read: where the answer is to be put. Page aligned. The peer cannot write
    // into it until respond() if always_invalidate is on.
    MutableBytes data() const noexcept { return data_; }
    // read, before anything was put into data(): data() is one of few buffers from here on, which
    // the processor has in its cache, where the chunks of many large reads would push each other
    // out. The peer can never write into it, and it is no part of the chunk. False: none is free,
    // or the fabric gains nothing by them; data() stays what it is.
    bool use_answer_buffer();
    // Likewise, but with the chunk: null at its first request, kept from then on until
    // on_chunk_gone(). data() of one chunk begins at the same address each time, but for those that
    // use_answer_buffer().
    void*& chunk_context() const noexcept;

    // error: empty, or what the peer is told as an errno of at most 9 bits. produced_bytes (read
    // only): how much of data() goes to the peer.
    void respond(std::error_code error, std::uint32_t produced_bytes = 0);

  private:
    friend class ServerPath;
    ServerSession* session_ = nullptr;
    void* slot_ = nullptr;
    PermitId permit_{};
    Direction direction_ = Direction::write;
    Bytes message_{};
    MutableBytes data_{};
};

// What is out of range is EINVAL of listen().
struct ServerOptions {
    // Chunks per session, and their size: limits::geometry_possible() says which go together.
    std::uint32_t queue_depth = limits::queue_depth_default;
    std::uint32_t chunk_bytes = limits::io_bytes_default + limits::header_bytes_default;
    // Of a chunk, for messages, at least limits::header_bytes_default; max_io = chunk - header.
    std::uint32_t header_bytes = limits::header_bytes_default;
    bool always_invalidate = true;  // revoke a chunk's key while its request is served
    Duration heartbeat_interval = heartbeat_interval_default;  // positive, as all durations
    Duration heartbeat_timeout = heartbeat_timeout_default;    // longer than the interval
    // Of clients without sequences, as a kernel's, if that is more.
    Duration kernel_heartbeat_timeout = rtrs::kernel_heartbeat_timeout;
    // From each connection of a path to the next, and from the last to the INFO request. A kernel
    // makes them one after the other, with as much patience for each.
    Duration half_open_timeout = std::chrono::seconds(30);
    std::uint32_t sessions_max = 4096;  // at least 1; an eighth more for those that return
    Protection protection = Protection::exactly_once;  // with clients that can
    std::optional<MessageOptions> messages{};          // with clients that can; none: not offered
};

// Requests of one path since it was accepted; bytes with the user messages.
struct ServerPathCounters {
    std::uint64_t reads = 0, read_bytes = 0;
    std::uint64_t writes = 0, write_bytes = 0;
};

// An address where sessions come in.
struct PortalOptions {
    // Whatever the layer above wants to know it by.
    std::uint32_t id = 0;
    // extended: only those with the failover extension, which a kernel's client does not have.
    enum class Clients : std::uint8_t { any, extended };
    Clients clients = Clients::any;
    // if_possible: as ServerOptions::always_invalidate says, until a path cannot have its windows
    // bound; then, and with never, not at all. For fabrics without windows.
    enum class Invalidate : std::uint8_t { as_server, if_possible, never };
    Invalidate invalidate = Invalidate::as_server;
};

// A path that has been connected and says whose it is.
struct Arrival {
    std::string_view session;  // its name
    std::string host;          // where it comes from
    std::uint32_t portal = 0;
};

struct ServerPathStatus {
    std::string id;  // of this path alone: a reconnect makes a new one
    std::string local, remote, fabric, state;
    std::string device;              // the fabric's, empty if it has none
    bool always_invalidate = false;  // in force on this path
    Instant since{};
    Instant last_received{};
    std::uint32_t connections = 0;
    ServerPathCounters counters{};
};

struct ServerSessionStatus {
    std::string name;
    std::string id;    // paths_uuid
    std::string peer;  // address of the first path
    Instant since{};
    std::uint32_t queue_depth = 0;
    std::uint32_t max_io_bytes = 0;
    std::uint32_t in_flight = 0;
    Protection protection = Protection::fenced;
    std::uint64_t stale = 0;     // late attempts that were refused
    std::uint64_t answered = 0;  // retries that were answered without running again
    std::uint64_t waited = 0;    // attempts that waited for an earlier one
    std::vector<ServerPathStatus> paths;
};

class ServerSession {
  public:
    const std::string& name() const noexcept { return name_; }
    const Uuid& id() const noexcept { return id_; }
    // "HOST" of the path on which it came first.
    const std::string& peer_host() const noexcept { return peer_host_; }
    // By which it came first.
    std::uint32_t portal() const noexcept { return portal_; }
    std::uint32_t queue_depth() const noexcept;
    std::uint32_t max_io_bytes() const noexcept;
    // Of one permit on one path: the longest that ServerOp::data() can be, and more.
    std::uint32_t chunk_bytes() const noexcept;
    // What guards it against late attempts; fenced before the first path.
    Protection protection() const noexcept;
    ServerSessionStatus status() const;
    // A path is up. Without one it may still be there, until its operations have ended.
    bool connected() const noexcept;
    // Null if the client or the options do not want messages. Usable from on_session_up until
    // on_session_down.
    MessageService* messages() noexcept;
    // For the layer above.
    void* context = nullptr;
    // Ends the session from this side; reason goes to the log.
    void close(std::string_view reason);
    // Ends one path, by its id in the status; the client may come back on it. False: no such path.
    bool close_path(std::string_view id, std::string_view reason);

    ~ServerSession();

  private:
    friend class Server;
    struct Inside;
    explicit ServerSession(std::unique_ptr<Inside> inside);
    std::unique_ptr<Inside> inside_;
    std::string name_;
    Uuid id_;
    std::string peer_host_;
    std::uint32_t portal_ = 0;
};

class ServerHandler {
  public:
    // Before anything else that a path brings. Return an error to turn it away.
    virtual std::error_code on_path(const Arrival& arrival) {
        static_cast<void>(arrival);
        return {};
    }
    // The session's first path is up; it is known by name now. Return an error to turn it away.
    virtual std::error_code on_session_up(ServerSession& session) = 0;
    virtual void on_request(ServerOp& op) = 0;
    // A path is gone, and with it a chunk that has a context.
    virtual void on_chunk_gone(void* chunk_context) { static_cast<void>(chunk_context); }
    // The last path is gone and every operation has been answered: what it had open can be closed.
    virtual void on_session_down(ServerSession& session) = 0;
    // After Server::close().
    virtual void on_closed() = 0;

  protected:
    ~ServerHandler() = default;
};

class Server {
  public:
    Server(SessionEnvironment environment, ServerOptions options, ServerHandler& handler);
    ~Server();  // ASSUMES: on_closed was delivered, or nothing was ever listened to
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // May be called for several fabrics and addresses. Returns the bound address. ERRORS: EINVAL
    // (the server's options, or the address), and as Fabric::listen().
    std::expected<std::string, std::error_code> listen(Fabric& fabric, const std::string& address,
                                                       const PortalOptions& portal = {});
    // Of the portal with this id, if it listens. Paths that came by it stay. Not from inside a
    // handler's call.
    void stop_listening(std::uint32_t portal) noexcept;
    // Stops listening, lets operations finish and answers them, then closes all sessions.
    void close();
    std::vector<ServerSession*> sessions() const;

  private:
    friend class ServerSession;
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
