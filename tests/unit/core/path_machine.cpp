// Every row of the table in path_machine.h, and every pair that it ignores.
#include "rtrs/core/path_machine.h"

#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <vector>

using namespace rtrs;
using namespace std::chrono_literals;
using Event = PathMachine::Event;
using Others = PathMachine::OtherPaths;
using Cause = PathMachine::CloseCause;

namespace {

constexpr Instant start{1000s};

struct Machine {
    explicit Machine(std::optional<std::uint32_t> attempts_max = std::nullopt)
        : machine({.connect_timeout = 5s,
                   .delay_min = 10ms,
                   .delay_max = 1s,
                   .attempts_max = attempts_max},
                  random) {}

    PathMachine::Actions step(Event event, Others others = Others::none) {
        return machine.step(event, now, others);
    }
    // From connecting or a wait that ends now: up, and lost again after so long.
    void live(Duration how_long) {
        if (state() == PathState::idle) step(Event::open);
        if (state() == PathState::backoff) {
            now = *machine.deadline();
            step(Event::deadline);
        }
        step(Event::all_established);
        step(Event::info_accepted);
        REQUIRE(state() == PathState::connected);
        now += how_long;
        step(Event::failed);
    }
    // How long it waits after a loss.
    Duration lose_after(Duration how_long, Others others) {
        live(how_long);
        step(Event::drained, others);
        REQUIRE(state() == PathState::backoff);
        return *machine.deadline() - now;
    }
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
    {P::exchanging, Event::join, P::draining, M::disconnect},
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
    {P::idle, Event::reconnect, P::connecting, M::dial},
    {P::connected, Event::reconnect, P::draining, M::path_down | M::disconnect},
    {P::draining, Event::reconnect, P::draining, M::nothing},
    {P::backoff, Event::reconnect, P::connecting, M::dial},
    {P::closed, Event::reconnect, P::connecting, M::dial},
    {P::idle, Event::disconnect, P::closed, M::report_closed},
    {P::backoff, Event::disconnect, P::closed, M::report_closed},
    {P::connecting, Event::disconnect, P::closing, M::disconnect},
    {P::exchanging, Event::disconnect, P::closing, M::disconnect},
    {P::connected, Event::disconnect, P::closing, M::path_down | M::disconnect},
    {P::draining, Event::disconnect, P::closing, M::nothing},
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
    {P::connecting, Event::reconnect, P::connecting, M::nothing},
    {P::exchanging, Event::reconnect, P::exchanging, M::nothing},
    {P::closing, Event::reconnect, P::closing, M::nothing},
    {P::closing, Event::disconnect, P::closing, M::nothing},
    {P::closed, Event::disconnect, P::closed, M::nothing},
    {P::idle, Event::needed, P::idle, M::nothing},
    {P::connecting, Event::needed, P::connecting, M::nothing},
    {P::exchanging, Event::needed, P::exchanging, M::nothing},
    {P::connected, Event::needed, P::connected, M::nothing},
    {P::draining, Event::needed, P::draining, M::nothing},
    {P::backoff, Event::needed, P::backoff, M::nothing},  // not held back
    {P::closing, Event::needed, P::closing, M::nothing},
    {P::closed, Event::needed, P::closed, M::nothing},
};

constexpr P states[] = {P::idle,     P::connecting, P::exchanging, P::connected,
                        P::draining, P::backoff,    P::closing,    P::closed};
constexpr Event events[] = {
    Event::open,       Event::all_established, Event::info_accepted, Event::failed,
    Event::drained,    Event::deadline,        Event::close,         Event::reconnect,
    Event::disconnect, Event::needed,          Event::join};

// Asserted in the machine.
bool cannot_happen(P state, Event event) {
    return (event == Event::all_established && state != P::connecting) ||
           ((event == Event::info_accepted || event == Event::join) && state != P::exchanging) ||
           (event == Event::drained && state != P::draining && state != P::closing);
}

}  // namespace

TEST_CASE("an attempt that joins another path's session is no failure, and dialled anew") {
    Machine machine(0);
    machine.step(Event::open);
    machine.step(Event::all_established);
    machine.step(Event::join);
    CHECK(machine.step(Event::drained) == M::hand_back);
    REQUIRE(machine.state() == PathState::backoff);
    CHECK(*machine.machine.deadline() - machine.now <= 10ms);
    machine.now = *machine.machine.deadline();
    CHECK(machine.step(Event::deadline) == M::dial);
    CHECK(machine.machine.failures_total() == 0);
    machine.step(Event::failed);
    machine.step(Event::drained);
    CHECK(machine.state() == PathState::closed);
}

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

