// ClientSession: the requests. Which path carries one, what happens when that path is lost, and
// when its permit may be used again.

#include <algorithm>
#include <cstring>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/probe.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/client_session_inside.h"

namespace rtrs {

void ClientSession::Inside::count_sent(PathCounters& counters, const Request& request) noexcept {
    const std::uint32_t bytes = request.payload_bytes + request.message_bytes;
    ++counters.sent;
    if (request.direction == Direction::read) {
        ++counters.reads;
        counters.read_bytes += bytes;
    } else {
        ++counters.writes;
        counters.write_bytes += bytes;
    }
}

void ClientSession::Inside::submit(std::uint32_t permit, const ClientRequest& what) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::free);
    RTRS_ASSERT(what.payload_bytes <= geometry.io_bytes_max);
    RTRS_ASSERT(what.message.size() <= user_message_bytes_max && what.responded != nullptr);
    RTRS_ASSERT(!what.message.empty());
    request.owner_decides = false;
    request.sent = false;
    request.report_when_settled = false;
    request.direction = what.direction;
    request.message_bytes = static_cast<std::uint16_t>(what.message.size());
    request.path = no_path;
    request.attempts = 0;
    request.payload_bytes = what.payload_bytes;
    request.sequence = ++last_sequence;
    request.submitted = environment.clock.now();
    request.responded = what.responded;
    request.context = what.context;
    std::memcpy(header(permit), what.message.data(), what.message.size());
    request.state = RequestState::held;
    ++held;
    if (closing) return fail_later(permit, Error::closed);
    if (refuse_new) return fail_later(permit, refuse_new);
    request.owner_decides = !link_up;
    if (!request.owner_decides) send_or_hold(permit, request.submitted);
}

void ClientSession::Inside::send_or_hold(std::uint32_t permit, Instant now) {
    // A fence of this permit is on its way, or the permit's lost path must come back first.
    if (requests[permit].fate != Fate::settled) return;
    const std::uint16_t path = choose_path(requests[permit].payload_bytes, now);
    if (path == no_path) return;
    post(permit, path, now);
}

std::uint16_t ClientSession::Inside::choose_path(std::uint32_t payload_bytes,
                                                 Instant now) noexcept {
    if (loads.size() == 1) return loads[0].usable ? 0 : no_path;
    const auto index = selector.select(loads, payload_bytes, now);
    return index ? static_cast<std::uint16_t>(*index) : no_path;
}

void ClientSession::Inside::post(std::uint32_t permit, std::uint16_t path, Instant now) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    PathRecord& record = paths[path];
    ClientPath& on = *record.path;
    request.state = RequestState::in_flight;
    request.path = path;
    request.posted = now;
    if (request.attempts++ > 0) ++record.counters.retried;
    request.sent = true;
    request.connection = on.connection_of(permit);
    --held;
    ++in_flight;
    count_sent(record.counters, request);
    loads[path].sent(request.payload_bytes, request.posted);
    expect_answer(request.posted);
    RTRS_PROBE(request_posted, this, permit, request.attempts, request.payload_bytes);
    on.post({.permit = permit,
             .direction = request.direction,
             .payload_bytes = request.payload_bytes,
             .message_bytes = request.message_bytes,
             .payload = {memory.payload(permit), request.payload_bytes},
             .target =
                 on.memory().payload->remote(memory.payload_offset(permit), request.payload_bytes),
             .header = header(permit),
             .sequence = request.sequence,
             .connection = request.connection});
}

bool ClientSession::Inside::answered(ClientPath& path, std::uint16_t connection,
                                     std::uint32_t permit, int error) {
    if (permit >= geometry.queue_depth) return false;  // the server has more than this session
    Request& request = requests[permit];
    if (permit == user_posted_permit && user_path != no_path) {
        if (paths[user_path].path.get() != &path || connection != 0) return false;
        user_answered(error);
        return true;
    }
    if (request.connection != connection) return false;
    if (request.fate == Fate::fencing && paths[request.fate_path].path.get() == &path) {
        settle(permit);
        announce_link_if_ready();
        return true;
    }
    if (request.state != RequestState::in_flight || paths[request.path].path.get() != &path) {
        return false;
    }
    request_answered(permit, error);
    return true;
}

void ClientSession::Inside::request_answered(std::uint32_t permit, int error) {
    Request& request = requests[permit];
    PathRecord& record = paths[request.path];
    const Instant now = environment.clock.now();
    loads[request.path].answered(request.payload_bytes, now);
    record.latency.add(now - request.posted);
    RTRS_PROBE(request_response, this, permit, error);
    ++record.counters.completed;
    if (error == ESTALE && exactly_once()) ++record.counters.stale;
    request.state = RequestState::free;
    --in_flight;
    request.responded(request.context, Permit(self, PermitId{permit}), from_errno(error));
}

