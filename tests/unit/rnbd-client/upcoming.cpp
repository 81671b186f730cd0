#include "rnbd-client/upcoming.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using namespace std::chrono_literals;
using Event = Upcoming::Event;
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
    std::vector<Upcoming> next(Stage stage) {
        request.stage = stage;
        return upcoming(request, session, options, fails_at, now);
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

TEST_CASE("upcoming: a request in flight is probed, then its path is dead if it is silent") {
    Case one;
    one.options.probe_timeout = 1250ms;
    CHECK(one.next(Stage::in_flight) ==
          std::vector<Upcoming>{{Event::probe, "a", 1s}, {Event::path_dead, "a", 2250ms}});
    one.session.paths[0].dead_at = now + 500ms;
    CHECK(one.next(Stage::in_flight).front() == Upcoming{Event::path_dead, "a", 500ms});
    one.request.posted = now - 3s;  // being probed
    CHECK(one.next(Stage::in_flight) == std::vector<Upcoming>{{Event::path_dead, "a", 500ms}});
    // The probe was answered, or the path would be lost.
    one.request.posted = now - 2s - one.options.probe_timeout - 1ms;
    CHECK(one.next(Stage::in_flight) == std::vector<Upcoming>{{Event::answer, "a", std::nullopt},
                                                              {Event::path_dead, "a", 500ms}});
    one.lose(0, PathState::draining);
    CHECK(one.next(Stage::in_flight) ==
          std::vector<Upcoming>{{Event::path_drained, "a", std::nullopt}});
}

TEST_CASE("upcoming: without a path a request waits for the next attempt or the hold time") {
    Case one;
    one.lose(0, PathState::backoff, 300ms);
    one.lose(1, PathState::backoff, 100ms);
    CHECK(one.next(Stage::no_path) ==
          std::vector<Upcoming>{{Event::connect, "b", 100ms},
                                {Event::held_for_ever, "", std::nullopt}});
    one.options.hold_time = 60s;
    one.session.hold_until = now + 55s;
    CHECK(one.next(Stage::no_path) ==
          std::vector<Upcoming>{{Event::connect, "b", 100ms}, {Event::fail, "", 55s}});
    one.fails_at = now + 50s;
    one.lose(0, PathState::connecting);
    CHECK(one.next(Stage::no_path) ==
          std::vector<Upcoming>{{Event::connect, "a", std::nullopt}, {Event::fail, "", 50s}});
    one.lose(0, PathState::closed);
    one.lose(1, PathState::closed);
    CHECK(one.next(Stage::no_path).front() == Upcoming{Event::no_attempt, "", std::nullopt});
}

TEST_CASE("upcoming: the other stages") {
    Case one;
    CHECK(one.next(Stage::owner).front() == Upcoming{Event::reopen, "", std::nullopt});
    CHECK(one.next(Stage::settling) == std::vector<Upcoming>{{Event::fence, "", std::nullopt}});
    CHECK(one.next(Stage::failing) == std::vector<Upcoming>{{Event::fail, "", 0s}});
}

TEST_CASE("upcoming: without sequences the lost path comes back, or another one is asked") {
    const Upcoming fence{Event::fence, "", std::nullopt};
    Case one;
    one.session.protection = rtrs::Protection::fenced;
    one.options.hold_time = 1s;
    one.lose(0, PathState::backoff, 200ms);
    for (const Stage stage : {Stage::settling, Stage::lost_path}) {
        CHECK(one.next(stage) == std::vector<Upcoming>{{Event::connect, "a", 200ms}, fence});
    }
    one.lose(0, PathState::closed);
    CHECK(one.next(Stage::lost_path) == std::vector<Upcoming>{fence});
    one.lose(1, PathState::closed);
    CHECK(one.next(Stage::settling) ==
          std::vector<Upcoming>{{Event::no_attempt, "a", std::nullopt}});
}

TEST_CASE("upcoming: every stage and event has its word") {
    for (const auto stage : {Stage::in_flight, Stage::no_path, Stage::owner, Stage::lost_path,
                             Stage::settling, Stage::failing})
        CHECK(std::string(word_of(stage)) != "?");
    for (int i = 0; i <= static_cast<int>(Event::held_for_ever); ++i)
        CHECK(std::string(to_string(static_cast<Event>(i))) != "?");
}
