#include "rtrs/core/path_selector.h"

#include <catch2/catch.hpp>
#include <vector>

#include "rtrs/base/random.h"

using namespace rtrs;
using namespace std::chrono_literals;
using Index = std::optional<std::size_t>;

namespace {

constexpr Instant start{1000s};

std::vector<PathLoad> usable_paths(std::size_t count) {
    std::vector<PathLoad> paths(count);
    for (PathLoad& path : paths) path.usable = true;
    return paths;
}

void send(PathLoad& path, int count, std::uint32_t bytes = 0, Instant now = start) {
    for (int i = 0; i < count; ++i) path.sent(bytes, now);
}

// One request after the other, each taking so long.
void measure(PathLoad& path, Duration each, std::uint32_t bytes = 4096) {
    for (int i = 0; i < 20; ++i) {
        path.sent(bytes, start);
        path.answered(bytes, start + each);
    }
}

std::vector<std::size_t> choices(PathSelector& selector, std::span<const PathLoad> paths,
                                 int count) {
    std::vector<std::size_t> result;
    for (int i = 0; i < count; ++i) result.push_back(*selector.select(paths, 0, start));
    return result;
}

// The sums are whole numbers.
bool about(Duration measured, Duration expected) {
    return measured <= expected && measured >= expected * 999 / 1000;
}

constexpr PathPolicy policies[] = {PathPolicy::round_robin, PathPolicy::min_inflight,
                                   PathPolicy::min_latency, PathPolicy::service_time};

}  // namespace

TEST_CASE("path policies have names, and only those are read") {
    for (const PathPolicy policy : policies) {
        CHECK(parse_path_policy(to_string(policy)) == policy);
    }
    CHECK(!parse_path_policy("Round-Robin"));
    CHECK(!parse_path_policy(""));
    CHECK(parse_path_priority("standby") == PathPriority::standby);
    CHECK(parse_path_priority(to_string(PathPriority::prefer)) == PathPriority::prefer);
    CHECK(!parse_path_priority("preferred"));
}

TEST_CASE("path selector: no usable path, no choice") {
    for (const PathPolicy policy : policies) {
        PathSelector selector(policy);
        CHECK(!selector.select({}, 4096, start));
        std::vector<PathLoad> paths(3);
        CHECK(!selector.select(paths, 4096, start));
        paths[1].usable = true;
        CHECK(selector.select(paths, 4096, start) == Index(1));
        PathSet tried;
        tried.set(1);
        CHECK(!selector.select(paths, 4096, start, tried));
    }
}

TEST_CASE("path selector: as many paths as there may be") {
    for (const PathPolicy policy : policies) {
        PathSelector selector(policy);
        std::vector<PathLoad> paths(limits::paths_max);
        paths.back().usable = true;
        CHECK(selector.select(paths, 0, start) == Index(limits::paths_max - 1));
        CHECK(selector.select(paths, 0, start) == Index(limits::paths_max - 1));
    }
}

TEST_CASE("path selector: a standby path is used only while no preferred one is usable") {
    for (const PathPolicy policy : policies) {
        PathSelector selector(policy);
        auto paths = usable_paths(4);
        paths[0].priority = PathPriority::standby;
        paths[2].priority = PathPriority::standby;
        send(paths[1], 1000, 1u << 20);
        send(paths[3], 1001, 1u << 20);
        for (int i = 0; i < 20; ++i) {
            const auto choice = selector.select(paths, 4096, start);
            CHECK((choice == Index(1) || choice == Index(3)));
        }
        paths[1].usable = false;
        for (int i = 0; i < 5; ++i) CHECK(selector.select(paths, 4096, start) == Index(3));
        paths[3].usable = false;
        const auto standby = selector.select(paths, 4096, start);
        CHECK((standby == Index(0) || standby == Index(2)));
        paths[3].usable = true;
        CHECK(selector.select(paths, 4096, start) == Index(3));
        // One that could not take this request does not keep the standby paths from it.
        PathSet tried;
        tried.set(3);
        const auto other = selector.select(paths, 4096, start, tried);
        CHECK((other == Index(0) || other == Index(2)));
    }
}