// --- A path is lost.

// The link is down: the server may forget everything that it had open, and held requests name it.
// This also covers what other paths left behind earlier.
void ClientSession::Inside::owner_decides_all() {
    for (std::uint32_t id = 0; id < request_permits() && held > 0; ++id) {
        if (requests[id].state == RequestState::held) requests[id].owner_decides = true;
    }
}

// The path's endpoints are drained: the requests that it left unanswered belong to the session
// again.
void ClientSession::Inside::hand_back(std::uint16_t path) {
    for (std::uint32_t id = 0; id < geometry.queue_depth && (in_flight > 0 || unsettled > 0);
         ++id) {
        Request& request = requests[id];
        if (request.fate == Fate::fencing && request.fate_path == path) {
            RTRS_RARE(fence_lost);
            request.fate = Fate::unknown;
        }
        if (request.state != RequestState::in_flight || request.path != path) continue;
        request.state = RequestState::held;
        --in_flight;
        ++held;
        loads[path].left(request.payload_bytes);
        ++paths[path].counters.failed_over;
    }
}

// A path has come up, or one was lost while others are left.
void ClientSession::Inside::send_held(std::uint16_t path_that_came) {
    for (std::uint32_t id = 0; id < request_permits() && held > 0; ++id) {
        const Request& request = requests[id];
        if (request.state != RequestState::held || request.owner_decides) continue;
        const bool may_go = exactly_once() || request.path == no_path ||
                            request.path == path_that_came || !request.sent;
        if (!may_go) continue;
        if (request.sent) RTRS_RARE(failed_over);
        send_or_hold(id, environment.clock.now());
    }
}

void ClientSession::Inside::resume(std::uint32_t permit, Attempts earlier) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    // It becomes another request: the server runs it when the earlier attempt has ended, or in its
    // place.
    if (earlier == Attempts::again) request.sequence = ++last_sequence;
    request.owner_decides = !link_up;
    if (request.owner_decides) return;
    // Without sequence numbers: not before the path of the first attempt is back, or fenced.
    const bool fenced = !exactly_once() && request.sent && request.path != no_path &&
                        !paths[request.path].path->connected();
    if (fenced) return;
    if (request.sent) RTRS_RARE(resumed);
    send_or_hold(permit, environment.clock.now());
}

// --- Failures. They are reported in a separate turn, never inside a call of the owner.

// While the link is up, the caller is told only when nothing of the request can land any more: what
// the caller does next may touch the same blocks.
void ClientSession::Inside::fail(std::uint32_t permit, std::error_code error) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    const bool settle_first =
        request.sent && link_up && !closing && !planted(PlantedBug::permit_reused_early);
    if (!settle_first) return fail_later(permit, error);
    request.state = RequestState::failing;
    request.error = error.value();
    request.error_category = &error.category();
    request.report_when_settled = true;
    --held;
    ++waiting_for_settlement;
    fate_unknown(permit);
}

void ClientSession::Inside::fail_later(std::uint32_t permit, std::error_code error) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.state == RequestState::held);
    RTRS_ASSERT(error);  // a failure is never reported as success
    request.state = RequestState::failing;
    request.error = error.value();
    request.error_category = &error.category();
    --held;
    report_soon(permit);
    if (request.sent && !closing) fate_unknown(permit);
}

void ClientSession::Inside::report_soon(std::uint32_t permit) {
    if (requests[permit].sent) ++given_up_untold;
    failures.push_back(permit);
    failure_timer.arm(environment.clock.now());
}

void ClientSession::Inside::fail_held(std::error_code error) {
    for (std::uint32_t id = 0; id < request_permits() && held > 0; ++id) {
        if (requests[id].state == RequestState::held) fail_later(id, error);
    }
    report_unsettled();
}

// Reports the failures that waited for their permits to be settled. While the link is down, nothing
// can be started before those are settled anyway (ClientSessionOptions::Unsettled).
void ClientSession::Inside::report_unsettled() {
    for (std::uint32_t id = 0; id < request_permits() && waiting_for_settlement > 0; ++id) {
        Request& request = requests[id];
        if (request.state != RequestState::failing || !request.report_when_settled) continue;
        request.report_when_settled = false;
        --waiting_for_settlement;
        report_soon(id);
    }
}

void ClientSession::Inside::report_failures() {
    std::vector<std::uint32_t> now_failing;
    now_failing.swap(failures);
    for (const std::uint32_t permit : now_failing) {
        Request& request = requests[permit];
        RTRS_ASSERT(request.state == RequestState::failing);
        request.state = RequestState::free;
        if (request.sent) --given_up_untold;
        request.responded(request.context, Permit(self, PermitId{permit}),
                          std::error_code(request.error, *request.error_category));
    }
    if (dead && !closing) {
        for (const PathRecord& record : paths) record.path->close();
        fail_held(Error::rejected);
    }
    join_without_hope();
    erase_removed_paths();
    fail_users();
    announce_link_if_ready();
    finish_close_if_done();
}

