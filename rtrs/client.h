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
// THREAD: the reactor's (reactor.h), on which its clock and fabrics run too, or the simulator's.
// Callbacks come on that thread, one at a time.
// A request is answered exactly once: by the server, or with an error after the hold time or
// close(). A request whose path is lost continues on another path; the server still runs it only
// once (Protection). While no path is up, requests are held. When a path comes up again, the owner
// decides for each held request (on_link_up) with resume() or fail(), since ids inside its message
// may have changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rtrs/base/bytes.h"
#include "rtrs/base/error.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/latency_histogram.h"
#include "rtrs/base/uuid.h"
#include "rtrs/fabric.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/limits.h"
#include "rtrs/messages.h"
#include "rtrs/path_policy.h"
#include "rtrs/session_terms.h"

namespace rtrs {

class ClientSession;

// The right to one outstanding request and the memory for it. Move-only; its destructor returns it
// to the session.
class Permit {
  public:
    Permit() noexcept = default;
    Permit(Permit&& other) noexcept;
    Permit& operator=(Permit&& other) noexcept;
    ~Permit();

    explicit operator bool() const noexcept { return session_ != nullptr; }
    PermitId id() const noexcept { return id_; }
    // Payload of writes, target of reads: page aligned, max_io_bytes long, registered. The content
    // is kept from take to return; it is undefined at first.
    MutableBytes payload() const noexcept;

