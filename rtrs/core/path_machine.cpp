#include "rtrs/core/path_machine.h"

#include <algorithm>

#include "rtrs/base/assert.h"

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

PathMachine::Actions PathMachine::go(PathState state, Instant now, std::uint32_t actions) {
    state_ = state;
    since_ = now;
    deadline_.reset();
    if (state == PathState::connecting) deadline_ = now + settings_.connect_timeout;
    return static_cast<Actions>(actions);
}

PathMachine::Actions PathMachine::step(Event event, Instant now) {
    switch (event) {
        case Event::open:
            if (state_ == PathState::closed) failures_ = 0;  // an operator's wish starts afresh
            if (state_ == PathState::idle || state_ == PathState::backoff ||
                state_ == PathState::closed) {
                return go(PathState::connecting, now, dial);
            }
            return nothing;
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
        case Event::failed:
            return fail(now);
        case Event::drained:
            return drained(now);
        case Event::deadline:
            if (!deadline_ || now < *deadline_) return nothing;
            if (state_ == PathState::backoff) return go(PathState::connecting, now, dial);
            return fail(now);
        case Event::close:
            return close(now);
    }
    return nothing;
}

PathMachine::Actions PathMachine::fail(Instant now) {
    switch (state_) {
        case PathState::connecting:
        case PathState::exchanging:
            ++failures_;
            return go(PathState::draining, now, disconnect);
        case PathState::connected:
            return go(PathState::draining, now, path_down | disconnect);
        case PathState::idle:
        case PathState::draining:
        case PathState::backoff:
        case PathState::closing:
        case PathState::closed:
            return nothing;
    }
    return nothing;
}

PathMachine::Actions PathMachine::drained(Instant now) {
    if (state_ == PathState::closing) return go(PathState::closed, now, hand_back | report_closed);
    RTRS_ASSERT(state_ == PathState::draining);
    if (settings_.attempts_max && failures_ >= *settings_.attempts_max) {
        return go(PathState::closed, now, hand_back | report_closed);
    }
    const Actions actions = go(PathState::backoff, now, hand_back);
    deadline_ = now + backoff_delay();
    return actions;
}

PathMachine::Actions PathMachine::close(Instant now) {
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

Duration PathMachine::backoff_delay() {
    Duration delay = settings_.delay_min;
    for (std::uint32_t i = 0; i < failures_ && delay < settings_.delay_max; ++i) delay *= 2;
    delay = std::min(delay, settings_.delay_max);
    // Half fixed, half chance: many clients of a restarted server do not come back in step.
    const auto half = static_cast<std::uint64_t>(delay.count()) / 2;
    return Duration(static_cast<Duration::rep>(half + random_.below(half + 1)));
}

}  // namespace rtrs
