#include "daemon/reload/config_control.h"

#include <catch2/catch.hpp>
#include <thread>

#include "daemon/log/log.h"
#include "tests/test_clock.h"

using namespace rnbd;
using namespace std::chrono_literals;
using rtrs::testing::TestClock;
using Kind = ConfigChange::Kind;

namespace {

// A daemon whose next plan is given by the test.
class Subject final : public ConfigSubject {
  public:
    std::expected<ConfigPlan, std::vector<ConfigError>> plan(Force) override {
        ++plans;
        if (!errors.empty()) return std::unexpected(errors);
        ConfigPlan made = next;
        made.finished = [this](const std::vector<ConfigChange>& changes) { finished = changes; };
        made.undo = [] { return ConfigPlan{}; };
        return made;
    }
    const std::string& config_path() const noexcept override { return path; }
    const std::vector<ConfigError>& warnings() const noexcept override { return passed_over; }

    void stop() override {
        if (on_stop) on_stop();
    }

    std::function<void()> on_stop;
    std::string path = "/x.yaml";
    std::vector<ConfigError> errors, passed_over;
    ConfigPlan next;
    int plans = 0;
    std::vector<ConfigChange> finished;
};

// Thousands of lines would help nobody.
Logger& silent() {
    Logger& log = logger("rnbd.test.config");
    set_log_level(LogLevel::error, "rnbd.test.config");
    return log;
}

struct World {
    // Of a busy machine each step may take its time.
    explicit World(rtrs::Duration its_piece_time = 1h) : piece_time(its_piece_time) {}

    const rtrs::Duration piece_time;
    TestClock clock;
    Subject subject;
    int changed = 0;
    int reloaded = 0;
    ConfigControl control{clock, subject, "rnbd-test", silent(), [this] { ++changed; }, piece_time};

    void reload() {
        control.reload([this] { ++reloaded; });
    }
    // A change with a step that does this.
    void add(std::function<void(ConfigStep::Done)> step) {
        const std::string name = "e" + std::to_string(subject.next.changes.size());
        subject.next.changes.push_back({.object = "export", .name = name, .kind = Kind::added});
        subject.next.steps.push_back({subject.next.changes.size() - 1, std::move(step)});
    }
};

}  // namespace

TEST_CASE("config control: steps are done one after the other, and one that fails is told") {
    World world;
    std::vector<int> order;
    ConfigStep::Done first;
    world.add([&](ConfigStep::Done done) {
        order.push_back(1);
        first = std::move(done);
    });
    world.add([&](const ConfigStep::Done& done) {
        order.push_back(2);
        done("no room");
    });
    world.add([&](const ConfigStep::Done& done) {
        order.push_back(3);
        done(ConfigStep::Result::lost("a write was lost"));
    });
    world.reload();
    CHECK(order == std::vector{1});
    CHECK(world.reloaded == 0);
    first("");
    CHECK(order == std::vector{1, 2, 3});
    CHECK(world.reloaded == 1);
    CHECK(world.changed == 1);
    REQUIRE(world.subject.finished.size() == 3);
    CHECK(world.subject.finished[0].failure.empty());
    CHECK(world.subject.finished[1].failure == "no room");
    CHECK(world.subject.finished[2].failure.empty());
    CHECK(world.subject.finished[2].loss == "a write was lost");
}

TEST_CASE("config control: a change that is much work leaves the daemon its turns in between") {
    World world(50ms);
    int done = 0;
    for (int i = 0; i < 3; ++i) {
        world.add([&](const ConfigStep::Done& step_done) {
            std::this_thread::sleep_for(60ms);
            ++done;
            step_done("");
        });
    }
    world.reload();
    CHECK(done == 1);
    CHECK(world.reloaded == 0);
    world.clock.advance(1ms);
    CHECK(done == 2);
    // Another reload comes behind it, and an end leaves it where it is.
    world.reload();
    CHECK(done == 2);
    world.control.stop();
    world.clock.advance(1ms);
    CHECK(done == 2);
    CHECK(world.reloaded == 2);
    CHECK(world.subject.finished.at(1).failure.empty());
    CHECK(world.subject.finished.at(2).failure == "rnbd-test is stopping");
}

TEST_CASE("config control: a step that does not end holds the others up for 30 s at most") {
    World world;
    ConfigStep::Done late;
    bool second = false;
    world.add([&](ConfigStep::Done done) { late = std::move(done); });
    world.add([&](const ConfigStep::Done& done) {
        second = true;
        done("");
    });
    world.reload();
    world.clock.advance(29s);
    CHECK(!second);
    world.clock.advance(1s);
    CHECK(second);
    CHECK(world.reloaded == 1);
    CHECK(world.subject.finished.front().failure.find("30 s") != std::string::npos);
    late("");  // is nobody's business any more
    CHECK(world.reloaded == 1);
}

TEST_CASE("config control: so many steps as there can be objects") {
    World world;
    int done_steps = 0;
    for (int i = 0; i < 65536; ++i) {
        world.add([&](const ConfigStep::Done& done) {
            ++done_steps;
            done("");
        });
    }
    world.reload();
    CHECK(done_steps == 65536);
    CHECK(world.reloaded == 1);
}

TEST_CASE("config control: an error or a conflict begins nothing") {
    World world;
    bool begun = false;
    world.add([&](const ConfigStep::Done& done) {
        begun = true;
        done("");
    });
    world.subject.errors = {{"/x.yaml", 1, 1, "exports", "found nonsense"}};
    world.reload();
    world.subject.errors.clear();
    world.subject.next.changes.front().conflict = "it is open";
    world.reload();
    CHECK(!begun);
    CHECK(world.reloaded == 2);
    CHECK(world.changed == 0);
}

TEST_CASE("config control: what is asked for meanwhile is done once, afterwards") {
    World world;
    ConfigStep::Done slow;
    world.add([&](ConfigStep::Done done) { slow = std::move(done); });
    world.reload();
    world.reload();
    world.reload();
    CHECK(world.subject.plans == 1);
    slow("");
    CHECK(world.subject.plans == 2);
    CHECK(world.reloaded == 1);
    slow("");
    CHECK(world.reloaded == 3);
}

TEST_CASE("config control: at the daemon's end nothing more is begun, and nobody waits") {
    World world;
    ConfigStep::Done slow;
    bool second = false;
    world.add([&](ConfigStep::Done done) { slow = std::move(done); });
    world.add([&](const ConfigStep::Done& done) {
        second = true;
        done("");
    });
    world.reload();
    world.reload();
    world.control.stop();
    slow("");
    CHECK(!second);
    REQUIRE(world.subject.finished.size() == 2);
    CHECK(world.subject.finished[0].failure.empty());
    CHECK(world.subject.finished[1].failure == "rnbd-test is stopping");
    CHECK(world.reloaded == 2);
    world.reload();
    CHECK(world.reloaded == 3);
    CHECK(world.subject.plans == 1);
}

TEST_CASE("config control: a step that gives up at the daemon's end is the last one") {
    World world;
    ConfigStep::Done slow;
    world.add([&](ConfigStep::Done done) { slow = std::move(done); });
    world.add([](const ConfigStep::Done& done) { done(""); });
    world.subject.on_stop = [&] { slow("it looks no more"); };
    world.reload();
    world.control.stop();
    CHECK(world.reloaded == 1);
    REQUIRE(world.subject.finished.size() == 2);
    CHECK(world.subject.finished[0].failure == "it looks no more");
    CHECK(world.subject.finished[1].failure == "rnbd-test is stopping");
}
