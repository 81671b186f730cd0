// The client's half of RTRS: a session to one server over one or more paths.
//
//   ClientSession session(environment, options, handler);
//   session.open();                            // on_link_up() when the first path is up
//   if (auto permit = session.try_take()) {    // the right to one request, with its memory
//       fill permit->payload();
//       session.submit(std::move(*permit), request);   // request.responded(), once, in any case
//   }
//   session.close();                           // on_closed() when nothing is left
//
// THREAD: the reactor's (reactor.h), that of its clock and fabrics, or the simulator's. Callbacks
// come on it, one at a time.
// A request is answered exactly once: by the server, or with an error after the hold time or close.
// A request whose path is lost goes on on another one; the server runs it once (Protection). While
// no path is up, requests are held; when a path comes up again the owner decides per request
// (on_link_up) with resume() or fail(), since ids inside its message may have changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rtrs/base/bytes.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/error.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/latency_histogram.h"
#include "rtrs/base/random.h"
#include "rtrs/base/uuid.h"
#include "rtrs/fabric.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/limits.h"
#include "rtrs/messages.h"
#include "rtrs/path_policy.h"
#include "rtrs/trace.h"

namespace rtrs {

class ClientSession;

// Index of a permit, of its chunk at the server and of its request: 0 .. queue_depth - 1.
enum class PermitId : std::uint32_t {};

// The right to one outstanding request and the memory for it. Move-only; goes home when destroyed.
class Permit {
  public:
    Permit() noexcept = default;
    Permit(Permit&& other) noexcept;
    Permit& operator=(Permit&& other) noexcept;
    ~Permit();

    explicit operator bool() const noexcept { return session_ != nullptr; }
    PermitId id() const noexcept { return id_; }
    // Page aligned, max_io_bytes long, registered: payload of writes, target of reads. Kept from
    // take to return; the content is undefined at first.
    MutableBytes payload() const noexcept;

