#include "rtrs/base/timer_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rtrs/base/random.h"
#include "tests/test_clock.h"

using namespace rtrs;
using namespace std::chrono_literals;
using rtrs::testing::TestClock;

namespace {

struct Alarm {
    explicit Alarm(TestClock& owner) : clock(owner), timer(owner, this, &expired) {}
    static void expired(void* context) {
        auto& self = *static_cast<Alarm*>(context);
        REQUIRE(!self.timer.armed());
        ++self.count;
        if (self.then) self.then();
    }
    TestClock& clock;
    Timer timer;
    int count = 0;
    std::function<void()> then;
};

}  // namespace

TEST_CASE("timer queue: a timer expires once at its deadline, not before") {
    TestClock clock;
    Alarm alarm(clock);
    alarm.timer.arm(clock.time + 10ns);
    REQUIRE(clock.queue.next_deadline() == clock.time + 10ns);
    clock.advance(9ns);
    REQUIRE(alarm.count == 0);
    clock.advance(1ns);
    REQUIRE(alarm.count == 1);
    clock.advance(100ns);
    REQUIRE(alarm.count == 1);
    REQUIRE(!clock.queue.next_deadline());
}

TEST_CASE("timer queue: arming again replaces the deadline") {
    TestClock clock;
    Alarm alarm(clock);
    alarm.timer.arm(clock.time + 10ns);
    alarm.timer.arm(clock.time + 20ns);
    clock.advance(15ns);
    REQUIRE(alarm.count == 0);
    clock.advance(5ns);
    REQUIRE(alarm.count == 1);
}

TEST_CASE("timer queue: a timer that arms itself for now waits for the next call") {
    TestClock clock;
    Alarm alarm(clock);
    alarm.then = [&] { alarm.timer.arm(clock.time); };
    alarm.timer.arm(clock.time);
    clock.advance(0ns);
    REQUIRE(alarm.count == 1);
    clock.advance(0ns);
    REQUIRE(alarm.count == 2);
    alarm.timer.disarm();
}

TEST_CASE("timer queue: a handler may disarm, move and destroy timers due in the same call") {
    TestClock clock;
    Alarm first(clock), disarmed(clock), moved(clock), last(clock);
    auto destroyed = std::make_unique<Alarm>(clock);
    first.then = [&] {
        disarmed.timer.disarm();
        moved.timer.arm(clock.time + 5ns);
        destroyed.reset();
    };
    first.timer.arm(clock.time + 1ns);
    disarmed.timer.arm(clock.time + 2ns);
    moved.timer.arm(clock.time + 2ns);
    destroyed->timer.arm(clock.time + 2ns);
    last.timer.arm(clock.time + 2ns);
    clock.advance(2ns);
    REQUIRE(first.count == 1);
    REQUIRE(disarmed.count == 0);
    REQUIRE(!disarmed.timer.armed());
    REQUIRE(moved.count == 0);
    REQUIRE(last.count == 1);
    clock.advance(5ns);
    REQUIRE(moved.count == 1);
}

TEST_CASE("timer queue: a handler may destroy its own timer") {
    TestClock clock;
    auto alarm = std::make_unique<Alarm>(clock);
    bool ran = false;
    alarm->then = [&] {
        ran = true;
        // The function object dies with the alarm: move what is running out of it first.
        auto keep = std::move(alarm->then);
        alarm.reset();
    };
    alarm->timer.arm(clock.time);
    clock.advance(0ns);
    REQUIRE(ran);
}

TEST_CASE("timer queue: random operations agree with a naive model") {
    Random random(11);
    TestClock clock;
    constexpr std::size_t count = 60;
    std::vector<std::unique_ptr<Alarm>> alarms;
    std::vector<std::optional<Instant>> model(count);
    std::vector<Instant> fired;
    std::vector<bool> touched;  // fired or stopped within one call
    for (std::size_t i = 0; i < count; ++i) {
        alarms.push_back(std::make_unique<Alarm>(clock));
        alarms[i]->then = [&, i] {
            REQUIRE(model[i].has_value());
            fired.push_back(*model[i]);
            touched[i] = true;
            model[i].reset();
            if (random.chance(1, 4)) {  // re-arm from inside, sometimes in the past
                model[i] = clock.time - 3ns + Duration(random.below(50));
                alarms[i]->timer.arm(*model[i]);
            }
            if (random.chance(1, 4)) {  // or stop another, due or not
                const std::size_t other = random.below(count);
                touched[other] = true;
                model[other].reset();
                alarms[other]->timer.disarm();
            }
        };
    }
    for (int step = 0; step < 20000; ++step) {
        const std::size_t i = random.below(count);
        switch (random.below(3)) {
            case 0:
                model[i] = clock.time + Duration(random.below(100));
                alarms[i]->timer.arm(*model[i]);
                break;
            case 1:
                model[i].reset();
                alarms[i]->timer.disarm();
                break;
            default: {
                fired.clear();
                touched.assign(count, false);
                const std::vector<std::optional<Instant>> before = model;
                clock.advance(Duration(random.below(20)));
                REQUIRE(std::ranges::is_sorted(fired));
                for (std::size_t k = 0; k < count; ++k) {
                    if (before[k] && *before[k] <= clock.time) REQUIRE(touched[k]);
                }
            }
        }
        std::optional<Instant> earliest;
        for (std::size_t k = 0; k < count; ++k) {
            REQUIRE(alarms[k]->timer.armed() == model[k].has_value());
            if (model[k] && (!earliest || *model[k] < *earliest)) earliest = model[k];
        }
        REQUIRE(clock.queue.next_deadline() == earliest);
    }
    for (auto& alarm : alarms) alarm->then = nullptr;
}