TEST_CASE("round-robin: list order, wrapping, the first one first") {
    PathSelector selector(PathPolicy::round_robin);
    auto paths = usable_paths(3);
    CHECK(choices(selector, paths, 7) == std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0});
    // A lost one's turns go to the one behind it.
    paths[1].usable = false;
    CHECK(choices(selector, paths, 4) == std::vector<std::size_t>{2, 0, 2, 0});
    // Neither load nor latency counts.
    paths[1].usable = true;
    paths[1].latency = 5s;
    send(paths[1], 100);
    CHECK(choices(selector, paths, 3) == std::vector<std::size_t>{1, 2, 0});
    // The list got shorter.
    paths.resize(1);
    CHECK(choices(selector, paths, 2) == std::vector<std::size_t>{0, 0});
}

TEST_CASE("round-robin: a request tries each path once") {
    PathSelector selector(PathPolicy::round_robin);
    const auto paths = usable_paths(3);
    CHECK(selector.select(paths, 0, start) == Index(0));
    PathSet tried;
    std::vector<std::size_t> order;
    while (const auto choice = selector.select(paths, 0, start, tried)) {
        order.push_back(*choice);
        tried.set(*choice);
    }
    CHECK(order == std::vector<std::size_t>{1, 2, 0});
}

TEST_CASE("min-inflight: the fewest unanswered requests, ties to the first in the list") {
    PathSelector selector(PathPolicy::min_inflight);
    auto paths = usable_paths(4);
    CHECK(selector.select(paths, 0, start) == Index(0));
    send(paths[0], 3);
    send(paths[1], 2);
    send(paths[2], 5);
    send(paths[3], 2);
    CHECK(selector.select(paths, 0, start) == Index(1));
    PathSet tried;
    tried.set(1);
    CHECK(selector.select(paths, 0, start, tried) == Index(3));
    tried.set(3);
    CHECK(selector.select(paths, 0, start, tried) == Index(0));
    tried.set(0);
    CHECK(selector.select(paths, 0, start, tried) == Index(2));
    paths[1].usable = false;
    CHECK(selector.select(paths, 0, start) == Index(3));
    for (int i = 0; i < 4; ++i) paths[2].answered(0, start + 1ms);
    CHECK(selector.select(paths, 0, start) == Index(2));
}

TEST_CASE("in-flight counts are true under every policy, and after a path was lost") {
    for (const PathPolicy policy : policies) {
        PathSelector selector(policy);
        auto paths = usable_paths(2);
        std::vector<std::size_t> on;
        for (int i = 0; i < 10; ++i) {
            on.push_back(*selector.select(paths, 512, start));
            paths[on.back()].sent(512, start);
        }
        CHECK(paths[0].in_flight() + paths[1].in_flight() == 10);
        // Path 0 is lost: what it had is sent on path 1.
        paths[0].usable = false;
        while (paths[0].in_flight() > 0) {
            paths[0].left(512);
            CHECK(selector.select(paths, 512, start) == Index(1));
            paths[1].sent(512, start);
        }
        CHECK(paths[1].in_flight() == 10);
        // It is back, and not thought to be busy.
        paths[0].usable = true;
        selector.set_policy(PathPolicy::min_inflight);
        for (int i = 0; i < 10; ++i) {
            CHECK(selector.select(paths, 512, start) == Index(0));
            paths[0].sent(512, start);
        }
    }
}