  private:
    friend class ClientSession;
    Permit(ClientSession& session, PermitId id) noexcept : session_(&session), id_(id) {}
    ClientSession* session_ = nullptr;
    PermitId id_{};
};

// One request. The message is copied during submit(); the payload is the permit's.
struct ClientRequest {
    Direction direction = Direction::write;
    Bytes message{};                  // the user message, at most user_message_bytes_max
    std::uint32_t payload_bytes = 0;  // sent (write) or expected (read), <= max_io_bytes
    // Called exactly once, never from inside submit(). It gives the permit back to the caller.
    using Responded = void (*)(void* context, Permit permit, std::error_code error);
    Responded responded = nullptr;
    void* context = nullptr;
};

// Waits for permits (take_or_wait); waiters are served in first-come order.
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

struct PathAddress {
    Fabric* fabric = nullptr;  // outlives the session
    std::string source;        // "HOST" or empty
    std::string destination;   // "HOST:PORT"
    PathPriority priority = PathPriority::prefer;
    // Names the path in operations. If empty, the name is "SOURCE@HOST:PORT" or "HOST:PORT".
    std::string label{};
    // EndpointOptions::worker of the path's first connection; its other connections get the numbers
    // that follow.
    std::uint32_t worker = 0;
};

// Durations are positive unless stated otherwise. open() returns EINVAL for values out of range.
struct ClientSessionOptions {
    std::string name;  // 1..254 bytes, no '/' and no '.'
    // At most limits::paths_max. None: requests wait for the first that add_path() brings.
    std::vector<PathAddress> paths;
    std::uint32_t io_connections = 1;  // per path; 1..limits::io_connections_max
    // For a whole path, from dial to INFO response. For up to the first fifth of this time, open()
    // dials only the first path.
    Duration connect_timeout = std::chrono::seconds(5);
    Duration heartbeat_interval = heartbeat_interval_default;
    // A path that has been silent for this long is dead. Longer than the interval.
    Duration heartbeat_timeout = heartbeat_timeout_default;
    Duration reconnect_delay_min = std::chrono::milliseconds(10);  // doubled per failed attempt
    Duration reconnect_delay_max = std::chrono::seconds(1);        // each delay is jittered
    std::optional<std::uint32_t> reconnect_attempts_max;           // none: unlimited
    // How long requests wait for a path, counted from the loss of the last one. None: for ever; 0:
    // not at all.
    std::optional<Duration> hold_time;
    // How long, without any path, new requests are still accepted to wait; at most hold_time. None:
    // as long as hold_time; 0: not at all.
    std::optional<Duration> fail_fast_time;
    // A limit in addition to hold_time; whichever ends first counts. If the last path was lost
    // before the limit was set, the limit counts from set_at.
    struct HoldLimit {
        Duration time{};
        Instant set_at{};
    };
    std::optional<HoldLimit> hold_limit;
    // When the hold time and the fail-fast time end if the last path was lost at `lost`. None:
    // never.
    std::optional<Instant> hold_until(Instant lost) const noexcept;
    std::optional<Instant> fail_fast_until(Instant lost) const noexcept;
    // The hold time and the fail-fast time that apply if the last path is lost now.
    std::optional<Duration> longest_hold() const noexcept;
    std::optional<Duration> longest_fail_fast() const noexcept;
    // When a request has been unanswered for this long, its path is probed. The path is dead if it
    // stays silent for probe_timeout, or for heartbeat_timeout if that is shorter. A slow answer
    // alone never ends a path.
    Duration request_deadline = std::chrono::seconds(2);
    Duration probe_timeout = std::chrono::milliseconds(1250);
    PathPolicy policy = PathPolicy::min_inflight;
    // Identifies the machine that the client runs on; stays the same when the client comes back. 0:
    // none. It tells a server whether a new session may take over an old one of the same name.
    std::uint64_t identity = 0;
    // Which run ("life") of the client this is. A greater value is newer, e.g. milliseconds since
    // the epoch at its start; 0: not given. An older life never takes over from a newer one. Below
    // 2^56.
    std::uint64_t life = 0;
    Protection protection = Protection::exactly_once;  // with servers that support it
    // Requests that were reported as failed while no path was up may still be run by a server whose
    // storage hangs. What waits for that when a path comes up again:
    //   session  with exactly_once the session: its link is not up before all have ended
    //   owner    the owner: until on_settled() it submits nothing that they could undo. Their
    //            permits are kept back meanwhile: only who needs more than there are others gets
    //            them, and what is submitted with one waits until it is settled
    enum class Unsettled : std::uint8_t { session, owner };
    Unsettled unsettled = Unsettled::session;
    std::optional<MessageOptions> messages{};  // with servers that support them; none: not wanted
};

// What a path has done since it was created.
struct PathCounters {
    std::uint64_t sent = 0;         // attempts
    std::uint64_t completed = 0;    // answers
    std::uint64_t failed_over = 0;  // unanswered requests handed back when it was lost
    std::uint64_t retried = 0;      // attempts that were not a request's first
    std::uint64_t stale = 0;        // attempts that the server refused as late
    std::uint64_t probes = 0;       // heartbeats sent early because an answer was late
    // `sent` by direction; the bytes include the user messages.
    std::uint64_t reads = 0, read_bytes = 0;
    std::uint64_t writes = 0, write_bytes = 0;
};

struct PathStatus {
    std::string label;  // names the path in operations: as in PathAddress
    std::string id;     // unique, even if another path with the same label comes later
    std::string source, destination, fabric;
    std::string device;      // the fabric's device; empty if it has none
    std::string local_host;  // "HOST" from which it last connected; empty before that
    PathState state = PathState::idle;
    // Why the path is not connected. While it is connected: empty, or what is wrong with it.
    std::string reason;
    std::error_code error;  // of the newest failure; empty again once it is connected
    Instant since{};        // when it entered this state
    std::optional<Instant> next_attempt;
    std::optional<Instant> fails_at;    // connecting, exchanging: when this attempt fails
    std::uint32_t attempts = 0;         // that failed since it was last connected
    std::uint64_t reconnects = 0;       // successful ones after the first
    std::uint64_t attempts_failed = 0;  // since the path was created
    Duration latency{};                 // newest heartbeat round trip, 0 before the first
    std::optional<Instant> dead_at;     // connected: when it is given up if nothing is received
    PathPriority priority = PathPriority::prefer;
    std::uint32_t in_flight = 0;
    PathCounters counters{};
    // Latency of requests, from post to answer; 0 before the first answer.
    Duration latency_p50{}, latency_p99{}, latency_max{};
    LatencyHistogram latencies{};
};

// A request that is not answered yet.
struct RequestStatus {
    enum class Stage : std::uint8_t {
        in_flight,  // at the server, or on the way
        no_path,    // held: no path is connected
        owner,      // held: the link is up, its owner has not decided yet
        lost_path,  // held: until the server has finished with its lost path
        settling,   // waits until the server says that older attempts are over
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

// Which requests a session without a path refuses to hold any more, and since when.
enum class Refusing : std::uint8_t {
    nothing,
    after_fail_fast_time,  // new requests
    after_hold_time,       // all
    after_all_attempts,    // all: no path will come back by itself (on_given_up())
    taken_over,            // all, for good: a newer session has taken the name
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
    std::optional<Protection> protection;  // none: no path has been up yet
    PathPolicy policy = PathPolicy::min_inflight;
    std::optional<Instant> hold_until;  // when held requests fail
    Refusing refusing = Refusing::nothing;
    std::vector<PathStatus> paths;

