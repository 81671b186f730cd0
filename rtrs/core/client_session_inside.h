// The inside of ClientSession, shared by the files that implement it:
//   client_session.cpp           the public face and status
//   client_session_life.cpp      open and close, the link
//   client_session_paths.cpp     paths are made, operated and removed; who joins, and when
//   client_session_requests.cpp  requests: which path carries them, failover, fences, failures
//   client_session_messages.cpp  user messages, one at a time
//
// A request, by state:
//   free       its permit is in the pool or in somebody's hands
//   in_flight  posted on `path`
//   held       waits: for a path, for its owner's decision after the link was lost, until its lost
//              path is fenced (protection fenced), or until its permit is settled
//   failing    its error is reported in a coming turn, or when its permit is settled
//
// A permit, by fate: *settled*, or *unknown* if a request was given up whose attempt may still run
// or arrive at the server. With protection exactly_once a fence settles it: a request with a newer
// sequence number that does nothing (fate *fencing* until its answer). With protection fenced it is
// settled when the path that carried the attempt is back, or when the server, asked over another
// path, says that it has finished with that path (fence_probe.h). Requests that were not given up
// wait for the same. With exactly_once the link is announced only when all permits are settled, so
// that nothing that was reported as failed lands after what is started later, unless the owner sees
// to that (ClientSessionOptions::Unsettled). Otherwise, and with fenced, for which that may take
// for ever, only the unsettled permits are kept back (permit_pool.h).
#pragma once

#include <list>
#include <optional>

#include "rtrs/base/latency_histogram.h"
#include "rtrs/base/lazy_array.h"
#include "rtrs/client.h"
#include "rtrs/core/client_path.h"
#include "rtrs/core/fence_probe.h"
#include "rtrs/core/message_service.h"
#include "rtrs/core/path_selector.h"
#include "rtrs/core/permit_pool.h"
#include "rtrs/core/session_doubt.h"
#include "rtrs/core/session_memory.h"

namespace rtrs {

struct ClientSession::Inside final : ClientPathOwner, FenceProbeOwner, MessageCoreOwner {
    static constexpr std::uint16_t no_path = UINT16_MAX;

    enum class RequestState : std::uint8_t { free = 0, in_flight, held, failing };
    enum class Fate : std::uint8_t { settled = 0, unknown, fencing };

    // All zero: a permit that was never used.
    struct Request {
        RequestState state;
        Fate fate;                 // of the permit
        bool owner_decides;        // held until the owner calls resume() or fail()
        bool sent;                 // an attempt was posted: the server may have it
        bool report_when_settled;  // failing
        Direction direction;
        std::uint16_t message_bytes;
        std::uint16_t path;  // in flight: on which; else on which last, or no_path
        std::uint16_t connection;
        std::uint16_t fate_path;  // unknown: which path carried it; fencing: which has the fence
        std::uint32_t attempts;
        std::uint32_t payload_bytes;
        int error;  // failing
        const std::error_category* error_category;
        Sequence sequence;
        Instant submitted;
        Instant posted;
        Instant fence_posted;  // fencing
        ClientRequest::Responded responded;
        void* context;
    };

    struct UserRequest {
        Direction direction;
        std::vector<std::byte> message;
        std::uint32_t response_bytes;
        ClientSession::UserResponded responded;
        void* context;
        Sequence sequence = 0;
    };

    // What is kept of a path besides its PathLoad; both are indexed by the path's number.
    struct PathRecord {
        std::unique_ptr<ClientPath> path;
        std::unique_ptr<FenceProbe> fence_probe;
        PathCounters counters;
        LatencyHistogram latency;
        Instant probed{};  // when it was last probed for a late answer
        bool probe_due = false;
        bool removing = false;  // leaves the list when closed
    };

    Inside(ClientSession& its_self, SessionEnvironment its_environment,
           ClientSessionOptions its_options, ClientSessionHandler& its_handler);

    // ClientPathOwner
    std::expected<void, Unusable> accept_geometry(ClientPath& path,
                                                  const ChunkGeometry& geometry) override;
    bool any_path_connected() const noexcept override { return paths_up > 0; }
    void session_dialled() override { doubt.dialled(); }
    bool has_to_wait(ClientPath& path) override;
    void path_up(ClientPath& path) override;
    void path_not_connected(ClientPath& path, std::error_code why, std::string_view text) override;
    void path_ending(ClientPath& path) noexcept override;
    void path_down(ClientPath& path, std::error_code reason) override;
    void path_drained(ClientPath& path) override;
    void path_closed(ClientPath& path) override;
    bool answered(ClientPath& path, std::uint16_t connection, std::uint32_t permit,
                  int error) override;
    void latency_measured(ClientPath& path, Duration latency) override;
    void taken_over() override;
    MessageCore* messages() noexcept override { return message_core ? &*message_core : nullptr; }

    // FenceProbeOwner
    std::expected<std::unique_ptr<Endpoint>, std::error_code> dial_fence_probe(
        FenceProbe& probe) override;
    void path_is_fenced(FenceProbe& probe) override;
    void fence_probe_drained() override;

    // MessageCoreOwner
    void messages_reset() override { handler.on_messages_reset(); }

    // --- client_session_life.cpp
    std::error_code check_options() const;
    std::error_code open();
    void arm_waiting();
    void arm_head_start();
    void open_other_paths();
    std::expected<void, Unusable> allocate(FabricMemory& first, const ChunkGeometry& offered);
    void announce_link_if_ready();
    void dial_what_is_held_back();
    void close();
    void finish_close_if_done();
    void give_up_if_out_of_paths();
    void out_of_paths();
    void refuse(Error error, Refusing how);