TEST_CASE("min-latency: the shortest round trip, unmeasured is preferred, ties to the first") {
    PathSelector selector(PathPolicy::min_latency);
    auto paths = usable_paths(4);
    paths[0].latency = 300us;
    paths[1].latency = 200us;
    paths[2].latency = 900us;
    paths[3].latency = 200us;
    send(paths[1], 100);  // does not count
    CHECK(selector.select(paths, 0, start) == Index(1));
    CHECK(selector.select(paths, 0, start) == Index(1));
    PathSet tried;
    tried.set(1);
    CHECK(selector.select(paths, 0, start, tried) == Index(3));
    tried.set(3);
    CHECK(selector.select(paths, 0, start, tried) == Index(0));
    paths[2].latency = {};
    CHECK(selector.select(paths, 0, start) == Index(2));
    paths[0].latency = {};
    CHECK(selector.select(paths, 0, start) == Index(0));
}

TEST_CASE("service-time: unmeasured paths are tried, one request each until it is answered") {
    PathSelector selector(PathPolicy::service_time);
    auto paths = usable_paths(3);
    measure(paths[0], 100us);
    CHECK(selector.select(paths, 4096, start + 1ms) == Index(1));
    paths[1].sent(4096, start + 1ms);
    CHECK(selector.select(paths, 4096, start + 1ms) == Index(2));
    paths[2].sent(4096, start + 1ms);
    for (int i = 0; i < 50; ++i) {
        CHECK(selector.select(paths, 4096, start + 1ms) == Index(0));
        paths[0].sent(4096, start + 1ms);
    }
    paths[0].usable = false;
    CHECK(selector.select(paths, 4096, start + 1ms) == Index(1));
}

TEST_CASE("service-time: nothing measured at all spreads evenly") {
    PathSelector selector(PathPolicy::service_time);
    auto paths = usable_paths(3);
    for (int i = 0; i < 30; ++i) paths[*selector.select(paths, 4096, start)].sent(4096, start);
    for (const PathLoad& path : paths) CHECK(path.in_flight() == 10);
}

TEST_CASE("service-time: a path that is four times as fast gets four times as much") {
    PathSelector selector(PathPolicy::service_time);
    auto paths = usable_paths(2);
    measure(paths[0], 400us);
    measure(paths[1], 100us);
    CHECK(about(paths[0].service_time(4096), 400us));
    CHECK(about(paths[1].service_time(4096), 100us));
    for (int i = 0; i < 50; ++i) {
        const Instant turn = start + 1ms + i * 1us;
        paths[*selector.select(paths, 4096, turn)].sent(4096, turn);
    }
    CHECK(paths[0].in_flight() == 10);
    CHECK(paths[1].in_flight() == 40);
}

TEST_CASE("service-time: a turn's requests stay together until they would wait") {
    PathSelector selector(PathPolicy::service_time);
    auto paths = usable_paths(2);
    measure(paths[0], 10us);
    measure(paths[1], 10us);
    const auto send_at = [&](Instant turn, int requests) {
        for (int i = 0; i < requests; ++i) {
            paths[*selector.select(paths, 4096, turn)].sent(4096, turn);
        }
    };
    send_at(start + 1ms, 32);
    CHECK(paths[0].in_flight() == 32);
    CHECK(paths[1].in_flight() == 0);
    // The next turn's go where less is waiting.
    send_at(start + 2ms, 8);
    CHECK(paths[0].in_flight() == 32);
    CHECK(paths[1].in_flight() == 8);
    // A turn that is worth splitting: no path waits 500 us longer than the other, but for rounding.
    send_at(start + 3ms, 200);
    CHECK(paths[0].in_flight() + paths[1].in_flight() == 240);
    CHECK(paths[0].in_flight() <= paths[1].in_flight() + 52);
    CHECK(paths[1].in_flight() <= paths[0].in_flight() + 52);
    paths[1].usable = false;
    CHECK(selector.select(paths, 4096, start + 3ms) == Index(0));
}

TEST_CASE("service-time: a large request in flight weighs more than a small one") {
    PathSelector selector(PathPolicy::service_time);
    auto paths = usable_paths(2);
    measure(paths[0], 100us);
    measure(paths[1], 100us);
    paths[0].sent(1u << 20, start);
    for (int i = 0; i < 20; ++i) {
        CHECK(selector.select(paths, 4096, start) == Index(1));
        paths[1].sent(4096, start);
    }
}

