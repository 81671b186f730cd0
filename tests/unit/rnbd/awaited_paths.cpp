#include "rnbd/awaited_paths.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rtrs/base/error.h"
#include "tests/test_clock.h"

using namespace rnbd;
using namespace std::chrono_literals;
using rtrs::testing::TestClock;

namespace {

rtrs::RdmaDevices::Error no_device(std::string text) {
    return {rtrs::from_errno(ENODEV), std::move(text)};
}

// A session that has no device for any path but those in `reachable`.
struct TestOwner final : AwaitedPaths::Owner {
    bool may_add_awaited() const noexcept override { return may_add; }
    std::optional<rtrs::RdmaDevices::Error> add_awaited(const AwaitedPath& path) override {
        ++attempts;
        if (reachable.contains(path.label)) return std::nullopt;
        return no_device(why);
    }
    void on_awaited(const AwaitedPath& path) override { told.push_back(path.reason.text); }
    bool may_add = true;
    std::set<std::string> reachable;
    std::string why = "no device";
    int attempts = 0;
    std::vector<std::string> told;
};

const std::string one = "rdma:10.0.0.1:1234";
const std::string other = "rdma:10.0.1.1:1234";

struct World {
    void add(const std::string& label) {
        awaited.add(label, rtrs::PathPriority::prefer, no_device("no device"));
    }
    TestClock clock;
    TestOwner owner;
    AwaitedPaths awaited{clock, owner};
};

}  // namespace

TEST_CASE("awaited paths: each is tried every second until the session has it") {
    World world;
    world.clock.time += 5s;
    world.add(one);
    world.add(other);
    CHECK(world.awaited.find(one)->since == world.clock.time);
    CHECK(world.awaited.find(one)->next_attempt == world.clock.time + 1s);
    world.clock.advance(999ms);
    CHECK(world.owner.attempts == 0);
    world.owner.reachable.insert(other);
    world.clock.advance(1ms);
    CHECK(world.owner.attempts == 2);
    CHECK(world.awaited.find(other) == nullptr);
    REQUIRE(world.awaited.all().size() == 1);
    CHECK(world.awaited.all().front().attempts == 1);
    CHECK(world.awaited.all().front().next_attempt == world.clock.time + 1s);
    world.owner.why = "no address";
    world.clock.advance(1s);
    CHECK(world.awaited.find(one)->attempts == 2);
    CHECK(world.awaited.find(one)->reason.text == "no address");
    CHECK(world.owner.told == std::vector<std::string>{"no device", "no device", "no address"});
    world.owner.reachable.insert(one);
    world.clock.advance(1s);
    CHECK(world.awaited.all().empty());
    world.clock.advance(10s);
    CHECK(world.owner.attempts == 4);
}

TEST_CASE("awaited paths: none is tried while none may come up") {
    World world;
    world.add(one);
    world.owner.may_add = false;
    world.owner.reachable.insert(one);
    world.clock.advance(1s);
    world.clock.advance(1s);
    CHECK(world.owner.attempts == 0);
    CHECK(world.awaited.find(one)->attempts == 0);
    world.owner.may_add = true;
    world.clock.advance(1s);
    CHECK(world.awaited.all().empty());
}

TEST_CASE("awaited paths: what is forgotten is not tried") {
    World world;
    world.add(one);
    CHECK(!world.awaited.forget(other));
    CHECK(world.awaited.forget(one));
    CHECK(!world.awaited.forget(one));
    world.clock.advance(1s);
    CHECK(world.owner.attempts == 0);
    world.add(other);
    world.clock.advance(1s);
    CHECK(world.owner.attempts == 1);
}

TEST_CASE("awaited paths: a new priority is that of the path that is added") {
    World world;
    world.add(one);
    CHECK(!world.awaited.set_priority(other, rtrs::PathPriority::standby));
    CHECK(world.awaited.set_priority(one, rtrs::PathPriority::standby));
    CHECK(world.awaited.find(one)->priority == rtrs::PathPriority::standby);
}

TEST_CASE("awaited paths: a device that is missing may come, one that is not built in does not") {
    for (const int number : {ENODEV, EADDRNOTAVAIL, ENETUNREACH, EHOSTUNREACH}) {
        CHECK(AwaitedPaths::may_come(rtrs::from_errno(number)));
    }
    CHECK(!AwaitedPaths::may_come(rtrs::from_errno(EOPNOTSUPP)));
    CHECK(!AwaitedPaths::may_come(rtrs::from_errno(EACCES)));
}