    // --- client_session_paths.cpp
    std::error_code make_path(const PathAddress& address);
    std::error_code add_path(const PathAddress& address);
    std::error_code operate(std::string_view label, PathOperation operation);
    void erase_removed_paths();
    std::uint16_t index_of(const ClientPath& path) const noexcept;
    void ask_for_signs(const ClientPath& waiting);
    void join_without_hope();

    // --- client_session_requests.cpp
    void submit(std::uint32_t permit, const ClientRequest& request);
    // now: the clock is read once per request, because outside a turn each reading costs a call.
    void send_or_hold(std::uint32_t permit, Instant now);
    void post(std::uint32_t permit, std::uint16_t path, Instant now);
    static void count_sent(PathCounters& counters, const Request& request) noexcept;
    std::uint16_t choose_path(std::uint32_t payload_bytes, Instant now) noexcept;
    void request_answered(std::uint32_t permit, int error);
    void owner_decides_all();
    void hand_back(std::uint16_t path);
    void send_held(std::uint16_t path_that_came);
    void resume(std::uint32_t permit, Attempts earlier);
    void fail(std::uint32_t permit, std::error_code error);
    void fail_later(std::uint32_t permit, std::error_code error);
    void fail_held(std::error_code error);
    void report_soon(std::uint32_t permit);
    void report_unsettled();
    void report_failures();
    bool waits_for_fence(std::uint16_t path) const noexcept;
    void ask_for_fences();
    void settle_path(std::uint16_t path);
    void fate_unknown(std::uint32_t permit);
    void settle(std::uint32_t permit);
    void settle_all();
    void send_fences();
    void send_fence(std::uint32_t permit);
    void put(PermitId id);
    void to_pool(std::uint32_t permit);
    void serve_waiters();
    void serve_waiters_soon();
    void watch();
    Instant watch_answer(std::uint16_t path, std::uint16_t connection, Instant posted, Instant now);
    void expect_answer(Instant posted);

    std::optional<RequestStatus> request_status(std::uint32_t permit) const;

    // --- client_session_messages.cpp
    void submit_user(UserRequest request);
    void send_next_user();
    void user_answered(int error);
    void user_path_lost();
    void fail_users();
    // Whether a user message takes this permit, which is free.
    bool lend_to_user(std::uint32_t permit);

    // With a server without sequence numbers: whether it may still read the last user message,
    // though the path of that message is lost.
    bool user_permit_in_doubt() const noexcept {
        return requests[user_permit()].fate != Fate::settled;
    }
    bool exactly_once() const noexcept { return protection == Protection::exactly_once; }
    std::byte* header(std::uint32_t permit) const noexcept { return memory.header(permit); }
    // The permit that is kept for user messages.
    std::uint32_t user_permit() const noexcept { return geometry.queue_depth - 1; }
    // The number of permits for requests: all but that one.
    std::uint32_t request_permits() const noexcept {
        return geometry.queue_depth == 0 ? 0 : geometry.queue_depth - 1;
    }
    void trace(TraceLevel level, std::string_view text) {
        environment.tracer.trace(level, "rtrs.session", options.name, text);
    }

    ClientSession& self;
    SessionEnvironment environment;
    ClientSessionOptions options;
    ClientSessionHandler& handler;
    Uuid uuid;

    ChunkGeometry geometry{};  // all 0 until the first path was accepted
    // What the server supports, set when a path comes up while no other is; none before the first.
    std::optional<Protection> protection;
    SessionMemory memory;
    LazyArray<Request> requests;
    PermitPool pool;
    Sequence last_sequence = 0;

    std::optional<MessageCore> message_core;  // outlives the paths
    bool peer_has_messages = false;

    std::vector<PathRecord> paths;  // in the order of creation
    std::vector<PathLoad> loads;    // in the same order
    PathSelector selector;
    std::uint32_t paths_up = 0;
    SessionDoubt doubt;
    // What the owner was told. It is told later than the first path comes up if a lost path is
    // still draining or permits are not settled yet.
    bool link_up = false;
    bool other_paths_opened = false;

    Timer hold_timer;
    Timer fail_fast_timer;
    Timer failure_timer;  // does what must not happen inside a call of the owner or a path
    Timer waiter_timer;
    Timer watch_timer;
    Timer head_start_timer;  // the first path's; armed until the others are opened
    std::vector<std::uint32_t> failures;
    // If set, new requests fail at once with this error.
    std::error_code refuse_new;
    bool hold_time_over = false;            // held requests fail too
    Refusing refusing = Refusing::nothing;  // the same, for the status

    std::list<UserRequest> users;
    std::uint16_t user_path = no_path;  // where users.front() was posted; when and with what
    Instant user_posted{};
    std::uint32_t user_posted_permit = 0;
    // A permit of the pool, used in place of user_permit() while the message that the latter
    // carried may still run.
    std::optional<std::uint32_t> user_loan;
    bool user_waits_for_permit = false;  // user_permit() is in doubt, and no other is free
    bool user_failing = false;           // users.front() fails

    std::uint32_t in_flight = 0;
    std::uint32_t held = 0;
    std::uint32_t unsettled = 0;
    std::uint32_t waiting_for_settlement = 0;  // failing, report_when_settled
    std::uint32_t given_up_untold = 0;         // in `failures`, sent: they may still run
    Instant since{};
    std::string reason = "not opened";
    bool opened = false;
    bool closing = false;
    bool closed = false;
    bool dead = false;  // taken over: nothing will be tried again
};

}  // namespace rtrs