TEST_CASE("service-time: requests served at a time and one after the other are told apart") {
    // 32 at a time, each 3.2 ms, against one after the other, each 200 us: with 32 in flight the
    // first one answers 10 requests per ms, the second one 5.
    PathLoad parallel, serial;
    Instant now = start;
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 32; ++i) parallel.sent(4096, now);
        now += 3200us;
        for (int i = 0; i < 32; ++i) parallel.answered(4096, now);
    }
    CHECK(about(parallel.service_time(4096), 100us));
    now = start;
    send(serial, 32, 4096, now);
    for (int i = 0; i < 32; ++i) serial.answered(4096, now += 200us);
    CHECK(about(serial.service_time(4096), 200us));
}

TEST_CASE("service-time: idle time does not count, and old times are forgotten") {
    PathLoad path;
    measure(path, 100us);
    path.sent(4096, start + 500s);
    path.answered(4096, start + 500s + 100us);
    CHECK(about(path.service_time(4096), 100us));
    Instant now = start + 600s;
    for (int i = 0; i < 60; ++i) {
        path.sent(4096, now);
        path.answered(4096, now += 10ms);
    }
    CHECK(path.service_time(4096) > 9900us);
    CHECK(path.service_time(4096) <= 10ms);
}

TEST_CASE("service-time: a path that has fallen silent gets no more, however fast it was") {
    auto paths = usable_paths(2);
    measure(paths[0], 10us);
    measure(paths[1], 1ms);
    PathSelector selector(PathPolicy::service_time);
    REQUIRE(selector.select(paths, 0, start + 20ms) == Index(0));
    paths[0].sent(0, start + 20ms);
    CHECK(selector.select(paths, 0, start + 30ms) == Index(0));
    CHECK(selector.select(paths, 0, start + 32ms) == Index(1));
}

TEST_CASE("service-time: a path that was slow is tried again after a second without requests") {
    PathSelector selector(PathPolicy::service_time);
    auto paths = usable_paths(2);
    measure(paths[0], 50ms);
    measure(paths[1], 100us);
    paths[1].sent(4096, start + 1s);
    CHECK(selector.select(paths, 4096, start + 1s) == Index(1));
    CHECK(selector.select(paths, 4096, start + 1s + 50ms) == Index(0));
    paths[0].sent(4096, start + 1s + 50ms);
    CHECK(selector.select(paths, 4096, start + 1s + 50ms) == Index(1));
}

TEST_CASE("path selector: what is chosen is always eligible, over many random lists") {
    Random random(11);
    for (int round = 0; round < 20000; ++round) {
        PathSelector selector(policies[random.below(4)]);
        std::vector<PathLoad> paths(random.below(limits::paths_max + 1));
        PathSet tried;
        bool preferred = false;
        bool any = false;
        for (std::size_t i = 0; i < paths.size(); ++i) {
            paths[i].usable = random.chance(1, 2);
            paths[i].priority = random.chance(1, 2) ? PathPriority::prefer : PathPriority::standby;
            paths[i].latency = Duration(random.below(3));
            send(paths[i], static_cast<int>(random.below(3)), 512);
            if (random.chance(1, 4)) tried.set(i);
            const bool eligible = paths[i].usable && !tried[i];
            any |= eligible;
            preferred |= eligible && paths[i].priority == PathPriority::prefer;
        }
        for (int again = 0; again < 3; ++again) {
            const auto choice = selector.select(paths, 512, start + 1ms, tried);
            REQUIRE(choice.has_value() == any);
            if (!choice) continue;
            REQUIRE(paths[*choice].usable);
            REQUIRE(!tried[*choice]);
            REQUIRE((paths[*choice].priority == PathPriority::prefer) == preferred);
        }
    }
}
