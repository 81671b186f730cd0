#include <algorithm>
#include <cerrno>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/sim/sim_connection.h"

namespace rtrs::sim {

SimEndpoint::SimEndpoint(Connection& connection, SideIndex side, Domain& domain,
                         const EndpointOptions& options, EndpointHandler& handler)
    : connection_(connection),
      side_(side),
      domain_(domain),
      process_(domain.process()),
      options_(options),
      handler_(handler),
      state_(side == 0 ? State::dialling : State::accepting) {
    if (const auto most = connection.world().options().send_queue_depth_max; most > 0) {
        options_.send_queue_depth = std::min(options_.send_queue_depth, most);
    }
    RTRS_ASSERT(depths_valid(options));
    connection_.hold();
    connection_.attach(side, *this, process_);
}

SimEndpoint::~SimEndpoint() {
    RTRS_ASSERT(!alive() || state_ == State::drained);
    connection_.detach(side_);
    connection_.release();
}

bool SimEndpoint::alive() noexcept { return process_.alive(); }

// --- Posting

std::error_code SimEndpoint::check(std::span<const WorkRequest> chain) const {
    for (const WorkRequest& request : chain) {
        RTRS_ASSERT(request.local.size() <= max_segments);
        const bool one =
            request.opcode == WorkOpcode::read || request.opcode == WorkOpcode::bind_window;
        RTRS_ASSERT(!one || request.local.size() == 1);
        RTRS_ASSERT(request.opcode != WorkOpcode::bind_window || request.window.of != nullptr);
        std::uint64_t bytes = 0;
        for (const Segment& segment : request.local) {
            bytes += segment.bytes;
            RTRS_ASSERT(domain_.covers(segment));
        }
        if (bytes > payload_bytes_max && request.opcode != WorkOpcode::bind_window) {
            return from_errno(EMSGSIZE);
        }
    }
    return {};
}

std::error_code SimEndpoint::post(std::span<const WorkRequest> chain) {
    RTRS_ASSERT(state_ != State::dialling && state_ != State::accepting);
    if (!alive()) return {};
    if (state_ == State::drained) return from_errno(ENOTCONN);
    if (const std::error_code error = check(chain)) return error;
    if (taken_places() + chain.size() > options_.send_queue_depth) {
        return from_errno(ENOBUFS);
    }
    for (const WorkRequest& request : chain) start(request);
    return {};
}

std::size_t SimEndpoint::taken_places() const noexcept {
    using Place = SimOptions::RevokePlace;
    const bool with_revokes = connection_.world().options().revoke_place == Place::of_sends;
    return work_.size() + held_slots_ + (with_revokes ? revokes_.size() : 0);
}

void SimEndpoint::start(const WorkRequest& request) {
    work_.push_back({.context = request.context,
                     .opcode = request.opcode,
                     .signal = request.signal,
                     .target = request.local.empty() ? Segment{} : request.local[0]});
    if (state_ != State::established) return;  // flushed with the rest
    if (request.opcode == WorkOpcode::bind_window) {
        static_cast<Windows&>(*request.window.of).bind(request.window.number, request.local[0]);
        finish_binds();
        wake();
        return;
    }
    Message message{.kind = Message::Kind::work,
                    .opcode = request.opcode,
                    .segments = static_cast<std::uint8_t>(request.local.size()),
                    .immediate = request.immediate,
                    .invalidate = request.invalidate,
                    .remote = request.remote};
    for (std::size_t i = 0; i < request.local.size(); ++i) {
        message.local[i] = request.local[i];
        message.bytes += request.local[i].bytes;
    }
    const SimOptions& options = connection_.world().options();
    if (!options.late_source_reads) {
        connection_.snapshot(message);
    } else if (options.watch_sources && message.bytes > 0 && message.opcode != WorkOpcode::read) {
        message.posted_sum = source_sum(message.source());
        watch_until_completion(message);
    }
    connection_.send(side_, std::move(message));
}

Endpoint::SourceRelease SimEndpoint::source_release() const noexcept {
    return connection_.world().options().source_release;
}

// The client's: into a server's chunks the peer writes when it likes.
void SimEndpoint::watch_until_completion(const Message& message) {
    Work& work = work_.back();
    if (source_release() != SourceRelease::by_completion || side_ != 0 ||
        work.signal == Signal::none) {
        return;
    }
    work.local = message.local;
    work.segments = message.segments;
    work.posted_sum = message.posted_sum;
}

std::error_code SimEndpoint::post_receive(std::uint64_t context, Segment buffer) {
    RTRS_ASSERT(domain_.covers(buffer));
    if (!alive()) return {};
    if (state_ == State::drained) return from_errno(ENOTCONN);
    if (receives_.size() >= options_.receive_queue_depth) return from_errno(ENOBUFS);
    receives_.push_back({context, buffer});
    return {};
}

RevokeResult SimEndpoint::post_revoke(MemoryWindow window, std::uint64_t context) {
    using Mode = SimOptions::Revoke;
    SimWorld& world = connection_.world();
    const Mode mode = world.options().revoke;
    const bool at_once = mode == Mode::effective ||
                         (mode == Mode::drawn && world.random().chance(1, 2)) ||
                         state_ != State::established || !alive();
    // Answers keep the order of the questions.
    if (at_once && revokes_.empty()) {
        static_cast<Windows&>(*window.of).revoke(window.number);
        return RevokeResult::effective;
    }
    revokes_.push_back({context, window.key()});
    last_revoke_ = std::max(last_revoke_, world.now() + world.draw_delay());
    connection_.schedule(last_revoke_, Connection::Event::revoke, side_);
    return RevokeResult::pending;
}

void SimEndpoint::complete_revoke() {
    if (revokes_.empty()) return;  // flushed
    const Revoke revoke = revokes_.pop_front();
    process_.keys().kill(revoke.key);
    report({.opcode = CompletionOpcode::revoke, .context = revoke.context});
}

void SimEndpoint::disconnect(std::error_code why) {
    if (!alive()) return;
    fail({.told = why});
    wake();
}

std::string SimEndpoint::local_address() const {
    return state_ == State::established ? connection_.address(side_).text() : std::string();
}

std::string SimEndpoint::remote_address() const {
    return state_ == State::established ? connection_.address(other(side_)).text() : std::string();
}

Duration SimEndpoint::unacknowledged() const noexcept {
    return state_ == State::established ? connection_.unacknowledged(side_) : Duration::zero();
}

Duration SimEndpoint::quiet() const noexcept {
    const bool all_taken = state_ == State::established && unacknowledged() == Duration::zero();
    return all_taken ? connection_.quiet(side_) : Duration::zero();
}

// --- Life

void SimEndpoint::establish() {
    state_ = State::established;
    reports_.push_back({Report::Kind::established});
}

void SimEndpoint::reject() { go_down(Report::Kind::rejected, {.farewell = Farewell::answered}); }

void SimEndpoint::fail(const Failure& failure) {
    if (state_ < State::down) go_down(Report::Kind::disconnected, failure);
}

void SimEndpoint::go_down(Report::Kind first, const Failure& failure) {
    state_ = State::down;
    failure_ = failure;
    connection_.depart(side_, failure.farewell, failure.told);
    const std::size_t unheard = reports_.size();
    reports_.push_back({first});
    if (failure.reason == Error::closed_by_peer &&
        options_.end_news == EndpointOptions::EndNews::at_once) {
        for (std::size_t i = 0; i < unheard; ++i) reports_.push_back(reports_.pop_front());
    }
    SimWorld& world = connection_.world();
    connection_.schedule(world.now() + world.draw_below(world.options().drain_max),
                         Connection::Event::drain, side_);
}

void SimEndpoint::drain() {
    connection_.let_go(side_);
    state_ = State::draining;
}

void SimEndpoint::flush() {
    while (!work_.empty()) {
        complete(work_.pop_front(), failure_.send);
        failure_.send = CompletionStatus::flushed;
    }
    while (!receives_.empty()) {
        report({.opcode = CompletionOpcode::receive,
                .status = failure_.receive,
                .context = receives_.pop_front().context});
        failure_.receive = CompletionStatus::flushed;
    }
    while (!revokes_.empty()) {
        const Revoke revoke = revokes_.pop_front();
        process_.keys().kill(revoke.key);
        report({.opcode = CompletionOpcode::revoke,
                .status = CompletionStatus::flushed,
                .context = revoke.context});
    }
}

void SimEndpoint::wake() {
    connection_.schedule(connection_.world().now(), Connection::Event::turn, side_);
}

void SimEndpoint::turn() {
    // A handler may destroy this endpoint (on_drained) or crash the host.
    Connection& connection = connection_;
    const SideIndex side = side_;
    while (connection.endpoint(side) == this && alive()) {
        if (!reports_.empty()) {
            hand_out(reports_.pop_front());
            continue;
        }
        if (state_ != State::draining) return;
        if (!work_.empty() || !receives_.empty() || !revokes_.empty()) {
            flush();
            continue;
        }
        state_ = State::drained;
        handler_.on_drained();
        return;
    }
}

void SimEndpoint::hand_out(const Report& report) {
    switch (report.kind) {
        case Report::Kind::established:
            handler_.on_established(side_ == 0 ? connection_.reply_data() : MutableBytes{});
            break;
        case Report::Kind::rejected:
            handler_.on_rejected(connection_.reply_data());
            break;
        case Report::Kind::disconnected:
            handler_.on_disconnected(failure_.reason);
            break;
        case Report::Kind::completion:
            handler_.on_completion(report.completion);
            break;
    }
}

// --- Completing own work

void SimEndpoint::report(const Completion& completion) {
    reports_.push_back({Report::Kind::completion, completion});
}

void SimEndpoint::complete(const Work& work, CompletionStatus status) {
    const bool good = status == CompletionStatus::success;
    if (good && work.signal == Signal::none) {
        const SimOptions& options = connection_.world().options();
        if (options.unsignalled_slot == SimOptions::UnsignalledSlot::freed_by_completion) {
            ++held_slots_;
        }
        return;
    }
    held_slots_ = 0;
    report({.opcode = CompletionOpcode::send, .status = status, .context = work.context});
}

// Binds take effect when posted but complete in their turn.
void SimEndpoint::finish_binds() {
    while (!work_.empty() && work_.front().opcode == WorkOpcode::bind_window) {
        complete(work_.pop_front(), CompletionStatus::success);
    }
}

void SimEndpoint::complete(Answer& answer) {
    if (state_ != State::established) return;
    if (answer.status != CompletionStatus::success) {
        const Error reason = answer.status == CompletionStatus::remote_access ? Error::remote_access
                                                                              : Error::protocol;
        fail({.reason = reason, .send = answer.status, .farewell = Farewell::answered});
        return;
    }
    const Work work = work_.pop_front();
    if (work.posted_sum != 0 && source_sum(work.source()) != work.posted_sum) {
        connection_.world().note_changed_source();
    }
    if (answer.data) {
        RTRS_ASSERT(domain_.covers(work.target));
        std::copy_n(answer.data.get(), answer.bytes, work.target.data);
    }
    complete(work, CompletionStatus::success);
    finish_binds();
}

// --- Serving the peer's work

Answer SimEndpoint::refuse(CompletionStatus status) {
    Failure failure{.reason = Error::protocol, .farewell = Farewell::answered};
    if (status == CompletionStatus::remote_access) failure.reason = Error::remote_access;
    if (status == CompletionStatus::length) failure.receive = status;
    fail(failure);
    return {.status = status};
}

Answer SimEndpoint::receive(const Message& message) {
    switch (message.opcode) {
        case WorkOpcode::send:
        case WorkOpcode::send_immediate:
        case WorkOpcode::send_invalidate:
            return receive_send(message);
        case WorkOpcode::write:
        case WorkOpcode::write_immediate:
            return receive_write(message);
        case WorkOpcode::read:
            return receive_read(message);
        case WorkOpcode::bind_window:
            break;
    }
    return refuse(CompletionStatus::transport);
}

Answer SimEndpoint::receive_send(const Message& message) {
    if (receives_.empty()) return refuse(CompletionStatus::transport);
    if (message.bytes > receives_.front().buffer.bytes) return refuse(CompletionStatus::length);
    Completion completion{.opcode = CompletionOpcode::receive, .bytes = message.bytes};
    if (message.opcode == WorkOpcode::send_invalidate) {
        KeyTable::Entry* entry = process_.keys().find(message.invalidate, domain_);
        // A peer may end a window, never a registration.
        if (entry == nullptr || entry->kind != KeyTable::Entry::Kind::window) {
            return refuse(CompletionStatus::remote_access);
        }
        entry->valid = false;
        completion.opcode = CompletionOpcode::receive_invalidate;
        completion.invalidated = message.invalidate;
    }
    if (message.opcode == WorkOpcode::send_immediate) {
        completion.opcode = CompletionOpcode::receive_immediate;
        completion.immediate = message.immediate;
    }
    const Receive receive = receives_.pop_front();
    place(message, receive.buffer.data);
    completion.context = receive.context;
    report(completion);
    return {};
}

Answer SimEndpoint::receive_write(const Message& message) {
    const bool immediate = message.opcode == WorkOpcode::write_immediate;
    if (message.bytes > 0) {
        std::byte* target =
            process_.keys().access(message.remote, message.bytes, Access::remote_write, domain_);
        if (target == nullptr) return refuse(CompletionStatus::remote_access);
        if (immediate && receives_.empty()) return refuse(CompletionStatus::transport);
        place(message, target);
    }
    if (!immediate) return {};
    if (receives_.empty()) return refuse(CompletionStatus::transport);
    report({.opcode = CompletionOpcode::receive_immediate,
            .context = receives_.pop_front().context,
            .bytes = message.bytes,
            .immediate = message.immediate});
    return {};
}

Answer SimEndpoint::receive_read(const Message& message) {
    if (message.bytes == 0) return {};
    const std::byte* source =
        process_.keys().access(message.remote, message.bytes, Access::remote_read, domain_);
    if (source == nullptr) return refuse(CompletionStatus::remote_access);
    Answer answer{.bytes = message.bytes,
                  .data = connection_.world().buffers().take(message.bytes)};
    std::copy_n(source, message.bytes, answer.data.get());
    return answer;
}

void SimEndpoint::place(const Message& message, std::byte* target) {
    if (message.bytes == 0) return;
    if (message.snapshot) {
        std::copy_n(message.snapshot.get(), message.bytes, target);
        return;
    }
    SimEndpoint* sender = connection_.endpoint(other(side_));
    RTRS_ASSERT(sender != nullptr);
    connection_.watch_source(message);
    for (std::size_t i = 0; i < message.segments; ++i) {
        // Fires when a buffer was deregistered under posted work.
        RTRS_ASSERT(sender->domain_.covers(message.local[i]));
        target = std::copy_n(message.local[i].data, message.local[i].bytes, target);
    }
}

}  // namespace rtrs::sim
