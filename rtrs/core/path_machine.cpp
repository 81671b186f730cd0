#include "rtrs/core/path_machine.h"

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/duration_text.h"

namespace rtrs {

const char* to_string(PathState state) noexcept {
    switch (state) {
        case PathState::idle:
            return "idle";
        case PathState::connecting:
            return "connecting";
        case PathState::exchanging:
            return "exchanging";
        case PathState::connected:
            return "connected";
        case PathState::draining:
            return "draining";
        case PathState::backoff:
            return "backoff";
        case PathState::closing:
            return "closing";
        case PathState::closed:
            return "closed";
    }
    return "?";
}

namespace {

Duration doubled(Duration delay, std::uint32_t times, Duration most) {
    for (std::uint32_t i = 0; i < times && delay < most; ++i) delay *= 2;
    return std::min(delay, most);
}

}  // namespace

PathMachine::PathMachine(Settings settings, Random& random) noexcept
    : settings_(settings), random_(random) {
    RTRS_ASSERT(settings.shaky_losses >= 1 && settings.shaky_losses <= losses_kept);
}

PathMachine::Actions PathMachine::go(PathState state, Instant now, std::uint32_t actions) {
    state_ = state;
    since_ = now;
    deadline_.reset();
    dial_at_once_ = false;
    joins_ = false;
    lost_ = false;
    held_back_ = false;
    if (state == PathState::connecting) {
        deadline_ = now + settings_.connect_timeout;
        close_cause_ = CloseCause::none;
    }
    return static_cast<Actions>(actions);
}

PathMachine::Actions PathMachine::step(Event event, Instant now, OtherPaths others) {
    switch (event) {
        case Event::open:
            return open(now);
        case Event::all_established: {
            RTRS_ASSERT(state_ == PathState::connecting);
            // One deadline covers the whole attempt, from dialling to the info response.
            const auto deadline = deadline_;
            const Actions actions = go(PathState::exchanging, now, send_info_request);
            deadline_ = deadline;
            return actions;
        }
        case Event::info_accepted:
            RTRS_ASSERT(state_ == PathState::exchanging);
            failures_ = 0;
            ++connects_;
            return go(PathState::connected, now, path_up);
        case Event::join: {
            RTRS_ASSERT(state_ == PathState::exchanging);
            const Actions actions = go(PathState::draining, now, disconnect);
            joins_ = true;
            return actions;
        }
        case Event::failed:
            return fail(now);
        case Event::drained:
            return drained(now, others);
        case Event::deadline:
            if (!deadline_ || now < *deadline_) return nothing;
            if (state_ == PathState::backoff) return go(PathState::connecting, now, dial);
            return fail(now);
        case Event::close:
            return close(now, CloseCause::asked);
        case Event::reconnect:
            return reconnect(now);
        case Event::disconnect:
            return close(now, CloseCause::disconnected);
        case Event::needed:
            return held_back_ ? go(PathState::connecting, now, dial) : nothing;
    }
    return nothing;
}

PathMachine::Actions PathMachine::open(Instant now) {
    switch (state_) {
        case PathState::closed:
            forget_losses();  // an operator's request starts afresh
            return go(PathState::connecting, now, dial);
        case PathState::idle:
        case PathState::backoff:
            return go(PathState::connecting, now, dial);
        case PathState::connecting:
        case PathState::exchanging:
        case PathState::connected:
        case PathState::draining:
        case PathState::closing:
            return nothing;
    }
    return nothing;
}

PathMachine::Actions PathMachine::fail(Instant now) {
    switch (state_) {
        case PathState::connecting:
        case PathState::exchanging:
            ++failures_;
            ++failures_total_;
            return go(PathState::draining, now, disconnect);
        case PathState::connected: {
            note_loss(now);
            const Actions actions = go(PathState::draining, now, path_down | disconnect);
            lost_ = true;
            return actions;
        }
        case PathState::idle:
        case PathState::draining:
        case PathState::backoff:
        case PathState::closing:
        case PathState::closed:
            return nothing;
    }
    return nothing;
}

PathMachine::Actions PathMachine::drained(Instant now, OtherPaths others) {
    if (state_ == PathState::closing) return go(PathState::closed, now, hand_back | report_closed);
    RTRS_ASSERT(state_ == PathState::draining);
    if (dial_at_once_) {
        const Actions actions = go(PathState::backoff, now, hand_back);
        deadline_ = now;
        return actions;
    }
    if (!joins_ && settings_.attempts_max && failures_ >= *settings_.attempts_max) {
        close_cause_ = CloseCause::gave_up;
        return go(PathState::closed, now, hand_back | report_closed);
    }
    // Failed attempts of a path that was not connected are no sign of shakiness: they have their
    // own back-off.
    const bool hold = lost_ && shaky_in_a_row_ > 0 && others == OtherPaths::usable;
    const Actions actions = go(PathState::backoff, now, hand_back);
    if (hold) RTRS_RARE(shaky_path);
    held_back_ = hold;
    deadline_ = now + (hold ? shaky_delay() : backoff_delay());
    return actions;
}

PathMachine::Actions PathMachine::close(Instant now, CloseCause cause) {
    if (state_ != PathState::closed &&
        (state_ != PathState::closing || cause == CloseCause::asked)) {
        close_cause_ = cause;
    }
    switch (state_) {
        case PathState::idle:
        case PathState::backoff:
            return go(PathState::closed, now, report_closed);
        case PathState::connecting:
        case PathState::exchanging:
            return go(PathState::closing, now, disconnect);
        case PathState::connected:
            return go(PathState::closing, now, path_down | disconnect);
        case PathState::draining:
            return go(PathState::closing, now, nothing);
        case PathState::closing:
        case PathState::closed:
            return nothing;
    }
    return nothing;
}

PathMachine::Actions PathMachine::reconnect(Instant now) {
    switch (state_) {
        case PathState::idle:
        case PathState::backoff:
        case PathState::closed:
            forget_losses();
            return go(PathState::connecting, now, dial);
        case PathState::connected: {
            forget_losses();
            const Actions actions = go(PathState::draining, now, path_down | disconnect);
            dial_at_once_ = true;
            return actions;
        }
        case PathState::draining:
            forget_losses();
            dial_at_once_ = true;
            return nothing;
        case PathState::connecting:
        case PathState::exchanging:
        case PathState::closing:
            return nothing;
    }
    return nothing;
}

void PathMachine::note_loss(Instant now) {
    losses_[loss_count_++ % losses_kept] = now;
    lived_ = now - since_;
    const std::size_t kept = std::min<std::uint64_t>(loss_count_, losses_kept);
    losses_in_window_ = static_cast<std::uint32_t>(
        std::ranges::count_if(losses_.begin(), losses_.begin() + static_cast<std::ptrdiff_t>(kept),
                              [&](Instant loss) { return now - loss <= settings_.shaky_window; }));
    const bool shaky =
        lived_ < settings_.stable_time || losses_in_window_ >= settings_.shaky_losses;
    shaky_in_a_row_ = shaky ? shaky_in_a_row_ + 1 : 0;
    hasty_in_a_row_ = lived_ < settings_.hasty_time ? hasty_in_a_row_ + 1 : 0;
}

void PathMachine::forget_losses() noexcept {
    failures_ = 0;
    loss_count_ = 0;
    shaky_in_a_row_ = 0;
    hasty_in_a_row_ = 0;
}

Duration PathMachine::backoff_delay() {
    const std::uint32_t hasty = hasty_in_a_row_ - std::min(hasty_in_a_row_, settings_.hasty_losses);
    return jittered(doubled(settings_.delay_min, failures_ + hasty, settings_.delay_max));
}

Duration PathMachine::shaky_delay() {
    return jittered(
        doubled(settings_.shaky_delay_min, shaky_in_a_row_ - 1, settings_.shaky_delay_max));
}

Duration PathMachine::jittered(Duration delay) {
    // Half fixed, half random, so that the many clients of a restarted server do not come back in
    // step.
    const auto half = static_cast<std::uint64_t>(delay.count()) / 2;
    return Duration(static_cast<Duration::rep>(half + random_.below(half + 1)));
}

std::string PathMachine::hold_reason() const {
    if (!held_back_) return {};
    if (losses_in_window_ < settings_.shaky_losses) {
        return "held back: lost " + duration_text(lived_) + " after it was connected";
    }
    return "held back: " + std::to_string(losses_in_window_) +
           (losses_in_window_ == losses_kept ? " or more" : "") + " failures in " +
           duration_text(settings_.shaky_window);
}

}  // namespace rtrs
