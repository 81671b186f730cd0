// What the simulator chooses and counts (rtrs/base/planted.h, rare.h), in the core's second build.
#include "rtrs/base/planted.h"

#include <catch2/catch.hpp>

#include "rtrs/base/rare.h"
#include "rtrs/core/heartbeat.h"
#include "rtrs/core/path_machine.h"

using namespace rtrs;
using namespace std::chrono_literals;
using Action = Heartbeat::Action;
using Event = PathMachine::Event;

namespace {

constexpr Instant start{10s};

std::uint64_t count(RareBranch branch) { return rare_counts[static_cast<std::size_t>(branch)]; }

struct Planted {
    explicit Planted(PlantedBug bug) { planted_bug = bug; }
    ~Planted() { planted_bug = PlantedBug::none; }
};

}  // namespace

TEST_CASE("planted: a heartbeat that never fires, and never waits for what is past") {
    const Planted planted(PlantedBug::heartbeat_never_fires);
    Heartbeat heartbeat(1s, 5s, 1s);
    heartbeat.start(start);
    heartbeat.probe(start);
    Instant now = start;
    CHECK(heartbeat.step(now) == Action::send);
    for (int i = 0; i < 100; ++i) {
        REQUIRE(*heartbeat.deadline() > now);
        now = *heartbeat.deadline();
        REQUIRE(heartbeat.step(now) == Action::none);
    }
    CHECK(now >= start + 100s);
}

TEST_CASE("counted: probes and those that failed") {
    rare_counts = {};
    Heartbeat heartbeat(1s, 5s, 1s);
    heartbeat.start(start);
    heartbeat.probe(start);
    heartbeat.probe(start);
    CHECK(count(RareBranch::probed) == 1);
    CHECK(heartbeat.step(start) == Action::send);
    heartbeat.received(start);
    heartbeat.probe(start + 10ms);
    CHECK(heartbeat.step(start + 10ms) == Action::send);
    CHECK(count(RareBranch::probe_failed) == 0);
    CHECK(heartbeat.step(start + 1010ms) == Action::dead);
    CHECK(count(RareBranch::probed) == 2);
    CHECK(count(RareBranch::probe_failed) == 1);

    heartbeat.start(start + 100s);
    CHECK(heartbeat.step(start + 105s) == Action::dead);
    CHECK(count(RareBranch::probe_failed) == 1);
}

TEST_CASE("counted: paths that were held back") {
    rare_counts = {};
    Random random(3);
    PathMachine machine(
        {.connect_timeout = 5s, .delay_min = 10ms, .delay_max = 1s, .attempts_max = std::nullopt},
        random);
    Instant now = start;
    for (const auto others : {PathMachine::OtherPaths::none, PathMachine::OtherPaths::usable}) {
        machine.step(Event::open, now);
        machine.step(Event::all_established, now);
        machine.step(Event::info_accepted, now);
        now += 1s;
        machine.step(Event::failed, now);
        CHECK(count(RareBranch::shaky_path) == 0);
        machine.step(Event::drained, now, others);
    }
    CHECK(count(RareBranch::shaky_path) == 1);
}