  private:
    friend class ClientSession;
    Permit(ClientSession& session, PermitId id) noexcept : session_(&session), id_(id) {}
    ClientSession* session_ = nullptr;
    PermitId id_{};
};

enum class Direction : std::uint8_t { read, write };

// One request. The message is copied during submit(); the payload is the permit's.
struct ClientRequest {
    Direction direction = Direction::write;
    Bytes message{};                  // the user message, at most user_message_bytes_max
    std::uint32_t payload_bytes = 0;  // sent (write) or expected (read), <= max_io_bytes
    // Called exactly once, never from inside submit(). The permit is the caller's again.
    using Responded = void (*)(void* context, Permit permit, std::error_code error);
    Responded responded = nullptr;
    void* context = nullptr;
};

// Waits for permits in first-come order (take_or_wait).
struct PermitWaiter : ListLink {
    using Granted = void (*)(PermitWaiter& waiter);
    explicit PermitWaiter(Granted handler) noexcept : granted(handler) {}
    std::uint32_t count = 0;
    std::span<Permit> permits{};  // filled before granted() is called
    Granted granted;
};

enum class PathState : std::uint8_t {
    idle,
    connecting,
    exchanging,
    connected,
    draining,
    backoff,
    closing,
    closed
};
const char* to_string(PathState state) noexcept;

// What keeps a late attempt of a request from landing after newer data.
enum class Protection : std::uint8_t {
    // The peer has no sequences (a kernel): a lost path's requests wait until the peer has finished
    // with that path, which it says over another one, or by accepting the same one again.
    fenced,
    // Every attempt carries a sequence: the server runs each request once, on whichever path.
    exactly_once
};
const char* to_string(Protection protection) noexcept;

struct PathAddress {
    Fabric* fabric = nullptr;  // outlives the session
    std::string source;        // "HOST" or empty
    std::string destination;   // "HOST:PORT"
    PathPriority priority = PathPriority::prefer;
    // Names the path in operations; empty: "SOURCE@HOST:PORT" or "HOST:PORT".
    std::string label{};
    // Of its first connection, as EndpointOptions has it; the others have the numbers after it.
    std::uint32_t worker = 0;
};

// Durations are positive if nothing else is said; what is out of range is EINVAL of open().
struct ClientSessionOptions {
    std::string name;                  // 1..254 bytes, no '/' and no '.'
    std::vector<PathAddress> paths;    // 1..limits::paths_max
    std::uint32_t io_connections = 1;  // per path, beside the service connection; 1..64
    // A whole path: dial to INFO response. At first for a fifth of it only the first is dialled.
    Duration connect_timeout = std::chrono::seconds(5);
    Duration heartbeat_interval = heartbeat_interval_default;
    // Silence after which a path is dead; longer than the interval.
    Duration heartbeat_timeout = heartbeat_timeout_default;
    Duration reconnect_delay_min = std::chrono::milliseconds(10);  // doubled per failed attempt
    Duration reconnect_delay_max = std::chrono::seconds(1);        // each delay is jittered
    std::optional<std::uint32_t> reconnect_attempts_max;           // none: for ever
    // How long requests wait for a path, from the last one's loss on; none: for ever, 0: not.
    std::optional<Duration> hold_time;
    // How long without any path new requests are still accepted to wait, at most hold_time; none:
    // as hold_time, 0: not at all.
    std::optional<Duration> fail_fast_time;
    // At most so long beside that, of what was lost before it was set from then on.
    struct HoldLimit {
        Duration time{};
        Instant set_at{};
    };
    std::optional<HoldLimit> hold_limit;
    // When what has been lost since then has waited for long enough. None: never.
    std::optional<Instant> hold_until(Instant lost) const noexcept;
    std::optional<Instant> fail_fast_until(Instant lost) const noexcept;
    // Of what is lost now.
    std::optional<Duration> longest_hold() const noexcept;
    std::optional<Duration> longest_fail_fast() const noexcept;
    // A request that is unanswered for so long has its path probed: it is dead if it stays silent
    // for probe_timeout, or for heartbeat_timeout if that is less. A slow answer alone never ends
    // a path.
    Duration request_deadline = std::chrono::seconds(2);
    Duration probe_timeout = std::chrono::milliseconds(1250);
    PathPolicy policy = PathPolicy::min_inflight;
    // Of the machine that the client runs on, the same after it came back; 0: none. With it a
    // server knows whose session a newcomer of the same name takes over.
    std::uint64_t identity = 0;
    // Which life of the client it is: greater is newer, e.g. milliseconds since the epoch at its
    // start; 0: not said. An older one never takes over from a newer one. Below 2^56.
    std::uint64_t life = 0;
    Protection protection = Protection::exactly_once;  // with servers that can
    std::optional<MessageOptions> messages{};          // with servers that can; none: not wanted
};

struct SessionEnvironment {
    Clock& clock;
    Random& random;
    Tracer& tracer;
};

// What a path has done since it was made.
struct PathCounters {
    std::uint64_t sent = 0;         // attempts
    std::uint64_t completed = 0;    // answers
    std::uint64_t failed_over = 0;  // requests that it lost and others took
    std::uint64_t retried = 0;      // requests that it took from others, or again
    std::uint64_t stale = 0;        // attempts that the server refused as late
    std::uint64_t probes = 0;       // heartbeats ahead of time because an answer was late
    // Of `sent`, by direction; bytes with the user messages.
    std::uint64_t reads = 0, read_bytes = 0;
    std::uint64_t writes = 0, write_bytes = 0;
};

struct PathStatus {
    std::string label;  // names the path in operations: as in PathAddress
    std::string id;     // of this path alone, also if one of the same label comes after it
    std::string source, destination, fabric;
    std::string device;      // the fabric's, empty if it has none
    std::string local_host;  // where it was dialled from last, "HOST"; empty before it was accepted
    PathState state = PathState::idle;
    // Why it is not connected. If it is: empty, or what is not as it should be.
    std::string reason;
    std::error_code error;  // of the newest failure; kept when it is connected again
    Instant since{};        // of the state
    std::optional<Instant> next_attempt;
    std::optional<Instant> fails_at;    // connecting, exchanging: that attempt fails then
    std::uint32_t attempts = 0;         // failed ones since it was last connected
    std::uint64_t reconnects = 0;       // successful ones after the first
    std::uint64_t attempts_failed = 0;  // since it was made
    Duration latency{};                 // newest heartbeat round trip, 0 before the first
    std::optional<Instant> dead_at;     // connected: given up then, if nothing is received before
    PathPriority priority = PathPriority::prefer;
    std::uint32_t in_flight = 0;
    PathCounters counters{};
    // Of requests, from post to answer; 0 before the first.
    Duration latency_p50{}, latency_p99{}, latency_max{};
    LatencyHistogram latencies{};
};

// A request that is not answered yet.
struct RequestStatus {
    enum class Stage : std::uint8_t {
        in_flight,  // at the server, or on the way
        no_path,    // held: no path is connected
        owner,      // held: the link is back, its owner prepares it
        lost_path,  // held: until the server has finished with the path that it was lost with
        settling,   // until the server has said that older attempts are over
        failing,
    };
    PermitId permit{};
    Stage stage = Stage::in_flight;
    Direction direction = Direction::write;
    std::uint32_t payload_bytes = 0;
    std::uint32_t attempts = 0;
    std::uint64_t sequence = 0;
    Instant submitted{};
    Instant posted{};  // the newest attempt
    std::string path;  // label of the newest attempt's path, empty before the first
};
const char* to_string(RequestStatus::Stage stage) noexcept;

// What a session without a path lets nobody wait for any more, and since when.
enum class Refusing : std::uint8_t {
    nothing,
    after_fail_fast_time,  // new requests
    after_hold_time,       // all
    after_all_attempts,    // all: no path comes back by itself (on_given_up())
    taken_over,            // all, for good: a newer session has the name
};

struct ClientSessionStatus {
    bool link_up = false;
    Instant since{};
    std::string reason;
    std::uint32_t queue_depth = 0;  // 0 before the first path was up
    std::uint32_t max_io_bytes = 0;
    std::uint32_t permits_free = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t held = 0;
    std::uint32_t unsettled = 0;           // permits that wait until older attempts are over
    std::optional<Protection> protection;  // none: no path was up yet
    PathPolicy policy = PathPolicy::min_inflight;
    std::optional<Instant> hold_until;  // then requests fail
    Refusing refusing = Refusing::nothing;
    std::vector<PathStatus> paths;
};

enum class PathChange : std::uint8_t { up, down };

class ClientSessionHandler {
  public:
    // The first path is up (again). Sizes are known now. The server has forgotten everything that
    // was open: the owner opens again by submit_user(), then resumes or fails each held request.
    virtual void on_link_up() = 0;
    // The last path was lost; requests in flight are held.
    virtual void on_link_down(std::error_code reason) = 0;
    // No path is left that comes back by itself: all have used up their attempts, or another
    // session has taken this one's place. What was held fails, and new requests will
    // (refuses_new()), until a path is up after all.
    virtual void on_given_up(std::error_code /*error*/) {}
    // The server's end of the messages was made anew: all that was posted and sent has failed.
    virtual void on_messages_reset() {}
    // After close(): every request has been answered, every endpoint drained. The session may be
    // destroyed from inside this call.
    virtual void on_closed() = 0;
    // One path came up or went down, before what that means for the link. label: as in PathStatus,
    // lives for the call. The session is not to be operated from inside it.
    virtual void on_path_changed(std::string_view /*label*/, PathChange /*change*/,
                                 std::error_code /*reason*/) {}
    // An attempt to connect a path has failed, and not for the reason of the last one. text: what
    // the path's status says, lives for the call. As above, and also inside open() and
    // operate_path().
    virtual void on_path_not_connected(std::string_view /*label*/, std::error_code /*reason*/,
                                       std::string_view /*text*/) {}
    // A path that was removed has closed, and is not in the status any more. As above.
    virtual void on_path_gone(std::string_view /*label*/) {}

