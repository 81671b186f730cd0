// Every row of the table in path_machine.h, and every pair that it ignores.
#include "rtrs/core/path_machine.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace rtrs;
using namespace std::chrono_literals;
using Event = PathMachine::Event;

namespace {

constexpr Instant start{1000s};

struct Machine {
    explicit Machine(std::optional<std::uint32_t> attempts_max = std::nullopt)
        : machine({.connect_timeout = 5s,
                   .delay_min = 10ms,
                   .delay_max = 1s,
                   .attempts_max = attempts_max},
                  random) {}

    PathMachine::Actions step(Event event) { return machine.step(event, now); }
    PathState state() const { return machine.state(); }

    Random random{7};
    Instant now = start;
    PathMachine machine;
};

// A machine in the state.
std::unique_ptr<Machine> machine_in(PathState state) {
    auto made = std::make_unique<Machine>();
    const auto drive = [&](std::initializer_list<Event> events) {
        for (const Event event : events) made->step(event);
    };
    switch (state) {
        case PathState::idle:
            break;
        case PathState::connecting:
            drive({Event::open});
            break;
        case PathState::exchanging:
            drive({Event::open, Event::all_established});
            break;
        case PathState::connected:
            drive({Event::open, Event::all_established, Event::info_accepted});
            break;
        case PathState::draining:
            drive({Event::open, Event::failed});
            break;
        case PathState::backoff:
            drive({Event::open, Event::failed, Event::drained});
            break;
        case PathState::closing:
            drive({Event::open, Event::close});
            break;
        case PathState::closed:
            drive({Event::close});
            break;
    }
    REQUIRE(made->state() == state);
    return made;
}

struct Row {
    PathState from;
    Event event;
    PathState to;
    std::uint32_t actions;
};

using P = PathState;
using M = PathMachine;

// "deadline" here is one that is due.
const Row table[] = {
    {P::idle, Event::open, P::connecting, M::dial},
    {P::connecting, Event::all_established, P::exchanging, M::send_info_request},
    {P::connecting, Event::failed, P::draining, M::disconnect},
    {P::connecting, Event::deadline, P::draining, M::disconnect},
    {P::exchanging, Event::failed, P::draining, M::disconnect},
    {P::exchanging, Event::deadline, P::draining, M::disconnect},
    {P::exchanging, Event::info_accepted, P::connected, M::path_up},
    {P::connected, Event::failed, P::draining, M::path_down | M::disconnect},
    {P::draining, Event::drained, P::backoff, M::hand_back},
    {P::backoff, Event::deadline, P::connecting, M::dial},
    {P::backoff, Event::open, P::connecting, M::dial},
    {P::idle, Event::close, P::closed, M::report_closed},
    {P::backoff, Event::close, P::closed, M::report_closed},
    {P::connecting, Event::close, P::closing, M::disconnect},
    {P::exchanging, Event::close, P::closing, M::disconnect},
    {P::connected, Event::close, P::closing, M::path_down | M::disconnect},
    {P::draining, Event::close, P::closing, M::nothing},
    {P::closing, Event::drained, P::closed, M::hand_back | M::report_closed},
    {P::closed, Event::open, P::connecting, M::dial},
    // Ignored, for the reasons in path_machine.h.
    {P::idle, Event::failed, P::idle, M::nothing},
    {P::draining, Event::failed, P::draining, M::nothing},
    {P::backoff, Event::failed, P::backoff, M::nothing},
    {P::closing, Event::failed, P::closing, M::nothing},
    {P::closed, Event::failed, P::closed, M::nothing},
    {P::closing, Event::close, P::closing, M::nothing},
    {P::closed, Event::close, P::closed, M::nothing},
    {P::connecting, Event::open, P::connecting, M::nothing},
    {P::exchanging, Event::open, P::exchanging, M::nothing},
    {P::connected, Event::open, P::connected, M::nothing},
    {P::draining, Event::open, P::draining, M::nothing},
    {P::closing, Event::open, P::closing, M::nothing},
    {P::idle, Event::deadline, P::idle, M::nothing},
    {P::connected, Event::deadline, P::connected, M::nothing},
    {P::draining, Event::deadline, P::draining, M::nothing},
    {P::closing, Event::deadline, P::closing, M::nothing},
    {P::closed, Event::deadline, P::closed, M::nothing},
};

}  // namespace