// --- Without sequence numbers: asking about lost paths over other paths.

bool ClientSession::Inside::waits_for_fence(std::uint16_t path) const noexcept {
    if (exactly_once() || paths[path].path->connected()) return false;
    for (std::uint32_t id = 0; id < geometry.queue_depth && (held > 0 || unsettled > 0); ++id) {
        const Request& request = requests[id];
        if (request.fate != Fate::settled && request.fate_path == path) return true;
        if (request.state == RequestState::held && request.sent && request.path == path) {
            return true;
        }
    }
    return false;
}

void ClientSession::Inside::ask_for_fences() {
    if (exactly_once() || closing || paths_up == 0) return;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (waits_for_fence(static_cast<std::uint16_t>(i))) paths[i].fence_probe->start();
    }
}

std::expected<std::unique_ptr<Endpoint>, std::error_code> ClientSession::Inside::dial_fence_probe(
    FenceProbe& probe) {
    const auto lost = std::ranges::find_if(
        paths, [&](const PathRecord& record) { return record.fence_probe.get() == &probe; });
    const auto via = std::ranges::find_if(
        paths, [](const PathRecord& record) { return record.path->connected(); });
    if (via == paths.end()) return nullptr;
    return lost->path->dial_over(*via->path, probe);
}

void ClientSession::Inside::path_is_fenced(FenceProbe& probe) {
    const auto lost = std::ranges::find_if(
        paths, [&](const PathRecord& record) { return record.fence_probe.get() == &probe; });
    const auto index = static_cast<std::uint16_t>(lost - paths.begin());
    RTRS_RARE(fenced_over_another);
    trace(TraceLevel::info, "the server has finished with path " +
                                std::string(lost->path->address_label()) +
                                ": what it left goes on over others");
    settle_path(index);
    for (std::uint32_t id = 0; id < request_permits() && held > 0; ++id) {
        Request& request = requests[id];
        if (request.state == RequestState::held && request.path == index) request.path = no_path;
    }
    if (link_up) send_held(no_path);
    if (lost->removing) failure_timer.arm(environment.clock.now());
}

void ClientSession::Inside::fence_probe_drained() { failure_timer.arm(environment.clock.now()); }

void ClientSession::Inside::settle_path(std::uint16_t path) {
    for (std::uint32_t id = 0; id < geometry.queue_depth && unsettled > 0; ++id) {
        if (requests[id].fate != Fate::settled && requests[id].fate_path == path) settle(id);
    }
}

// --- The fate of permits.

void ClientSession::Inside::fate_unknown(std::uint32_t permit) {
    Request& request = requests[permit];
    if (planted(PlantedBug::permit_reused_early)) return;
    if (request.fate != Fate::settled) return;
    request.fate = Fate::unknown;
    request.fate_path = request.path;
    ++unsettled;
    if (permit != user_permit()) {
        pool.doubted();
        serve_waiters_soon();
    }
    const bool came_back =
        !exactly_once() && (request.path == no_path || paths[request.path].path->connected());
    if (came_back) return settle(permit);
    if (exactly_once()) return send_fence(permit);
    ask_for_fences();
}

void ClientSession::Inside::settle(std::uint32_t permit) {
    Request& request = requests[permit];
    RTRS_ASSERT(request.fate != Fate::settled);
    request.fate = Fate::settled;
    --unsettled;
    const bool told = options.unsettled == ClientSessionOptions::Unsettled::owner && !closing;
    if (permit == user_permit()) {
        failure_timer.arm(environment.clock.now());  // whoever waited for it goes on
        return;
    }
    pool.settled();
    if (told) handler.on_settled(PermitId{permit});
    if (request.state == RequestState::free) {
        if (pool.take_doubtful(PermitId{permit})) to_pool(permit);
    } else if (request.state == RequestState::failing && request.report_when_settled) {
        request.report_when_settled = false;
        --waiting_for_settlement;
        report_soon(permit);
    } else if (request.state == RequestState::held && link_up && !request.owner_decides) {
        // The caller that took the permit has used it for another request meanwhile.
        send_or_hold(permit, environment.clock.now());
    }
}

// The session has ended: its connections are gone, and the server ends what it had of the session.
void ClientSession::Inside::settle_all() {
    for (std::uint32_t id = 0; id < geometry.queue_depth && unsettled > 0; ++id) {
        if (requests[id].fate != Fate::settled) settle(id);
    }
}

