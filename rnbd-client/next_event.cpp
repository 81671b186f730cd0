#include "rnbd-client/next_event.h"

#include <algorithm>

namespace rnbd {
namespace {

using Kind = NextEvent::Kind;
using Stage = rtrs::RequestStatus::Stage;
using rtrs::PathState;

rtrs::Duration left(rtrs::Instant until, rtrs::Instant now) {
    return std::max(until - now, rtrs::Duration::zero());
}

std::optional<NextEvent> connect_of(const rtrs::PathStatus& path, rtrs::Instant now) {
    switch (path.state) {
        case PathState::closing:
        case PathState::closed:
            return std::nullopt;
        case PathState::backoff:
            return NextEvent{Kind::connect, path.label, left(path.next_attempt.value_or(now), now)};
        case PathState::idle:
        case PathState::connecting:
        case PathState::exchanging:
        case PathState::connected:
        case PathState::draining:
            return NextEvent{Kind::connect, path.label, std::nullopt};
    }
    return std::nullopt;
}

// The path that may be connected first.
NextEvent first_connect(const rtrs::ClientSessionStatus& session, rtrs::Instant now) {
    std::optional<NextEvent> best;
    for (const auto& path : session.paths) {
        if (path.state == PathState::idle) continue;
        const auto one = connect_of(path, now);
        const auto delay = [](const NextEvent& what) {
            return what.in.value_or(rtrs::Duration::zero());
        };
        if (one && (!best || delay(*one) < delay(*best))) best = one;
    }
    return best.value_or(NextEvent{Kind::no_attempt, "", std::nullopt});
}

void add_in_flight(std::vector<NextEvent>& all, const rtrs::RequestStatus& request,
                   const rtrs::PathStatus* path, const rtrs::ClientSessionOptions& options,
                   rtrs::Instant now) {
    if (path == nullptr || path->state != PathState::connected) {
        all.push_back({Kind::path_drained, request.path, std::nullopt});
        return;
    }
    const rtrs::Instant probe = request.posted + options.request_deadline;
    if (probe > now) {
        all.push_back({Kind::probe, path->label, probe - now});
    } else if (now - probe > options.probe_timeout) {
        // Without a word from the server it would have lost the path by now.
        all.push_back({Kind::answer, path->label, std::nullopt});
    }
    if (!path->dead_at) return;
    // The probe that is to come gives it less time.
    const rtrs::Instant dead =
        probe > now ? std::min(*path->dead_at, probe + options.probe_timeout) : *path->dead_at;
    all.push_back({Kind::path_dead, path->label, left(dead, now)});
}

// What ends the waiting whatever happens to paths.
void add_limit(std::vector<NextEvent>& all, const rtrs::ClientSessionOptions& options,
               std::optional<rtrs::Instant> until, rtrs::Instant now) {
    if (until) {
        all.push_back({Kind::fail, "", left(*until, now)});
    } else if (!options.longest_hold()) {
        all.push_back({Kind::held_for_ever, "", std::nullopt});
    }
}

std::optional<rtrs::Instant> earlier(std::optional<rtrs::Instant> a,
                                     std::optional<rtrs::Instant> b) {
    return a && b ? std::min(*a, *b) : a ? a : b;
}

Kind event_of(DeviceStall::Stage stage) {
    switch (stage) {
        case DeviceStall::Stage::payload:
            return Kind::payload;
        case DeviceStall::Stage::own_share:
            return Kind::own_answers;
        case DeviceStall::Stage::permit:
            return Kind::permit;
        case DeviceStall::Stage::left_behind:
            return Kind::left_behind;
        case DeviceStall::Stage::answered:
            return Kind::taken;
    }
    return Kind::taken;
}

}  // namespace

const char* to_string(Kind event) noexcept {
    switch (event) {
        case Kind::probe:
            return "probe";
        case Kind::answer:
            return "answer";
        case Kind::path_dead:
            return "path_dead";
        case Kind::path_drained:
            return "path_drained";
        case Kind::connect:
            return "connect";
        case Kind::no_attempt:
            return "no_attempt";
        case Kind::reopen:
            return "reopen";
        case Kind::fence:
            return "fence";
        case Kind::fail:
            return "fail";
        case Kind::held_for_ever:
            return "held_for_ever";
        case Kind::payload:
            return "payload";
        case Kind::own_answers:
            return "own_answers";
        case Kind::permit:
            return "permit";
        case Kind::left_behind:
            return "left_behind";
        case Kind::taken:
            return "taken";
    }
    return "?";
}

const char* word_of(DeviceStall::Stage stage) noexcept {
    switch (stage) {
        case DeviceStall::Stage::payload:
            return "payload";
        case DeviceStall::Stage::own_share:
            return "own_share";
        case DeviceStall::Stage::permit:
            return "permit";
        case DeviceStall::Stage::left_behind:
            return "left_behind";
        case DeviceStall::Stage::answered:
            return "answered";
    }
    return "?";
}

const char* word_of(Stage stage) noexcept {
    switch (stage) {
        case Stage::in_flight:
            return "in_flight";
        case Stage::no_path:
            return "no_path";
        case Stage::owner:
            return "reopening";
        case Stage::lost_path:
            return "lost_path";
        case Stage::settling:
            return "settling";
        case Stage::failing:
            return "failing";
    }
    return "?";
}

std::vector<NextEvent> next_events(const rtrs::RequestStatus& request,
                                   const rtrs::ClientSessionStatus& session,
                                   const rtrs::ClientSessionOptions& options,
                                   std::optional<rtrs::Instant> fails_at, rtrs::Instant now) {
    std::vector<NextEvent> all;
    const rtrs::PathStatus* const path = session.path(request.path);
    // The path comes back, or the server says over another one that it has finished with it.
    const auto path_over = [&] {
        const bool asked = std::ranges::any_of(session.paths, [](const rtrs::PathStatus& one) {
            return one.state == PathState::connected;
        });
        const auto connect = path == nullptr ? std::nullopt : connect_of(*path, now);
        if (connect) all.push_back(*connect);
        if (asked) all.push_back({Kind::fence, "", std::nullopt});
        if (all.empty()) all.push_back({Kind::no_attempt, request.path, std::nullopt});
    };
    switch (request.stage) {
        case Stage::in_flight:
            add_in_flight(all, request, path, options, now);
            break;
        case Stage::no_path:
            all.push_back(first_connect(session, now));
            add_limit(all, options, earlier(session.hold_until, fails_at), now);
            break;
        case Stage::owner:
            all.push_back({Kind::reopen, "", std::nullopt});
            add_limit(all, options, fails_at, now);
            break;
        case Stage::lost_path:
            path_over();
            add_limit(all, options, fails_at, now);
            break;
        case Stage::settling:
            if (session.protection == rtrs::Protection::exactly_once) {
                all.push_back({Kind::fence, "", std::nullopt});
            } else {
                path_over();
            }
            break;
        case Stage::failing:
            all.push_back({Kind::fail, "", rtrs::Duration::zero()});
            break;
    }
    // Of two timers the one that is due first is first.
    if (all.size() == 2 && all[0].in && all[1].in && *all[1].in < *all[0].in) {
        std::swap(all[0], all[1]);
    }
    return all;
}

std::vector<NextEvent> next_events_of_held(const rtrs::ClientSessionStatus& session,
                                           const rtrs::ClientSessionOptions& options,
                                           std::optional<rtrs::Instant> fails_at,
                                           rtrs::Instant now) {
    std::vector<NextEvent> all{session.link_up ? NextEvent{Kind::reopen, "", std::nullopt}
                                               : first_connect(session, now)};
    add_limit(all, options, fails_at, now);
    return all;
}

NextEvent next_event(const DeviceStall& stall, rtrs::Instant now) {
    std::optional<rtrs::Duration> in;
    if (stall.until) in = left(*stall.until, now);
    return {event_of(stall.stage), "", in};
}

}  // namespace rnbd