TEST_CASE("the table has every pair of a state and an event") {
    std::set<std::pair<P, Event>> seen;
    for (const Row& row : table) {
        CAPTURE(to_string(row.from), static_cast<int>(row.event));
        CHECK(seen.insert({row.from, row.event}).second);
        CHECK(!cannot_happen(row.from, row.event));
    }
    for (const P state : states) {
        for (const Event event : events) {
            CAPTURE(to_string(state), static_cast<int>(event));
            CHECK(seen.contains({state, event}) != cannot_happen(state, event));
        }
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

TEST_CASE("an operator's reconnect dials as soon as the old connection has drained") {
    // Not even attempts_max = 0 is in the way.
    for (const auto attempts_max : {std::optional<std::uint32_t>(), std::optional(0u)}) {
        Machine machine(attempts_max);
        machine.step(Event::open);
        machine.step(Event::all_established);
        machine.step(Event::info_accepted);
        machine.now += 1ms;
        machine.step(Event::reconnect);
        machine.now += 30ms;
        CHECK(machine.step(Event::drained, Others::usable) == M::hand_back);
        CHECK(machine.state() == P::backoff);
        CHECK(!machine.machine.held_back());
        CHECK(machine.machine.deadline() == machine.now);
        CHECK(machine.step(Event::deadline) == M::dial);
        CHECK(machine.machine.connects() == 1);
    }
}

TEST_CASE("a reconnect while it drains shortens the wait behind it, a close takes it back") {
    auto machine = machine_in(P::draining);
    CHECK(machine->machine.failures() == 1);
    machine->step(Event::reconnect);
    CHECK(machine->machine.failures() == 0);
    machine->step(Event::drained);
    CHECK(machine->machine.deadline() == machine->now);

    machine = machine_in(P::draining);
    machine->step(Event::reconnect);
    machine->step(Event::close);
    CHECK(machine->step(Event::drained) == (M::hand_back | M::report_closed));
    CHECK(machine->state() == P::closed);
}

TEST_CASE("an operator's reconnect is no failure, and forgets those before") {
    Machine machine;
    for (int i = 0; i < 4; ++i) machine.lose_after(1s, Others::usable);
    REQUIRE(machine.machine.held_back());
    CHECK(machine.step(Event::reconnect) == M::dial);
    machine.step(Event::all_established);
    machine.step(Event::info_accepted);
    machine.now += 20s;
    machine.step(Event::failed);
    machine.step(Event::drained, Others::usable);
    CHECK(!machine.machine.held_back());
    CHECK(*machine.machine.deadline() - machine.now <= 10ms);
}

TEST_CASE("a closed path knows why") {
    for (const P state :
         {P::idle, P::connecting, P::exchanging, P::connected, P::draining, P::backoff}) {
        for (const auto& [event, cause] : {std::pair(Event::close, Cause::asked),
                                           std::pair(Event::disconnect, Cause::disconnected)}) {
            CAPTURE(to_string(state));
            const auto machine = machine_in(state);
            CHECK(machine->machine.close_cause() == Cause::none);
            machine->step(event);
            CHECK(machine->machine.close_cause() == cause);
            if (machine->state() == P::closing) machine->step(Event::drained);
            CHECK(machine->state() == P::closed);
            CHECK(machine->machine.close_cause() == cause);
            machine->step(Event::close);
            CHECK(machine->machine.close_cause() == cause);
            machine->step(Event::open);
            CHECK(machine->machine.close_cause() == Cause::none);
        }
    }
    Machine machine(0);
    machine.live(1s);
    machine.step(Event::drained);
    CHECK(machine.machine.close_cause() == Cause::gave_up);
}

TEST_CASE("a session that closes takes over from an operator's disconnect, not the reverse") {
    const auto machine = machine_in(P::connected);
    machine->step(Event::disconnect);
    machine->step(Event::close);
    CHECK(machine->machine.close_cause() == Cause::asked);
    machine->step(Event::disconnect);
    CHECK(machine->machine.close_cause() == Cause::asked);
    CHECK(machine->step(Event::drained) == (M::hand_back | M::report_closed));
}

TEST_CASE("shaky: a loss after a stable life is dialled at once") {
    Machine machine;
    CHECK(machine.lose_after(10s, Others::usable) <= 10ms);
    CHECK(!machine.machine.held_back());
    CHECK(machine.machine.hold_reason().empty());
    CHECK(machine.lose_after(1h, Others::usable) <= 10ms);
    CHECK(machine.lose_after(1h, Others::usable) <= 10ms);
}

TEST_CASE("shaky: a short life is held back, each time longer, by chance") {
    Duration whole = 1s;
    for (int losses = 1; losses <= 9; ++losses) {
        CAPTURE(losses);
        std::vector<Duration> delays;
        for (int draw = 0; draw < 50; ++draw) {
            Machine machine;
            machine.random = Random(static_cast<std::uint64_t>(draw));
            for (int i = 1; i < losses; ++i) machine.lose_after(9s, Others::usable);
            delays.push_back(machine.lose_after(10s - 1ns, Others::usable));
            CHECK(machine.machine.held_back());
            CHECK(delays.back() >= whole / 2);
            CHECK(delays.back() <= whole);
        }
        const auto [least, most] = std::ranges::minmax_element(delays);
        CHECK(*most - *least > whole / 4);  // seconds of chance for seconds of delay
        whole = std::min<Duration>(whole * 2, 30s);
    }
    CHECK(whole == 30s);
}

TEST_CASE("shaky: the third loss within a minute is held back, whatever the lives") {
    Machine machine;
    CHECK(machine.lose_after(20s, Others::usable) <= 10ms);
    CHECK(machine.lose_after(20s, Others::usable) <= 10ms);
    CHECK(machine.lose_after(20s, Others::usable) >= 500ms);
    CHECK(machine.machine.hold_reason() == "held back: 3 failures in 60 s");
    // Rarer ones are not.
    CHECK(machine.lose_after(40s, Others::usable) <= 10ms);
    CHECK(machine.machine.hold_reason().empty());
    CHECK(machine.lose_after(61s, Others::usable) <= 10ms);
    // And the delays start anew.
    CHECK(machine.lose_after(9s, Others::usable) <= 1s);
    CHECK(machine.machine.hold_reason() == "held back: lost 9 s after it was connected");
}

TEST_CASE("shaky: the reason") {
    Machine machine;
    machine.lose_after(70ms, Others::usable);
    CHECK(machine.machine.hold_reason() == "held back: lost 70 ms after it was connected");
    for (int i = 0; i < 3; ++i) machine.lose_after(70ms, Others::usable);
    CHECK(machine.machine.hold_reason() == "held back: 4 failures in 60 s");
    machine.now = *machine.machine.deadline();
    machine.step(Event::deadline);
    CHECK(!machine.machine.held_back());
    CHECK(machine.machine.hold_reason().empty());

    Machine only;
    for (int i = 0; i < 99; ++i) only.lose_after(70ms, Others::none);
    only.lose_after(70ms, Others::usable);
    CHECK(only.machine.hold_reason() == "held back: 16 or more failures in 60 s");
}

TEST_CASE("shaky: the only usable path is never held back") {
    Machine machine;
    for (int round = 0; round < 100; ++round) {
        CHECK(machine.lose_after(1s, Others::none) <= 10ms);
        CHECK(!machine.machine.held_back());
    }
}

TEST_CASE("hasty: a path that is ended as soon as it is up, again and again, waits longer") {
    Machine machine;
    for (int round = 0; round < 3; ++round) {
        CHECK(machine.lose_after(5ms, Others::none) <= 10ms);
    }
    for (const Duration most : {20ms, 40ms, 80ms, 160ms, 320ms, 640ms, 1000ms, 1000ms}) {
        const Duration wait = machine.lose_after(99ms, Others::none);
        CHECK(wait >= most / 2);
        CHECK(wait <= most);
    }
    // One that lives for a while is no such thing, nor what comes after it.
    CHECK(machine.lose_after(100ms, Others::none) <= 10ms);
    CHECK(machine.lose_after(5ms, Others::none) <= 10ms);
    // An operator begins anew.
    for (int round = 0; round < 9; ++round) machine.lose_after(5ms, Others::none);
    machine.step(Event::reconnect);
    CHECK(machine.lose_after(5ms, Others::none) <= 10ms);
}

TEST_CASE("shaky: when the last other path is lost, a wait ends") {
    Machine machine;
    for (int i = 0; i < 6; ++i) machine.lose_after(1s, Others::usable);
    REQUIRE(*machine.machine.deadline() - machine.now >= 15s);
    machine.now += 1ms;
    CHECK(machine.step(Event::needed) == M::dial);
    CHECK(machine.state() == P::connecting);
    CHECK(!machine.machine.held_back());
    // A failed attempt is followed by the usual delays, also if others are there again.
    machine.step(Event::failed);
    machine.step(Event::drained, Others::usable);
    CHECK(!machine.machine.held_back());
    CHECK(*machine.machine.deadline() - machine.now <= 20ms);
}

TEST_CASE("shaky: held back, it obeys the operator and the session") {
    for (const Event event : {Event::open, Event::reconnect}) {
        Machine machine;
        machine.lose_after(1s, Others::usable);
        REQUIRE(machine.machine.held_back());
        CHECK(machine.step(event) == M::dial);
        CHECK(!machine.machine.held_back());
    }
    for (const Event event : {Event::close, Event::disconnect}) {
        Machine machine;
        machine.lose_after(1s, Others::usable);
        CHECK(machine.step(event) == M::report_closed);
        CHECK(!machine.machine.held_back());
    }
}