  protected:
    ~ClientSessionHandler() = default;
};

class ClientSession {
  public:
    // Longest user message.
    static constexpr std::uint32_t user_message_bytes_max = limits::user_message_bytes_max;

    ClientSession(SessionEnvironment environment, ClientSessionOptions options,
                  ClientSessionHandler& handler);
    // ASSUMES: never opened, or on_closed was delivered, and all permits are home.
    ~ClientSession();
    ClientSession(const ClientSession&) = delete;
    ClientSession& operator=(const ClientSession&) = delete;

    // Once. ERRORS: EINVAL (options out of range), EEXIST (two paths of one label), ENOMEM, errors
    // of Fabric::create_domain() and register_memory(). That nobody answers is none: it is tried
    // again, and on_given_up() tells if that has an end.
    std::error_code open();
    // Every request is answered (with Error::closed if the server has not), paths closed.
    void close();

    bool link_up() const noexcept;
    // 0 until the link was up once. Constant from then on: a server that comes back with a
    // smaller one is refused.
    std::uint32_t queue_depth() const noexcept;
    std::uint32_t max_io_bytes() const noexcept;
    // Permits that requests may use; one more is kept for user messages.
    std::uint32_t permits_max() const noexcept;

    // All or nothing. Empty or false while others wait, so that nobody overtakes.
    std::optional<Permit> try_take();
    bool try_take(std::span<Permit> permits);
    // As try_take, or queues the waiter; true if granted at once (granted() is not called then).
    // ASSUMES: 1 <= count <= permits_max(), permits.size() == count.
    bool take_or_wait(PermitWaiter& waiter);
    void stop_waiting(PermitWaiter& waiter) noexcept;

