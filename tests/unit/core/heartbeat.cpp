#include "rtrs/core/heartbeat.h"

#include <catch2/catch.hpp>

using namespace rtrs;
using namespace std::chrono_literals;
using Action = Heartbeat::Action;

namespace {
constexpr Instant start{10s};

Heartbeat started() {
    Heartbeat heartbeat(1s, 5s);
    heartbeat.start(start);
    return heartbeat;
}
}  // namespace

TEST_CASE("one heartbeat per interval, as long as each is answered") {
    Heartbeat heartbeat = started();
    CHECK(heartbeat.step(start + 1s - 1ns) == Action::none);
    for (int i = 1; i < 20; ++i) {
        const Instant now = start + i * 1s;
        CHECK(heartbeat.deadline() == now);
        CHECK(heartbeat.step(now) == Action::send);
        CHECK(heartbeat.step(now) == Action::none);
        heartbeat.received(now + 3ms);
        CHECK(heartbeat.acknowledged(now + 3ms) == 3ms);
    }
    CHECK(heartbeat.latency() == 3ms);
}

TEST_CASE("an unanswered heartbeat is not repeated, and silence is death") {
    Heartbeat heartbeat = started();
    CHECK(heartbeat.step(start + 1s) == Action::send);
    for (int i = 2; i < 5; ++i) CHECK(heartbeat.step(start + i * 1s) == Action::none);
    CHECK(heartbeat.deadline() == start + 5s);
    CHECK(heartbeat.step(start + 5s - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 5s) == Action::dead);
    CHECK(!heartbeat.deadline());
    CHECK(heartbeat.step(start + 100s) == Action::none);
}

TEST_CASE("any traffic proves life") {
    Heartbeat heartbeat = started();
    CHECK(heartbeat.step(start + 1s) == Action::send);
    heartbeat.received(start + 4s);  // an answer to a request, say
    CHECK(heartbeat.step(start + 5s) == Action::send);
    CHECK(heartbeat.step(start + 9s - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 9s) == Action::dead);
}

TEST_CASE("the deadline is the earlier of the next heartbeat and death") {
    Heartbeat heartbeat(4s, 5s);
    heartbeat.start(start);
    CHECK(heartbeat.deadline() == start + 4s);
    CHECK(heartbeat.step(start + 4s) == Action::send);
    CHECK(heartbeat.deadline() == start + 5s);
}

TEST_CASE("a stopped heartbeat has no deadline, an unasked answer no meaning") {
    Heartbeat heartbeat = started();
    CHECK(heartbeat.acknowledged(start + 1ms) == Duration{0});
    heartbeat.stop();
    CHECK(!heartbeat.deadline());
    CHECK(heartbeat.step(start + 50s) == Action::none);
    heartbeat.start(start + 60s);
    CHECK(heartbeat.deadline() == start + 61s);
}