void ClientSession::Inside::send_fences() {
    for (std::uint32_t id = 0; id < geometry.queue_depth && unsettled > 0; ++id) {
        if (requests[id].fate == Fate::unknown) send_fence(id);
    }
}

void ClientSession::Inside::send_fence(std::uint32_t permit) {
    Request& request = requests[permit];
    // If the path has not handed the request back yet, a fence would compete with it.
    if (request.state == RequestState::in_flight || closing) return;
    const Instant now = environment.clock.now();
    const std::uint16_t path = choose_path(0, now);
    if (path == no_path) return;
    RTRS_RARE(fence_sent);
    request.fate = Fate::fencing;
    request.fate_path = path;
    ClientPath& on = *paths[path].path;
    request.connection = on.connection_of(permit);
    request.fence_posted = now;
    expect_answer(request.fence_posted);
    // A request that the permit's taker has submitted meanwhile comes after the fence.
    const Sequence fence = ++last_sequence;
    if (request.state == RequestState::held && !request.sent) request.sequence = ++last_sequence;
    on.post({.permit = permit,
             .direction = Direction::write,
             .payload_bytes = 0,
             .message_bytes = 0,
             .payload = {},
             .target = {},
             .header = header(permit) + fence_offset,
             .sequence = fence,
             .connection = request.connection});
}

// --- Permits.

void ClientSession::Inside::put(PermitId id) {
    Request& request = requests[static_cast<std::uint32_t>(id)];
    RTRS_ASSERT(request.state == RequestState::free);
    if (request.fate == Fate::settled) return to_pool(static_cast<std::uint32_t>(id));
    // What is submitted with it waits unsent, so others come first. While the link is down it may
    // be taken all the same, so that nobody waits for a permit only to fail.
    pool.put_doubtful(id);
    serve_waiters_soon();
}

void ClientSession::Inside::to_pool(std::uint32_t permit) {
    if (lend_to_user(permit)) return;
    pool.put(PermitId{permit});
    serve_waiters_soon();
}

void ClientSession::Inside::serve_waiters_soon() {
    if (pool.waiting() && !waiter_timer.armed()) waiter_timer.arm(environment.clock.now());
}

void ClientSession::Inside::serve_waiters() {
    while (PermitWaiter* waiter = pool.next_served()) {
        for (Permit& permit : waiter->permits) permit = Permit(self, pool.take());
        waiter->granted(*waiter);
    }
}

// --- Late answers.

// If an answer is late, its path is probed: a black hole is found before the heartbeat notices. A
// path that only answers slowly stays, and is probed again as long as the answer is late: what
// ended the last probe may have been sent before the path was lost. When the probe has had its
// time, the connection that carried the request is judged.
void ClientSession::Inside::watch() {
    const Instant now = environment.clock.now();
    Instant next = Instant::max();
    for (std::uint32_t id = 0; id < geometry.queue_depth && (in_flight > 0 || unsettled > 0);
         ++id) {
        const Request& request = requests[id];
        if (request.fate == Fate::fencing) {
            next = std::min(next, watch_answer(request.fate_path, request.connection,
                                               request.fence_posted, now));
        } else if (request.state == RequestState::in_flight) {
            next =
                std::min(next, watch_answer(request.path, request.connection, request.posted, now));
        }
    }
    // Without sequence numbers the server may be a kernel, which is not probed meanwhile
    // (ClientPath).
    if (user_path != no_path && exactly_once()) {
        next = std::min(next, watch_answer(user_path, 0, user_posted, now));
    }
    // Only after all connections are judged, because none is judged while a probe is under way.
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (!std::exchange(paths[i].probe_due, false)) continue;
        if (paths[i].path->probe()) ++paths[i].counters.probes;
    }
    if (next != Instant::max()) watch_timer.arm(next);
}

// Returns until when the request need not be looked at again.
Instant ClientSession::Inside::watch_answer(std::uint16_t path, std::uint16_t connection,
                                            Instant posted, Instant now) {
    const Instant late = posted + options.request_deadline;
    if (now < late) return late;
    // If this process stood still meanwhile, it has not asked the network yet: the connection is
    // judged the next time.
    ClientPath& judged = *paths[path].path;
    judged.doubt_connection(connection);
    Instant again = late + options.probe_timeout;
    if (now >= again) again = judged.judge_connection(connection, options.probe_timeout);
    // Only now: the owner, who hears of a lost link, may have added a path.
    PathRecord& record = paths[path];
    // An answer that has become late since the last probe does not wait for the next one.
    if (record.probed < late || now >= record.probed + options.request_deadline) {
        record.probed = now;
        record.probe_due = true;
    }
    return std::min(again, record.probed + options.request_deadline);
}

void ClientSession::Inside::expect_answer(Instant posted) {
    if (!watch_timer.armed()) watch_timer.arm(posted + options.request_deadline);
}

}  // namespace rtrs