    // What a request that is submitted now fails with; empty: it is sent, or held.
    std::error_code refuses_new() const noexcept;
    // Sends, or holds while no path is up. ASSUMES: payload_bytes <= max_io_bytes().
    void submit(Permit permit, const ClientRequest& request);
    // Control messages (SESS_INFO, OPEN, CLOSE) on connection 0: one at a time in order of calls,
    // each of at most user_message_bytes_max bytes, with up to 4096 bytes of response (ASSUMES
    // both). The message is copied. Not held: fails with Error::path_lost when the link goes down.
    // responded(): response lives for the call.
    using UserResponded = void (*)(void* context, std::error_code error, Bytes response);
    void submit_user(Direction direction, Bytes message, std::uint32_t response_bytes,
                     UserResponded responded, void* context);

    // A held request, seen between on_link_up and resume()/fail().
    bool held(PermitId id) const noexcept;
    // The message of a request in flight, to be patched before resume().
    MutableBytes message(PermitId id) noexcept;
    // again: what an earlier attempt has done does not count any more; the request runs when that
    // has ended, whatever the server remembers of it.
    enum class Attempts : std::uint8_t { count, again };
    void resume(PermitId id, Attempts earlier = Attempts::count);
    void fail(PermitId id, std::error_code error);

    // Paths, while requests run. label: as in PathStatus.
    // ERRORS: EINVAL (no fabric or destination), EEXIST (a path of this label), ENOSPC
    // (limits::paths_max), ENOTCONN (not open, closing, or taken over), errors as open(). The path
    // is then dialled like any other.
    std::error_code add_path(const PathAddress& address);
    // remove: its requests go on elsewhere; it is gone from the status when it has closed.
    // disconnect: as remove, but it stays, closed, until reconnect. reconnect: closes it if it is
    // open, and dials at once.
    // ERRORS: ENOENT (no such path), EBUSY (remove: the last path; reconnect: it is being dialled
    // or closed), ENOTCONN (not open, closing, or taken over).
    enum class PathOperation : std::uint8_t { remove, disconnect, reconnect };
    std::error_code operate_path(std::string_view label, PathOperation operation);
    // ERRORS: ENOENT (no such path).
    std::error_code set_path_priority(std::string_view label, PathPriority priority) noexcept;
    void set_policy(PathPolicy policy) noexcept;
    // Also for the time without a path that goes on now; one that is over stays so until a path is
    // up. ASSUMES: fail_fast_time <= hold_time.
    void set_waiting(std::optional<Duration> hold_time, std::optional<Duration> fail_fast_time,
                     std::optional<ClientSessionOptions::HoldLimit> hold_limit = {});
    // Of requests to come. ASSUMES: positive.
    void set_request_deadline(Duration deadline);
    // For failures to come; a path that was given up stays so until it is told to reconnect.
    void set_reconnect_attempts_max(std::optional<std::uint32_t> attempts) noexcept;

    // Null if the options do not want messages, or before open(). Usable until on_closed; nothing
    // is sent while peer_has_messages() is false.
    MessageService* messages() noexcept;
    // As the server of the newest path said.
    bool peer_has_messages() const noexcept;

    const ClientSessionOptions& options() const noexcept;
    ClientSessionStatus status() const;
    // Every unanswered request; for people, not for programs that are in a hurry.
    std::vector<RequestStatus> requests() const;

  private:
    friend class Permit;
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