    // Null: there is no such path. label: as in PathStatus.
    const PathStatus* path(std::string_view label) const noexcept {
        for (const PathStatus& one : paths) {
            if (one.label == label) return &one;
        }
        return nullptr;
    }
};

// The reason of whatever may not go on before settled().
inline constexpr const char* why_unsettled =
    "the server has not finished with requests that were given up";

enum class PathChange : std::uint8_t { up, down };

class ClientSessionHandler {
  public:
    // The first path is up (again). Sizes are known now. The server has forgotten everything that
    // was open: the owner opens it again with submit_user(), then resumes or fails each held
    // request.
    virtual void on_link_up() = 0;
    // The last path was lost; requests in flight are held.
    virtual void on_link_down(std::error_code reason) = 0;
    // No path will come back by itself: all have used up their attempts, or another session has
    // taken over from this one. Held requests fail, and so do new ones (refuses_new()), until a
    // path comes up after all.
    virtual void on_given_up(std::error_code /*error*/) {}
    // A request of this permit that was reported as failed while settled() was false cannot run any
    // more. Only with ClientSessionOptions::Unsettled::owner, and not when the session ends. The
    // session must not be operated from inside this call.
    virtual void on_settled(PermitId /*id*/) {}
    // The server's end of the message service was recreated: all posted receives and unfinished
    // sends have failed.
    virtual void on_messages_reset() {}
    // After close(): every request has been answered, every endpoint drained. The session may be
    // destroyed from inside this call.
    virtual void on_closed() = 0;
    // One path came up or went down. Called before on_link_up() or on_link_down() if the link
    // changes too. label: as in PathStatus, valid during the call. The session must not be operated
    // from inside this call.
    virtual void on_path_changed(std::string_view /*label*/, PathChange /*change*/,
                                 std::error_code /*reason*/) {}
    // An attempt to connect a path has failed, for another reason than the attempt before it. text:
    // what the path's status says, valid during the call. The rules of on_path_changed() apply;
    // this one is also called from inside open() and operate_path().
    virtual void on_path_not_connected(std::string_view /*label*/, std::error_code /*reason*/,
                                       std::string_view /*text*/) {}
    // A path that was removed has closed and is no longer in the status. The rules of
    // on_path_changed() apply.
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

    // Call it once. ERRORS: EINVAL (options out of range), EEXIST (two paths of one label), ENOMEM,
    // errors of Fabric::create_domain() and register_memory(). A server that does not answer is no
    // error: the session keeps trying, and calls on_given_up() if it stops.
    std::error_code open();
    // Answers every request (with Error::closed if the server has not answered it) and closes the
    // paths.
    void close();

    bool link_up() const noexcept;
    // 0 until a first connection was accepted. Constant from then on: a server that comes back with
    // a smaller one is refused.
    std::uint32_t queue_depth() const noexcept;
    std::uint32_t max_io_bytes() const noexcept;
    // Permits that requests may use; one more is kept for user messages.
    std::uint32_t permits_max() const noexcept;

