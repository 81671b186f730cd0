// ClientSession: open and close, and the link that its paths form together.

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"
#include "rtrs/core/client_session_inside.h"
#include "rtrs/limits.h"
#include "rtrs/wire/info.h"

namespace rtrs {
namespace {

// Bytes of a chunk that are needed besides the data.
constexpr std::uint32_t header_bytes_min =
    ClientSession::user_message_bytes_max + request_message_bytes_max;
// After this part of its connect_timeout, a session whose first path is not up yet dials all paths.
constexpr int head_start_part = 5;

}  // namespace

ClientSession::Inside::Inside(ClientSession& its_self, SessionEnvironment its_environment,
                              ClientSessionOptions its_options, ClientSessionHandler& its_handler)
    : self(its_self),
      environment(its_environment),
      options(std::move(its_options)),
      handler(its_handler),
      uuid(Uuid::random(environment.random)),
      selector(options.policy),
      hold_timer(environment.clock, this,
                 [](void* context) {
                     auto& inside = *static_cast<Inside*>(context);
                     inside.trace(TraceLevel::error, "hold time is over: failing requests");
                     inside.hold_time_over = true;
                     inside.refuse(Error::no_path, Refusing::after_hold_time);
                     inside.fail_held(Error::no_path);
                 }),
      fail_fast_timer(environment.clock, this,
                      [](void* context) {
                          auto& inside = *static_cast<Inside*>(context);
                          inside.trace(TraceLevel::error,
                                       "fail-fast time is over: new requests fail at once");
                          inside.refuse(Error::no_path, Refusing::after_fail_fast_time);
                      }),
      failure_timer(environment.clock, this, member_call<&Inside::report_failures>),
      waiter_timer(environment.clock, this, member_call<&Inside::serve_waiters>),
      watch_timer(environment.clock, this, member_call<&Inside::watch>),
      head_start_timer(environment.clock, this, member_call<&Inside::open_other_paths>) {}

std::error_code ClientSession::Inside::check_options() const {
    const Duration hold = options.hold_time.value_or(Duration::max());
    const Duration fail_fast = options.fail_fast_time.value_or(Duration::zero());
    if (fail_fast < Duration::zero() || hold < fail_fast) return from_errno(EINVAL);
    if (!check_session_name(options.name) || options.paths.size() > limits::paths_max ||
        options.io_connections < 1 || options.io_connections > limits::io_connections_max ||
        options.heartbeat_interval <= Duration::zero() ||
        options.heartbeat_timeout <= options.heartbeat_interval ||
        options.reconnect_delay_min <= Duration::zero() ||
        options.reconnect_delay_max < options.reconnect_delay_min ||
        options.connect_timeout <= Duration::zero() || options.life >> 56 != 0 ||
        options.request_deadline <= Duration::zero() || options.probe_timeout <= Duration::zero()) {
        return from_errno(EINVAL);
    }
    if (options.messages) return MessageCore::check(*options.messages);
    return {};
}

// --- Memory.

std::expected<void, Unusable> ClientSession::Inside::accept_geometry(ClientPath& path,
                                                                     const ChunkGeometry& offered) {
    const auto refused = [](std::string why) {
        return std::unexpected(Unusable{Error::rejected, std::move(why)});
    };
    const Protection offers = path.sequenced() ? Protection::exactly_once : Protection::fenced;
    if (paths_up > 0 && offers != protection) {
        return refused("it differs from that of the other paths in what it can");
    }
    if (geometry.queue_depth == 0) return allocate(path.memory(), offered);
    if (offered.queue_depth < geometry.queue_depth) {
        // Requests in flight may have any of the old permits.
        return refused("its queue depth has shrunk to " + std::to_string(offered.queue_depth) +
                       ", this session needs " + std::to_string(geometry.queue_depth));
    }
    if (offered.io_bytes_max < geometry.io_bytes_max) {
        return refused("its requests have shrunk to " + std::to_string(offered.io_bytes_max) +
                       " bytes of data, this session needs " +
                       std::to_string(geometry.io_bytes_max));
    }
    if (offered.header_bytes_max < header_bytes_min) {
        return refused("its headers have shrunk to " + std::to_string(offered.header_bytes_max) +
                       " bytes, this session needs " + std::to_string(header_bytes_min));
    }
    return memory.register_buffers(path.memory());
}

std::expected<void, Unusable> ClientSession::Inside::allocate(FabricMemory& first,
                                                              const ChunkGeometry& offered) {
    // One permit is kept for user messages, so that a volume can be opened again while all others
    // belong to requests that wait for it.
    if (offered.queue_depth < 2 || offered.header_bytes_max < header_bytes_min) {
        return std::unexpected(Unusable{
            Error::protocol,
            offer_text(offered.queue_depth, offered.io_bytes_max, offered.header_bytes_max) +
                "; a session needs a depth of 2 and " + std::to_string(header_bytes_min) +
                " bytes of headers"});
    }
    requests = LazyArray<Request>(offered.queue_depth);
    if (!requests) {
        const std::error_code error = from_errno(ENOMEM);
        return std::unexpected(Unusable{error, error.message()});
    }
    if (auto made = memory.make_buffers(first, offered); !made) return made;
    geometry = offered;
    pool.fill(request_permits());
    failures.reserve(geometry.queue_depth);
    return {};
}

// --- Open, close.

std::error_code ClientSession::Inside::open() {
    if (const auto error = check_options()) return error;
    if (const auto error = memory.open()) return error;
    for (const PathAddress& address : options.paths) {
        if (const auto error = make_path(address)) {
            paths.clear();
            loads.clear();
            memory.forget_fabrics();
            return error;
        }
    }
    if (options.messages) {
        message_core.emplace(environment.clock, *options.messages, environment.random.next() | 1,
                             *this);
    }
    opened = true;
    since = environment.clock.now();
    reason = paths.empty() ? "no path was added yet" : "connecting";
    arm_waiting();
    if (paths.empty()) {
        other_paths_opened = true;  // each that is added is dialled at once
        return {};
    }
    // The first path creates the session; the others join it (see announce_link_if_ready) or, if
    // the first cannot be reached or takes its time, create it themselves. Dialling all at once
    // would make every path that comes later wait for a sign (session_doubt.h).
    if (paths.size() > 1) arm_head_start();
    paths.front().path->open();
    return {};
}

// The time that requests wait counts from the moment when the last path was lost.
void ClientSession::Inside::arm_waiting() {
    hold_timer.disarm();
    fail_fast_timer.disarm();
    if (!opened || closing || link_up || hold_time_over) return;
    if (const auto until = options.hold_until(since)) hold_timer.arm(*until);
    if (const auto until = options.fail_fast_until(since)) fail_fast_timer.arm(*until);
}

void ClientSession::Inside::arm_head_start() {
    head_start_timer.arm(since + options.connect_timeout / head_start_part);
}

void ClientSession::Inside::open_other_paths() {
    if (other_paths_opened || closing) return;
    other_paths_opened = true;
    head_start_timer.disarm();
    for (const PathRecord& record : paths) {
        if (record.path->idle()) record.path->open();
    }
}

void ClientSession::Inside::close() {
    if (closing) return;
    closing = true;
    hold_timer.disarm();
    fail_fast_timer.disarm();
    watch_timer.disarm();
    head_start_timer.disarm();
    // Must come first: the armed timer keeps on_closed() from being called inside this call.
    failure_timer.arm(environment.clock.now());
    if (!opened) return;
    trace(TraceLevel::info, "closing");
    for (const PathRecord& record : paths) {
        record.fence_probe->stop();
        record.path->close();
    }
    fail_held(Error::closed);
}

void ClientSession::Inside::finish_close_if_done() {
    if (!closing || closed || !failures.empty() || in_flight > 0 || held > 0) return;
    const auto is_closed = [](const PathRecord& record) {
        return record.path->closed() && record.fence_probe->drained();
    };
    if (!std::ranges::all_of(paths, is_closed)) return;
    if (failure_timer.armed() || !users.empty()) {
        failure_timer.arm(environment.clock.now());
        return;
    }
    settle_all();
    if (message_core) message_core->close();
    closed = true;
    reason = "closed";
    handler.on_closed();
}

// --- The link.

void ClientSession::Inside::path_up(ClientPath& path) {
    // Set only now, not on acceptance: another path may have been accepted meanwhile, and have come
    // up first.
    if (paths_up == 0) {
        protection = path.sequenced() ? Protection::exactly_once : Protection::fenced;
    }
    peer_has_messages = path.has_messages();
    ++paths_up;
    const std::uint16_t index = index_of(path);
    loads[index].usable = true;
    handler.on_path_changed(path.address_label(), PathChange::up, {});
    if (!exactly_once()) {
        // The path's acceptance proves that the server has finished with what the path carried
        // before (fence_probe.h). For a path that was removed while the server knew sequence
        // numbers, nobody will prove that.
        paths[index].fence_probe->stop();
        settle_path(index);
        settle_path(no_path);
        ask_for_fences();
    } else {
        send_fences();
        // Removed paths no longer wait for a server without sequence numbers to finish with them.
        const auto leaves = [](const PathRecord& one) { return one.removing; };
        if (std::ranges::any_of(paths, leaves)) failure_timer.arm(environment.clock.now());
    }
    if (!link_up) return announce_link_if_ready();
    send_held(index);
    send_next_user();
}

// The link is not announced while a lost path drains: its requests would not be held yet, and the
// owner could not change their messages, which may name what the server has forgotten. Nor before
// the user messages that were lost with the path are reported, and the requests that were given up:
// the owner has to know what may still run (settled()). Nor while something that was
// reported as failed may still land, unless the owner sees to that. Nor once the session is taken
// over: its paths are about to be closed.
void ClientSession::Inside::announce_link_if_ready() {
    if (link_up || paths_up == 0 || closing || dead) return;
    if (in_flight > 0 || !users.empty() || given_up_untold > 0) {
        reason = "what a lost path had under way is not ended yet";
        return;
    }
    const bool waits = options.unsettled == ClientSessionOptions::Unsettled::session;
    if (exactly_once() && unsettled > 0 && waits) {
        reason = why_unsettled;
        return;
    }
    link_up = true;
    since = environment.clock.now();
    reason.clear();
    hold_timer.disarm();
    fail_fast_timer.disarm();
    refuse_new.clear();
    refusing = Refusing::nothing;
    hold_time_over = false;
    pool.keep_back(true);
    trace(TraceLevel::info, "link up");
    handler.on_link_up();
    open_other_paths();
    send_next_user();
}

void ClientSession::Inside::path_not_connected(ClientPath& path, std::error_code why,
                                               std::string_view text) {
    handler.on_path_not_connected(path.address_label(), why, text);
}

void ClientSession::Inside::path_ending(ClientPath& path) noexcept {
    loads[index_of(path)].usable = false;
}

void ClientSession::Inside::path_down(ClientPath& path, std::error_code why) {
    RTRS_ASSERT(paths_up > 0);
    const std::uint16_t index = index_of(path);
    loads[index].usable = false;
    --paths_up;
    doubt.ended(path);
    if (doubt.anybody_waits()) failure_timer.arm(environment.clock.now());
    if (paths_up == 0) {
        for (const PathRecord& record : paths) record.fence_probe->stop();
    }
    handler.on_path_changed(path.address_label(), PathChange::down, why);
    if (planted(PlantedBug::quarantine_off)) hand_back(index);
    if (paths_up > 0) return;
    if (!dead) reason = "no path is up: " + why.message();
    if (!link_up) return dial_what_is_held_back();
    link_up = false;
    pool.keep_back(false);
    serve_waiters_soon();
    since = environment.clock.now();
    if (closing) {
        trace(TraceLevel::info, "link down");
    } else {
        trace(TraceLevel::warning, "link down: requests are held");
        arm_waiting();
    }
    owner_decides_all();
    report_unsettled();
    handler.on_link_down(why);
    dial_what_is_held_back();
}

// No path is up. A path that fails often is better than none.
void ClientSession::Inside::dial_what_is_held_back() {
    if (closing) return;
    for (const PathRecord& record : paths) record.path->needed();
}

void ClientSession::Inside::path_drained(ClientPath& path) {
    const std::uint16_t index = index_of(path);
    doubt.leaves(path);
    hand_back(index);
    if (!link_up) owner_decides_all();
    if (user_path == index) user_path_lost();
    if (!users.empty() && (!link_up || user_failing)) failure_timer.arm(environment.clock.now());
    if (closing) return fail_held(Error::closed);
    if (exactly_once()) {
        send_fences();
    } else {
        ask_for_fences();
    }
    if (link_up) {
        if (exactly_once()) send_held(index);
    } else if (hold_time_over) {
        fail_held(Error::no_path);
    }
    open_other_paths();  // the first could not be reached
    announce_link_if_ready();
}

void ClientSession::Inside::path_closed(ClientPath& path) {
    if (closing) return finish_close_if_done();
    if (paths[index_of(path)].removing) failure_timer.arm(environment.clock.now());
    give_up_if_out_of_paths();
}

// Paths that are being removed do not count any more. Paths that the operator has disconnected may
// be told to come back, but not when the session is taken over.
void ClientSession::Inside::give_up_if_out_of_paths() {
    const bool all_given_up = std::ranges::all_of(paths, [this](const PathRecord& one) {
        return one.removing || (one.path->closed() && (dead || !one.path->disconnected()));
    });
    if (all_given_up) out_of_paths();
}

// An earlier refusal that goes further stays in force.
void ClientSession::Inside::refuse(Error error, Refusing how) {
    if (!dead || error == Error::rejected) refuse_new = error;
    refusing = std::max(refusing, how);
}

void ClientSession::Inside::out_of_paths() {
    if (!dead) reason = "every path has used up its reconnect attempts";
    trace(TraceLevel::error, reason);
    if (!dead) refuse(Error::no_path, Refusing::after_all_attempts);
    RTRS_ASSERT(refuse_new);
    hold_time_over = true;
    arm_waiting();  // disarms them: no time is left that could run out
    const std::error_code why = dead ? refuse_new : Error::path_lost;
    for (std::uint32_t id = 0; id < request_permits() && held > 0; ++id) {
        if (requests[id].state == RequestState::held) fail_later(id, why);
    }
    failure_timer.arm(environment.clock.now());
    handler.on_given_up(refuse_new);
}

// Another session of the same client has taken this one's place. This one must not fight back.
void ClientSession::Inside::taken_over() {
    if (dead || closing) return;
    dead = true;
    reason = "taken over by a newer session of the same name";
    trace(TraceLevel::error, reason);
    refuse(Error::rejected, Refusing::taken_over);
    failure_timer.arm(environment.clock.now());
}

}  // namespace rtrs
