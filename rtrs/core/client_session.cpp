// ClientSession: the public face, and status. See client.h; what happens inside is in
// client_session_inside.h.

#include "rtrs/base/assert.h"
#include "rtrs/client.h"
#include "rtrs/core/client_session_inside.h"

namespace rtrs {

// --- Options

std::optional<Instant> ClientSessionOptions::hold_until(Instant lost) const noexcept {
    std::optional<Instant> until;
    if (hold_time) until = lost + *hold_time;
    if (hold_limit) {
        const Instant limited = std::max(lost, hold_limit->set_at) + hold_limit->time;
        until = std::min(until.value_or(limited), limited);
    }
    return until;
}

std::optional<Instant> ClientSessionOptions::fail_fast_until(Instant lost) const noexcept {
    if (!fail_fast_time) return std::nullopt;
    return std::min(lost + *fail_fast_time, hold_until(lost).value_or(Instant::max()));
}

std::optional<Duration> ClientSessionOptions::longest_hold() const noexcept {
    if (!hold_time || !hold_limit) return hold_limit ? hold_limit->time : hold_time;
    return std::min(*hold_time, hold_limit->time);
}

std::optional<Duration> ClientSessionOptions::longest_fail_fast() const noexcept {
    if (!fail_fast_time) return std::nullopt;
    return std::min(*fail_fast_time, longest_hold().value_or(*fail_fast_time));
}

Permit::Permit(Permit&& other) noexcept
    : session_(std::exchange(other.session_, nullptr)), id_(other.id_) {}

Permit& Permit::operator=(Permit&& other) noexcept {
    if (this != &other) {
        if (session_ != nullptr) session_->inside_->put(id_);
        session_ = std::exchange(other.session_, nullptr);
        id_ = other.id_;
    }
    return *this;
}

Permit::~Permit() {
    if (session_ != nullptr) session_->inside_->put(id_);
}

MutableBytes Permit::payload() const noexcept {
    RTRS_ASSERT(session_ != nullptr);
    const auto& inside = *session_->inside_;
    return {inside.memory.payload(static_cast<std::uint32_t>(id_)), inside.geometry.io_bytes_max};
}

ClientSession::ClientSession(SessionEnvironment environment, ClientSessionOptions options,
                             ClientSessionHandler& handler)
    : inside_(std::make_unique<Inside>(*this, environment, std::move(options), handler)) {}

ClientSession::~ClientSession() {
    RTRS_ASSERT(!inside_->opened || inside_->closed);
    RTRS_ASSERT(inside_->pool.free() == inside_->pool.total());
}

std::error_code ClientSession::open() { return inside_->open(); }
void ClientSession::close() { inside_->close(); }
bool ClientSession::link_up() const noexcept { return inside_->link_up; }
std::uint32_t ClientSession::queue_depth() const noexcept { return inside_->geometry.queue_depth; }
std::uint32_t ClientSession::max_io_bytes() const noexcept {
    return inside_->geometry.io_bytes_max;
}
std::uint32_t ClientSession::permits_max() const noexcept { return inside_->pool.total(); }

std::optional<Permit> ClientSession::try_take() {
    if (!inside_->pool.can_take(1)) return std::nullopt;
    return Permit(*this, inside_->pool.take());
}

bool ClientSession::try_take(std::span<Permit> permits) {
    if (!inside_->pool.can_take(static_cast<std::uint32_t>(permits.size()))) return false;
    for (Permit& permit : permits) permit = Permit(*this, inside_->pool.take());
    return true;
}

bool ClientSession::take_or_wait(PermitWaiter& waiter) {
    RTRS_ASSERT(waiter.count >= 1 && waiter.permits.size() == waiter.count);
    RTRS_ASSERT(waiter.count <= permits_max());
    if (try_take(waiter.permits)) return true;
    inside_->pool.wait(waiter);
    return false;
}

void ClientSession::stop_waiting(PermitWaiter& waiter) noexcept {
    inside_->pool.stop_waiting(waiter);
    // The next in line may need less.
    if (inside_->pool.waiting()) inside_->waiter_timer.arm(inside_->environment.clock.now());
}

std::error_code ClientSession::refuses_new() const noexcept { return inside_->refuse_new; }

void ClientSession::submit(Permit permit, const ClientRequest& request) {
    RTRS_ASSERT(permit.session_ == this);
    permit.session_ = nullptr;  // it belongs to the request now
    inside_->submit(static_cast<std::uint32_t>(permit.id_), request);
}

void ClientSession::submit_user(Direction direction, Bytes message, std::uint32_t response_bytes,
                                UserResponded responded, void* context) {
    RTRS_ASSERT(message.size() <= user_message_bytes_max && response_bytes <= control_bytes);
    inside_->submit_user(
        {direction, {message.begin(), message.end()}, response_bytes, responded, context});
}

bool ClientSession::held(PermitId id) const noexcept {
    return inside_->requests[static_cast<std::uint32_t>(id)].state == Inside::RequestState::held;
}

bool ClientSession::settled(PermitId id) const noexcept {
    const auto& request = inside_->requests[static_cast<std::uint32_t>(id)];
    return request.fate == Inside::Fate::settled || !inside_->exactly_once();
}

MutableBytes ClientSession::message(PermitId id) noexcept {
    const auto permit = static_cast<std::uint32_t>(id);
    return {inside_->header(permit), inside_->requests[permit].message_bytes};
}

void ClientSession::resume(PermitId id, Attempts earlier) {
    inside_->resume(static_cast<std::uint32_t>(id), earlier);
}

void ClientSession::fail(PermitId id, std::error_code error) {
    inside_->fail(static_cast<std::uint32_t>(id), error);
}

std::error_code ClientSession::add_path(const PathAddress& address) {
    return inside_->add_path(address);
}

std::error_code ClientSession::operate_path(std::string_view label, PathOperation operation) {
    return inside_->operate(label, operation);
}

std::error_code ClientSession::set_path_priority(std::string_view label,
                                                 PathPriority priority) noexcept {
    for (std::size_t i = 0; i < inside_->paths.size(); ++i) {
        if (inside_->paths[i].removing) continue;
        if (inside_->paths[i].path->address_label() != label) continue;
        inside_->paths[i].path->set_priority(priority);
        inside_->loads[i].priority = priority;
        return {};
    }
    return from_errno(ENOENT);
}

void ClientSession::set_policy(PathPolicy policy) noexcept { inside_->selector.set_policy(policy); }

void ClientSession::set_waiting(std::optional<Duration> hold_time,
                                std::optional<Duration> fail_fast_time,
                                std::optional<ClientSessionOptions::HoldLimit> hold_limit) {
    RTRS_ASSERT(!hold_time || !fail_fast_time || *fail_fast_time <= *hold_time);
    inside_->options.hold_time = hold_time;
    inside_->options.fail_fast_time = fail_fast_time;
    inside_->options.hold_limit = hold_limit;
    inside_->arm_waiting();
}

void ClientSession::set_request_deadline(Duration deadline) {
    RTRS_ASSERT(deadline > Duration::zero());
    inside_->options.request_deadline = deadline;
    // The watch may be armed for a time at which, with the new deadline, the next answer is already
    // late.
    Timer& watch = inside_->watch_timer;
    if (watch.armed()) watch.arm(inside_->environment.clock.now());
}

MessageService* ClientSession::messages() noexcept { return inside_->messages(); }

bool ClientSession::peer_has_messages() const noexcept { return inside_->peer_has_messages; }

void ClientSession::set_reconnect_attempts_max(std::optional<std::uint32_t> attempts) noexcept {
    inside_->options.reconnect_attempts_max = attempts;
    for (const auto& record : inside_->paths) record.path->set_attempts_max(attempts);
}

const ClientSessionOptions& ClientSession::options() const noexcept { return inside_->options; }

ClientSessionStatus ClientSession::status() const {
    const Inside& in = *inside_;
    ClientSessionStatus status{.link_up = link_up(),
                               .since = in.since,
                               .reason = in.reason,
                               .queue_depth = in.protection ? queue_depth() : 0,
                               .max_io_bytes = in.protection ? max_io_bytes() : 0,
                               .permits_free = in.protection ? in.pool.free() : 0,
                               .in_flight = in.in_flight,
                               .held = in.held,
                               .unsettled = in.unsettled,
                               .protection = in.protection,
                               .policy = in.selector.policy(),
                               .hold_until = {},
                               .refusing = in.refusing,
                               .paths = {}};
    if (in.hold_timer.armed()) status.hold_until = in.options.hold_until(in.since);
    for (std::size_t i = 0; i < in.paths.size(); ++i) {
        const Inside::PathRecord& record = in.paths[i];
        PathStatus& path = status.paths.emplace_back(record.path->status());
        path.in_flight = in.loads[i].in_flight();
        path.counters = record.counters;
        if (record.latency.count() == 0) continue;
        path.latency_p50 = record.latency.percentile(50);
        path.latency_p99 = record.latency.percentile(99);
        path.latency_max = record.latency.max();
        path.latencies = record.latency;
    }
    return status;
}

std::vector<RequestStatus> ClientSession::requests() const {
    std::vector<RequestStatus> all;
    for (std::uint32_t id = 0; id < inside_->request_permits(); ++id) {
        if (const auto status = inside_->request_status(id)) all.push_back(*status);
    }
    return all;
}

std::optional<RequestStatus> ClientSession::Inside::request_status(std::uint32_t permit) const {
    using Stage = RequestStatus::Stage;
    const Request& request = requests[permit];
    if (request.state == RequestState::free) return std::nullopt;
    RequestStatus status{.permit = PermitId{permit},
                         .stage = Stage::no_path,
                         .direction = request.direction,
                         .payload_bytes = request.payload_bytes,
                         .attempts = request.attempts,
                         .sequence = request.sequence,
                         .submitted = request.submitted,
                         .posted = request.posted,
                         .path = {}};
    if (request.path != no_path) status.path = paths[request.path].path->address_label();
    if (request.state == RequestState::in_flight) {
        status.stage = Stage::in_flight;
    } else if (request.fate != Fate::settled) {
        status.stage = Stage::settling;
    } else if (request.state == RequestState::failing) {
        status.stage = Stage::failing;
    } else if (link_up && request.owner_decides) {
        status.stage = Stage::owner;
    } else if (link_up && request.sent && !exactly_once()) {
        status.stage = Stage::lost_path;
    }
    return status;
}

const char* to_string(RequestStatus::Stage stage) noexcept {
    switch (stage) {
        case RequestStatus::Stage::in_flight:
            return "in flight";
        case RequestStatus::Stage::no_path:
            return "held: no path is up";
        case RequestStatus::Stage::owner:
            return "held: the volume is being opened again";
        case RequestStatus::Stage::lost_path:
            return "held: until the server has finished with its lost path";
        case RequestStatus::Stage::settling:
            return "until older attempts are over";
        case RequestStatus::Stage::failing:
            return "failing";
    }
    return "?";
}

}  // namespace rtrs