TEST_CASE("every row of the path's table") {
    for (const Row& row : table) {
        CAPTURE(to_string(row.from), static_cast<int>(row.event));
        const auto machine = machine_in(row.from);
        if (const auto deadline = machine->machine.deadline()) machine->now = *deadline;
        CHECK(machine->step(row.event) == row.actions);
        CHECK(machine->state() == row.to);
        if (row.to != row.from) CHECK(machine->machine.since() == machine->now);
    }
}

TEST_CASE("a deadline that is not due is ignored") {
    for (const PathState state : {P::connecting, P::exchanging, P::backoff}) {
        const auto machine = machine_in(state);
        REQUIRE(machine->machine.deadline());
        machine->now = *machine->machine.deadline() - 1ns;
        CHECK(machine->step(Event::deadline) == M::nothing);
        CHECK(machine->state() == state);
    }
}

TEST_CASE("one deadline covers the attempt from dialling to the info response") {
    Machine machine;
    machine.step(Event::open);
    CHECK(machine.machine.deadline() == start + 5s);
    machine.now += 4s;
    machine.step(Event::all_established);
    CHECK(machine.machine.deadline() == start + 5s);
    machine.step(Event::info_accepted);
    CHECK(!machine.machine.deadline());
}

TEST_CASE("the back-off doubles up to its bound, half of it by chance") {
    Machine machine;
    machine.step(Event::open);
    Duration whole = 10ms;
    for (int failures = 1; failures <= 12; ++failures) {
        whole = std::min<Duration>(whole * 2, 1s);
        std::vector<Duration> delays;
        for (int draw = 0; draw < 50; ++draw) {
            Machine copy;
            copy.random = Random(static_cast<std::uint64_t>(draw));
            copy.step(Event::open);
            for (int i = 0; i < failures; ++i) {
                copy.step(Event::failed);
                copy.step(Event::drained);
                if (i + 1 < failures) {
                    copy.now = *copy.machine.deadline();
                    copy.step(Event::deadline);
                }
            }
            CHECK(copy.machine.failures() == static_cast<std::uint32_t>(failures));
            delays.push_back(*copy.machine.deadline() - copy.now);
            CHECK(delays.back() >= whole / 2);
            CHECK(delays.back() <= whole);
        }
        CHECK(*std::ranges::min_element(delays) < *std::ranges::max_element(delays));
    }
}

TEST_CASE("a path that was connected starts with the shortest delay") {
    const auto machine = machine_in(P::backoff);
    machine->now = *machine->machine.deadline();
    for (const Event event : {Event::deadline, Event::all_established, Event::info_accepted,
                              Event::failed, Event::drained}) {
        machine->step(event);
    }
    CHECK(machine->machine.failures() == 0);
    CHECK(machine->machine.connects() == 1);
    CHECK(*machine->machine.deadline() - machine->now <= 10ms);
}

TEST_CASE("attempts are counted out") {
    SECTION("none: for ever") {
        Machine machine;
        machine.step(Event::open);
        for (int i = 0; i < 1000; ++i) {
            machine.step(Event::failed);
            machine.step(Event::drained);
            REQUIRE(machine.state() == P::backoff);
            machine.now = *machine.machine.deadline();
            machine.step(Event::deadline);
        }
    }
    SECTION("0: what was lost is not dialled again") {
        Machine machine(0);
        for (const Event event : {Event::open, Event::all_established, Event::info_accepted}) {
            machine.step(event);
        }
        machine.step(Event::failed);
        CHECK(machine.step(Event::drained) == (M::hand_back | M::report_closed));
        CHECK(machine.state() == P::closed);
    }
    SECTION("2: the second failure is the last") {
        Machine machine(2);
        machine.step(Event::open);
        machine.step(Event::failed);
        machine.step(Event::drained);
        REQUIRE(machine.state() == P::backoff);
        machine.now = *machine.machine.deadline();
        machine.step(Event::deadline);
        machine.step(Event::failed);
        CHECK(machine.step(Event::drained) == (M::hand_back | M::report_closed));
        CHECK(machine.state() == P::closed);
        // An operator's wish starts afresh.
        CHECK(machine.step(Event::open) == M::dial);
        CHECK(machine.machine.failures() == 0);
    }
}
