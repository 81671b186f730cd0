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

TEST_CASE("who asks only in silence leaves the asking to a peer that does") {
    Heartbeat heartbeat(1s, 5s, std::nullopt, Heartbeat::Asks::in_silence);
    heartbeat.start(start);
    // The peer's heartbeats come a little late.
    Instant heard = start;
    for (int i = 1; i < 20; ++i) {
        REQUIRE(heartbeat.deadline());
        const Instant due = *heartbeat.deadline();
        if (due < start + i * 1010ms) CHECK(heartbeat.step(due) == Action::none);
        heard = start + i * 1010ms;
        heartbeat.received(heard);
    }
    // Then no more.
    CHECK(heartbeat.step(heard + 1s) == Action::none);
    CHECK(heartbeat.deadline() == heard + 1125ms);
    CHECK(heartbeat.step(heard + 1125ms - 1ns) == Action::none);
    CHECK(heartbeat.step(heard + 1125ms) == Action::send);
    for (int i = 2; i < 5; ++i) CHECK(heartbeat.step(heard + 125ms + i * 1s) == Action::none);
    CHECK(heartbeat.step(heard + 5s - 1ns) == Action::none);
    CHECK(heartbeat.step(heard + 5s) == Action::dead);
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

namespace {
Heartbeat probing() {
    Heartbeat heartbeat(1s, 5s, 1250ms);
    heartbeat.start(start);
    heartbeat.probe(start + 100ms);
    REQUIRE(heartbeat.probing());
    return heartbeat;
}
}  // namespace

TEST_CASE("a probe is a heartbeat at once, and a shorter silence is death") {
    Heartbeat heartbeat = probing();
    CHECK(heartbeat.deadline() == start + 100ms);
    CHECK(heartbeat.step(start + 100ms) == Action::send);
    CHECK(heartbeat.deadline() == start + 1100ms);
    CHECK(heartbeat.step(start + 1100ms) == Action::none);  // it is unanswered
    CHECK(heartbeat.deadline() == start + 1350ms);
    CHECK(heartbeat.step(start + 1350ms - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 1350ms) == Action::dead);
    CHECK(heartbeat.probing());
    CHECK(!heartbeat.deadline());
}

TEST_CASE("the probe's time runs from when it was sent, not from when it was wanted") {
    Heartbeat heartbeat = probing();
    CHECK(heartbeat.step(start + 900ms) == Action::send);
    CHECK(heartbeat.step(start + 2150ms - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 2150ms) == Action::dead);
}

TEST_CASE("any traffic ends a probe") {
    SECTION("before it was sent") {
        Heartbeat heartbeat = probing();
        heartbeat.received(start + 100ms);
        CHECK(!heartbeat.probing());
        CHECK(heartbeat.step(start + 100ms) == Action::send);
        CHECK(heartbeat.step(start + 1350ms) == Action::none);
        CHECK(heartbeat.step(start + 5100ms) == Action::dead);
        CHECK(!heartbeat.probing());
    }
    SECTION("an acknowledgement") {
        Heartbeat heartbeat = probing();
        CHECK(heartbeat.step(start + 100ms) == Action::send);
        heartbeat.received(start + 102ms);
        CHECK(heartbeat.acknowledged(start + 102ms) == 2ms);
        CHECK(!heartbeat.probing());
        CHECK(heartbeat.deadline() == start + 1100ms);
        CHECK(heartbeat.step(start + 1100ms) == Action::send);
        CHECK(heartbeat.step(start + 1350ms) == Action::none);
    }
    SECTION("in the very turn in which it was sent") {
        Heartbeat heartbeat = probing();
        CHECK(heartbeat.step(start + 100ms) == Action::send);
        heartbeat.received(start + 100ms);
        CHECK(!heartbeat.probing());
        CHECK(heartbeat.step(start + 1350ms) == Action::send);
    }
    SECTION("anything else, and then it can be probed again") {
        Heartbeat heartbeat = probing();
        CHECK(heartbeat.step(start + 100ms) == Action::send);
        heartbeat.received(start + 1300ms);
        CHECK(heartbeat.step(start + 1350ms) == Action::send);
        heartbeat.probe(start + 1400ms);
        CHECK(heartbeat.step(start + 2650ms - 1ns) == Action::none);
        CHECK(heartbeat.step(start + 2650ms) == Action::dead);
    }
}

// The peer asks because it hears nothing.
TEST_CASE("a question of the peer's ends no probe, and is no silence") {
    SECTION("before it was sent") {
        Heartbeat heartbeat = probing();
        heartbeat.asked(start + 100ms);
        CHECK(heartbeat.probing());
        CHECK(heartbeat.step(start + 100ms) == Action::send);
        CHECK(heartbeat.step(start + 1350ms) == Action::dead);
    }
    SECTION("after it was sent") {
        Heartbeat heartbeat = probing();
        CHECK(heartbeat.step(start + 100ms) == Action::send);
        heartbeat.asked(start + 1300ms);
        CHECK(heartbeat.step(start + 1350ms) == Action::dead);
        CHECK(heartbeat.probing());
    }
    SECTION("without a probe") {
        Heartbeat heartbeat(1s, 5s);
        heartbeat.start(start);
        CHECK(heartbeat.step(start + 1s) == Action::send);
        heartbeat.asked(start + 4s);
        CHECK(heartbeat.step(start + 5s) == Action::none);
        CHECK(heartbeat.dead_at() == start + 9s);
        heartbeat.received(start + 6s);
        CHECK(heartbeat.step(start + 6s) == Action::send);
    }
}

TEST_CASE("a probe while a heartbeat is unanswered sends no second one") {
    Heartbeat heartbeat(1s, 5s, 1250ms);
    heartbeat.start(start);
    CHECK(heartbeat.step(start + 1s) == Action::send);
    heartbeat.probe(start + 1500ms);
    CHECK(heartbeat.step(start + 1500ms) == Action::none);
    heartbeat.probe(start + 2500ms);  // does not prolong it
    CHECK(heartbeat.step(start + 2750ms - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 2750ms) == Action::dead);
}

TEST_CASE("a probe does not postpone death by silence") {
    Heartbeat heartbeat(1s, 5s, 1250ms);
    heartbeat.start(start);
    CHECK(heartbeat.step(start + 1s) == Action::send);
    heartbeat.probe(start + 4500ms);
    CHECK(heartbeat.step(start + 5s - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 5s) == Action::dead);
    CHECK(!heartbeat.probing());
}

TEST_CASE("a probe of what does not run is nothing, and a start forgets an old one") {
    Heartbeat heartbeat(1s, 5s, 1250ms);
    heartbeat.probe(start);
    CHECK(!heartbeat.probing());
    CHECK(!heartbeat.deadline());

    heartbeat = probing();
    heartbeat.stop();
    heartbeat.start(start + 10s);
    CHECK(!heartbeat.probing());
    CHECK(heartbeat.deadline() == start + 11s);
}

TEST_CASE("without a probe timeout the usual one counts") {
    Heartbeat heartbeat = started();
    heartbeat.probe(start);
    CHECK(heartbeat.step(start) == Action::send);
    CHECK(heartbeat.step(start + 5s - 1ns) == Action::none);
    CHECK(heartbeat.step(start + 5s) == Action::dead);
}