    // Takes all or nothing. Returns empty or false also while others wait, so that nobody overtakes
    // them.
    std::optional<Permit> try_take();
    bool try_take(std::span<Permit> permits);
    // As try_take, but queues the waiter if that fails. True: granted at once (granted() is not
    // called).
    // ASSUMES: 1 <= count <= permits_max(), permits.size() == count.
    bool take_or_wait(PermitWaiter& waiter);
    void stop_waiting(PermitWaiter& waiter) noexcept;

    // The error with which a request submitted now would fail; empty if it would be sent or held.
    std::error_code refuses_new() const noexcept;
    // Sends the request, or holds it while no path is up. ASSUMES: payload_bytes <= max_io_bytes().
    void submit(Permit permit, const ClientRequest& request);
    // Sends a control message (SESS_INFO, OPEN, CLOSE) on connection 0. Messages are sent one at a
    // time in the order of the calls, each of at most user_message_bytes_max bytes, with up to 4096
    // bytes of response (ASSUMES both). The message is copied. It is not held: it fails with
    // Error::path_lost when the link goes down and, with protection fenced, when its path is lost.
    // responded(): response is valid during the call.
    using UserResponded = void (*)(void* context, std::error_code error, Bytes response);
    void submit_user(Direction direction, Bytes message, std::uint32_t response_bytes,
                     UserResponded responded, void* context);

    // Whether this request is held; of use between on_link_up() and resume() or fail().
    bool held(PermitId id) const noexcept;
    // The message of an unanswered request, which the owner may patch before resume().
    MutableBytes message(PermitId id) noexcept;
    // again: what an earlier attempt has done does not count. The request runs anew once that
    // attempt has ended, whatever the server remembers of it.
    enum class Attempts : std::uint8_t { count, again };
    void resume(PermitId id, Attempts earlier = Attempts::count);
    void fail(PermitId id, std::error_code error);
    // Whether no request that had this permit before, and was reported as failed, may still run at
    // the server. With protection fenced always true: nobody waits for that, it may take for ever.
    bool settled(PermitId id) const noexcept;

    // Paths can be changed while requests run. label: as in PathStatus.
    // ERRORS: EINVAL (no fabric or destination), EEXIST (a path with this label), ENOSPC
    // (limits::paths_max), ENOTCONN (not open, closing, or taken over), errors as open(). The added
    // path is dialled like any other.
    std::error_code add_path(const PathAddress& address);
    // remove: the path's requests continue on other paths; the path leaves the status once it has
    // closed. disconnect: as remove, but the path stays in the status, closed, until reconnect.
    // reconnect: closes the path if it is open, and dials it at once.
    // ERRORS: ENOENT (no such path), EBUSY (remove: the last path; reconnect: it is being dialled
    // or closed), ENOTCONN (not open, closing, or taken over).
    enum class PathOperation : std::uint8_t { remove, disconnect, reconnect };
    std::error_code operate_path(std::string_view label, PathOperation operation);
    // ERRORS: ENOENT (no such path).
    std::error_code set_path_priority(std::string_view label, PathPriority priority) noexcept;
    void set_policy(PathPolicy policy) noexcept;
    // Applies also if the session is without a path now, except that a time that has already run
    // out stays so until a path is up. ASSUMES: fail_fast_time <= hold_time.
    void set_waiting(std::optional<Duration> hold_time, std::optional<Duration> fail_fast_time,
                     std::optional<ClientSessionOptions::HoldLimit> hold_limit = {});
    // Applies to requests in flight, too. ASSUMES: positive.
    void set_request_deadline(Duration deadline);
    // Applies to failures to come. A path that was given up stays so until it is told to reconnect.
    void set_reconnect_attempts_max(std::optional<std::uint32_t> attempts) noexcept;

    // Null if the options do not want messages, or before open(). Usable until on_closed; nothing
    // is sent while peer_has_messages() is false.
    MessageService* messages() noexcept;
    // What the server said on the path that came up last.
    bool peer_has_messages() const noexcept;

    const ClientSessionOptions& options() const noexcept;
    ClientSessionStatus status() const;
    // Every unanswered request. Meant for people; too slow for programs in a hurry.
    std::vector<RequestStatus> requests() const;

  private:
    friend class Permit;
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rtrs
