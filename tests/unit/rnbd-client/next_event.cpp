#include "rnbd-client/next_event.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using namespace std::chrono_literals;
using Kind = NextEvent::Kind;
using Stage = rtrs::RequestStatus::Stage;
using rtrs::PathState;

namespace {

const rtrs::Instant now = rtrs::Instant{} + 100s;

// Two paths, a and b; one request, last sent on a, a second ago.
struct Case {
    Case() {
        session.link_up = true;
        session.protection = rtrs::Protection::exactly_once;
        for (const char* label : {"a", "b"}) {
            rtrs::PathStatus path;
            path.label = label;
            path.state = PathState::connected;
            path.dead_at = now + 4s;
            session.paths.push_back(path);
        }
        request.path = "a";
        request.attempts = 1;
        request.submitted = request.posted = now - 1s;
        options.request_deadline = 2s;
    }
    std::vector<NextEvent> next(Stage stage) {
        request.stage = stage;
        return next_events(request, session, options, fails_at, now);
    }
    void lose(std::size_t path, PathState state, std::optional<rtrs::Duration> next = {}) {
        session.paths[path].state = state;
        session.paths[path].dead_at.reset();
        if (next) session.paths[path].next_attempt = now + *next;
    }

    rtrs::ClientSessionStatus session;
    rtrs::ClientSessionOptions options;
    rtrs::RequestStatus request;
    std::optional<rtrs::Instant> fails_at;
};

}  // namespace

TEST_CASE("next event: a request in flight is probed, then its path is dead if it is silent") {
    Case one;
    one.options.probe_timeout = 1250ms;
    CHECK(one.next(Stage::in_flight) ==
          std::vector<NextEvent>{{Kind::probe, "a", 1s}, {Kind::path_dead, "a", 2250ms}});
    one.session.paths[0].dead_at = now + 500ms;
    CHECK(one.next(Stage::in_flight).front() == NextEvent{Kind::path_dead, "a", 500ms});
    one.request.posted = now - 3s;  // being probed
    CHECK(one.next(Stage::in_flight) == std::vector<NextEvent>{{Kind::path_dead, "a", 500ms}});
    // The probe was answered, or the path would be lost.
    one.request.posted = now - 2s - one.options.probe_timeout - 1ms;
    CHECK(one.next(Stage::in_flight) ==
          std::vector<NextEvent>{{Kind::answer, "a", std::nullopt}, {Kind::path_dead, "a", 500ms}});
    one.lose(0, PathState::draining);
    CHECK(one.next(Stage::in_flight) ==
          std::vector<NextEvent>{{Kind::path_drained, "a", std::nullopt}});
}

TEST_CASE("next event: without a path a request waits for the next attempt or the hold time") {
    Case one;
    one.lose(0, PathState::backoff, 300ms);
    one.lose(1, PathState::backoff, 100ms);
    CHECK(one.next(Stage::no_path) ==
          std::vector<NextEvent>{{Kind::connect, "b", 100ms},
                                 {Kind::held_for_ever, "", std::nullopt}});
    one.options.hold_time = 60s;
    one.session.hold_until = now + 55s;
    CHECK(one.next(Stage::no_path) ==
          std::vector<NextEvent>{{Kind::connect, "b", 100ms}, {Kind::fail, "", 55s}});
    one.fails_at = now + 50s;
    one.lose(0, PathState::connecting);
    CHECK(one.next(Stage::no_path) ==
          std::vector<NextEvent>{{Kind::connect, "a", std::nullopt}, {Kind::fail, "", 50s}});
    one.lose(0, PathState::closed);
    one.lose(1, PathState::closed);
    CHECK(one.next(Stage::no_path).front() == NextEvent{Kind::no_attempt, "", std::nullopt});
}

TEST_CASE("next event: the other stages") {
    Case one;
    CHECK(one.next(Stage::owner).front() == NextEvent{Kind::reopen, "", std::nullopt});
    CHECK(one.next(Stage::settling) == std::vector<NextEvent>{{Kind::fence, "", std::nullopt}});
    CHECK(one.next(Stage::failing) == std::vector<NextEvent>{{Kind::fail, "", 0s}});
}

TEST_CASE("next event: without sequences the lost path comes back, or another one is asked") {
    const NextEvent fence{Kind::fence, "", std::nullopt};
    Case one;
    one.session.protection = rtrs::Protection::fenced;
    one.options.hold_time = 1s;
    one.lose(0, PathState::backoff, 200ms);
    for (const Stage stage : {Stage::settling, Stage::lost_path}) {
        CHECK(one.next(stage) == std::vector<NextEvent>{{Kind::connect, "a", 200ms}, fence});
    }
    one.lose(0, PathState::closed);
    CHECK(one.next(Stage::lost_path) == std::vector<NextEvent>{fence});
    one.lose(1, PathState::closed);
    CHECK(one.next(Stage::settling) ==
          std::vector<NextEvent>{{Kind::no_attempt, "a", std::nullopt}});
}

TEST_CASE("next event: every stage and event has its word") {
    for (const auto stage : {Stage::in_flight, Stage::no_path, Stage::owner, Stage::lost_path,
                             Stage::settling, Stage::failing})
        CHECK(std::string(word_of(stage)) != "?");
    for (int i = 0; i <= static_cast<int>(Kind::held_for_ever); ++i)
        CHECK(std::string(to_string(static_cast<Kind>(i))) != "?");
}
