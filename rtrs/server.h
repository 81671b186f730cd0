// The server's half of RTRS: accepts sessions and hands their requests to the layer above.
//
//   class Target : public ServerHandler {
//       void on_request(ServerOp& op) override { ... op.respond(...); }
//   };
//   Server server(environment, options, target);
//   server.listen(fabric, "0.0.0.0:1235");
//   server.close();   // on_closed() when the last operation was answered and all is drained
//
// THREAD: the reactor's (reactor.h), on which its clock and fabrics run too, or the simulator's.
// Handlers are called on that thread, one at a time.
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
#include "rtrs/base/error.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/uuid.h"
#include "rtrs/fabric.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/limits.h"
#include "rtrs/messages.h"
#include "rtrs/session_terms.h"

namespace rtrs {

class Server;
class ServerSession;

// One request at the server, from on_request() until respond(), which must be called exactly once
// for each. If the path has died meanwhile, the answer goes nowhere, but respond() must be called
// all the same.
class ServerOp {
  public:
    ServerSession& session() const noexcept { return *session_; }
    PermitId permit() const noexcept { return permit_; }
    Direction direction() const noexcept { return direction_; }
    // A private copy: the peer cannot change it any more.
    Bytes message() const noexcept { return message_; }
    // write: the payload; read: where the answer is to be put. Page aligned. With always_invalidate
    // on, the peer cannot write into it until respond().
    MutableBytes data() const noexcept { return data_; }
    // For a read, before anything was put into data(): replaces data() by one of a few answer
    // buffers. These stay in the processor's cache, where the chunks of many large reads would
    // evict each other. The peer can never write into an answer buffer, which is not part of the
    // chunk. False: no buffer is free, or the fabric gains nothing by them; data() is unchanged.
    bool use_answer_buffer();
    // A pointer for the layer above that belongs to the chunk: null at the chunk's first request,
    // kept from then on until on_chunk_gone(). data() of one chunk begins at the same address each
    // time, except for operations that use_answer_buffer().
    void*& chunk_context() const noexcept;

    // error: empty, or the error that the peer gets as an errno of at most 9 bits. produced_bytes
    // (read only): how much of data() goes to the peer.
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

// listen() returns EINVAL for values out of range.
struct ServerOptions {
    // Number and size of the chunks of a session; limits::geometry_possible() says which
    // combinations are allowed.
    std::uint32_t queue_depth = limits::queue_depth_default;
    std::uint32_t chunk_bytes = limits::io_bytes_default + limits::header_bytes_default;
    // The part of a chunk that is kept for messages, at least limits::header_bytes_default; max_io
    // = chunk - header.
    std::uint32_t header_bytes = limits::header_bytes_default;
    bool always_invalidate = true;  // revoke a chunk's key while its request is served
    Duration heartbeat_interval = heartbeat_interval_default;  // positive, as all durations
    Duration heartbeat_timeout = heartbeat_timeout_default;    // longer than the interval
    // Replaces heartbeat_timeout, if longer, for clients without sequence numbers, such as a
    // kernel's.
    Duration kernel_heartbeat_timeout = rtrs::kernel_heartbeat_timeout;
    // The longest time from one connection of a path to the next, and from the last one to the INFO
    // request. A kernel client makes its connections one after the other, and waits as long for
    // each.
    Duration half_open_timeout = std::chrono::seconds(30);
    std::uint32_t sessions_max = 4096;  // at least 1; returning sessions may exceed it by an eighth
    Protection protection = Protection::exactly_once;  // with clients that support it
    std::optional<MessageOptions> messages{};  // with clients that support them; none: not offered
};

// Requests of one path since it was accepted; the bytes include the user messages.
struct ServerPathCounters {
    std::uint64_t reads = 0, read_bytes = 0;
    std::uint64_t writes = 0, write_bytes = 0;
};

// An address at which the server listens for sessions.
struct PortalOptions {
    // Chosen by the layer above to identify the portal.
    std::uint32_t id = 0;
    // extended: only those with one of our extensions, which a kernel's client does not have.
    enum class Clients : std::uint8_t { any, extended };
    Clients clients = Clients::any;
    // as_server: as ServerOptions::always_invalidate says. if_possible: the same, until the windows
    // of a path cannot be bound; from then on, as with never, keys are not invalidated. These two
    // are for fabrics without windows.
    enum class Invalidate : std::uint8_t { as_server, if_possible, never };
    Invalidate invalidate = Invalidate::as_server;
};

// A path that has connected and has said which session it belongs to.
struct Arrival {
    std::string_view session;  // its name
    std::string host;          // of the client
    std::uint32_t portal = 0;
};

struct ServerPathStatus {
    std::string id;  // unique; a reconnect makes a new path
    std::string local, remote, fabric, state;
    std::string device;              // the fabric's device; empty if it has none
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
    // Extensions in force on all paths (docs/reference/wire-tags.md, wire-failover.md).
    bool messages = false;
    bool connection_heartbeats = false;
    std::uint64_t stale = 0;     // late attempts that were refused
    std::uint64_t answered = 0;  // retries that were answered without running again
    std::uint64_t waited = 0;    // attempts that waited for an earlier one
    std::vector<ServerPathStatus> paths;
};

class ServerSession {
  public:
    const std::string& name() const noexcept { return name_; }
    const Uuid& id() const noexcept { return id_; }
    // The client's "HOST" on the session's first path.
    const std::string& peer_host() const noexcept { return peer_host_; }
    // The portal of the session's first path.
    std::uint32_t portal() const noexcept { return portal_; }
    std::uint32_t queue_depth() const noexcept;
    std::uint32_t max_io_bytes() const noexcept;
    // Size of the chunk of one permit on one path: no less than ServerOp::data() can be long.
    std::uint32_t chunk_bytes() const noexcept;
    // How the session is protected against late attempts; fenced before the first path.
    Protection protection() const noexcept;
    ServerSessionStatus status() const;
    // Whether a path is up. Without one the session may still exist, until its operations have
    // ended.
    bool connected() const noexcept;
    // Null if the client or the options do not want messages. Usable from on_session_up until
    // on_session_down.
    MessageService* messages() noexcept;
    // For use by the layer above.
    void* context = nullptr;
    // Ends the session from this side; the reason goes to the log.
    void close(std::string_view reason);
    // Ends the path with this id (ServerPathStatus::id); the client may reconnect it. False: no
    // such path.
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
    // Called before anything else that a path brings. Return an error to turn the path away.
    virtual std::error_code on_path(const Arrival& arrival) {
        static_cast<void>(arrival);
        return {};
    }
    // The session's first path is up, and the session's name is known. Return an error to turn the
    // session away.
    virtual std::error_code on_session_up(ServerSession& session) = 0;
    virtual void on_request(ServerOp& op) = 0;
    // A path is gone, and with it a chunk whose chunk_context() was set.
    virtual void on_chunk_gone(void* chunk_context) { static_cast<void>(chunk_context); }
    // The last path is gone and every operation has been answered: what the session had open can be
    // closed.
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
    // Stops listening on the portal with this id, if there is one. Paths that came through it stay.
    // Must not be called from inside a handler.
    void stop_listening(std::uint32_t portal) noexcept;
    // Stops listening, lets operations finish, sends their answers, then closes all sessions.
    void close();
    std::vector<ServerSession*> sessions() const;

  private:
    friend class ServerSession;
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
