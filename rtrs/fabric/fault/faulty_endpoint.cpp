#include "rtrs/fabric/fault/faulty_endpoint.h"

#include <algorithm>
#include <cerrno>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rtrs::fault {

FaultyEndpoint::FaultyEndpoint(FaultyFabric& fabric, EndpointHandler& handler)
    : fabric_(fabric),
      handler_(handler),
      due_timer_(fabric.clock_, this, member_call<&FaultyEndpoint::run_due>),
      loss_timer_(fabric.clock_, this, member_call<&FaultyEndpoint::lose>) {
    fabric_.endpoints_.push_back(*this);
}

FaultyEndpoint::~FaultyEndpoint() { IntrusiveList<FaultyEndpoint>::remove(*this); }

void FaultyEndpoint::refuse(std::error_code reason) {
    inner_drained_ = true;
    take({.kind = Event::Kind::disconnected, .reason = reason}, Duration{0});
    // Never from inside the call that made it (P3).
    due_timer_.arm(std::max(events_.front().due, fabric_.clock_.now()));
}

void FaultyEndpoint::lose() {
    if (!established_ || lost_ || disconnecting_ || inner_drained_) return;
    lost_ = true;
    loss_timer_.disarm();
    ++fabric_.statistics_.connections_lost;
    inner_->disconnect();
}

// --- Down

std::error_code FaultyEndpoint::post(std::span<const WorkRequest> chain) {
    if (inner_drained_) {
        for (const WorkRequest& request : chain) flush(CompletionOpcode::send, request.context);
        return {};
    }
    if (const std::error_code error = inner_->post(chain)) return error;
    const FaultOptions& options = fabric_.options_;
    for (std::size_t i = 0; i < chain.size(); ++i) {
        ++posts_;
        const bool scripted =
            options.lose_connection_after_posts && posts_ >= *options.lose_connection_after_posts;
        if (chain[i].opcode == WorkOpcode::bind_window &&
            fabric_.refuse(&FaultyFabric::Scripted::binds, 0)) {
            loss_ = from_errno(EOPNOTSUPP);
            lose();
        }
        if (scripted || fabric_.draw(options.lose_connection_per_million)) lose();
    }
    return {};
}

std::error_code FaultyEndpoint::post_receive(std::uint64_t context, Segment buffer) {
    if (!inner_drained_) return inner_->post_receive(context, buffer);
    flush(CompletionOpcode::receive, context);
    return {};
}

RevokeResult FaultyEndpoint::post_revoke(MemoryWindow window, std::uint64_t context) {
    RTRS_ASSERT(inner_ != nullptr);  // was refused, so it never was established
    return inner_->post_revoke(window, context);
}

void FaultyEndpoint::disconnect(std::error_code why) {
    disconnecting_ = true;
    if (!inner_drained_) inner_->disconnect(why);
    reschedule();
}

void FaultyEndpoint::finish(std::error_code why) {
    disconnecting_ = true;
    if (!inner_drained_) inner_->finish(why);
    reschedule();
}

std::string FaultyEndpoint::local_address() const {
    return inner_ ? inner_->local_address() : std::string();
}

std::string FaultyEndpoint::remote_address() const {
    return inner_ ? inner_->remote_address() : std::string();
}

// The inner endpoint is done, the handler does not know it yet.
void FaultyEndpoint::flush(CompletionOpcode opcode, std::uint64_t context) {
    if (drained_) return;
    last_due_ = std::max(last_due_, fabric_.clock_.now());
    events_.push_back(
        {.due = last_due_,
         .completion = {
             .opcode = opcode, .status = CompletionStatus::flushed, .context = context}});
    reschedule();
}

// --- Up

void FaultyEndpoint::on_established(Bytes private_data) {
    established_ = true;
    if (fabric_.options_.lose_connection_after) {
        loss_timer_.arm(fabric_.clock_.now() + *fabric_.options_.lose_connection_after);
    }
    take({.kind = Event::Kind::established,
          .private_data = {private_data.begin(), private_data.end()}},
         Duration{0});
    run_due();
}

void FaultyEndpoint::on_rejected(Bytes private_data) {
    take(
        {.kind = Event::Kind::rejected, .private_data = {private_data.begin(), private_data.end()}},
        Duration{0});
    run_due();
}

void FaultyEndpoint::on_completion(const Completion& completion) {
    const bool from_peer = completion.opcode != CompletionOpcode::send &&
                           completion.opcode != CompletionOpcode::revoke;
    const FaultOptions& options = fabric_.options_;
    if (fabric_.draw(options.stall_per_million)) {
        ++fabric_.statistics_.stalls;
        stall(options.stall_duration);
    }
    take({.completion = completion}, from_peer ? options.slow_peer : Duration{0});
    run_due();
}

void FaultyEndpoint::on_disconnected(std::error_code reason) {
    loss_timer_.disarm();
    if (lost_ && !disconnecting_) reason = loss_;
    take({.kind = Event::Kind::disconnected, .reason = reason}, Duration{0});
    run_due();
}

void FaultyEndpoint::on_drained() {
    inner_drained_ = true;
    loss_timer_.disarm();
    run_due();
}

void FaultyEndpoint::take(Event event, Duration extra_delay) {
    Duration delay = extra_delay;
    if (const auto most = fabric_.options_.completion_delay_max.count(); most > 0) {
        delay += Duration(static_cast<Duration::rep>(
            fabric_.random_.below(static_cast<std::uint64_t>(most) + 1)));
    }
    last_due_ = std::max(last_due_, fabric_.clock_.now() + delay);
    event.due = last_due_;
    events_.push_back(std::move(event));
}

void FaultyEndpoint::stall(Duration duration) noexcept {
    stalled_until_ = std::max(stalled_until_, fabric_.clock_.now() + duration);
}

Instant FaultyEndpoint::held_until() const noexcept {
    if (disconnecting_) return Instant::min();
    const Instant stall = std::max(stalled_until_, fabric_.stalled_until_);
    return events_.empty() ? stall : std::max(stall, events_.front().due);
}

void FaultyEndpoint::reschedule() {
    if (drained_ || (events_.empty() && !inner_drained_)) return;
    due_timer_.arm(std::max(held_until(), fabric_.clock_.now()));
}

void FaultyEndpoint::run_due() {
    // An inner handler that runs inside ours (it may not) or a timer: one loop is enough.
    if (running_) return;
    running_ = true;
    while (held_until() <= fabric_.clock_.now()) {
        if (!events_.empty()) {
            const Event event = std::move(events_.front());
            events_.pop_front();
            hand_out(event);
        } else if (inner_drained_) {
            drained_ = true;
            due_timer_.disarm();
            handler_.on_drained();  // may destroy this
            return;
        } else {
            break;
        }
    }
    running_ = false;
    if (!events_.empty()) ++fabric_.statistics_.events_delayed;
    reschedule();
}

void FaultyEndpoint::hand_out(const Event& event) {
    switch (event.kind) {
        case Event::Kind::established:
            handler_.on_established(event.private_data);
            break;
        case Event::Kind::rejected:
            handler_.on_rejected(event.private_data);
            break;
        case Event::Kind::completion:
            handler_.on_completion(event.completion);
            break;
        case Event::Kind::disconnected:
            handler_.on_disconnected(event.reason);
            break;
    }
}

}  // namespace rtrs::fault
