// Reads are handed on in portions, one per turn of the loop, of those who ask in turn.
#include "rnbd-server/read_pacer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <vector>

using namespace rnbd;

namespace {

struct World {
    World() : reactor(std::move(*rtrs::Reactor::create())) {}

    // Asks for reads of so many bytes in one turn; the numbers of those that may go at once.
    std::vector<int> ask(const std::vector<std::uint64_t>& reads, int who = 0) {
        std::vector<int> at_once;
        reactor->post([&] {
            for (const std::uint64_t bytes : reads) {
                BlockRequest& request = requests.emplace_back(nullptr);
                request.bytes = bytes;
                const int number = static_cast<int>(requests.size()) - 1;
                if (pacer.ask(request, lines[who]) == ReadPacer::Verdict::go)
                    at_once.push_back(number);
            }
        });
        reactor->run_once(std::nullopt);
        return at_once;
    }
    std::vector<int> next_turn() {
        gone.clear();
        reactor->run_once(rtrs::Duration::zero());
        return gone;
    }

    std::unique_ptr<rtrs::Reactor> reactor;
    ReadPacer::Line lines[3];
    std::deque<BlockRequest> requests;
    std::vector<int> gone;
    ReadPacer pacer{*reactor, this, [](void* self, BlockRequest& request) {
                        auto& world = *static_cast<World*>(self);
                        int number = 0;
                        while (&world.requests[number] != &request) ++number;
                        world.gone.push_back(number);
                    }};
};

constexpr std::uint64_t half = ReadPacer::portion_bytes / 2;
constexpr std::uint64_t large = ReadPacer::small_bytes_max + 512;

}  // namespace

TEST_CASE("read pacer: what fits a portion goes at once") {
    World world;
    REQUIRE(world.ask({half, half}) == std::vector{0, 1});
    REQUIRE(world.next_turn().empty());
}

TEST_CASE("read pacer: small reads take nothing of a portion, and do not wait for large ones") {
    constexpr std::uint64_t small = ReadPacer::small_bytes_max;
    World world;
    REQUIRE(world.ask(std::vector<std::uint64_t>(1000, small)).size() == 1000);
    REQUIRE(world.ask({half, small, half, half, small, 512}) ==
            std::vector{1000, 1001, 1002, 1004, 1005});
    REQUIRE(world.ask({small}) == std::vector{1006});
    std::vector<int> later = world.gone;
    while (later.empty()) later = world.next_turn();
    REQUIRE(later == std::vector{1003});
}

TEST_CASE("read pacer: the rest goes in the coming turns, in order") {
    World world;
    REQUIRE(world.ask({half, half, half, large, half, half}) == std::vector{0, 1});
    REQUIRE(world.next_turn() == std::vector{2, 3});
    REQUIRE(world.next_turn() == std::vector{4, 5});
    REQUIRE(world.next_turn().empty());
}

TEST_CASE("read pacer: a large read does not overtake another one that waits") {
    World world;
    REQUIRE(world.ask({half, half, half, large}) == std::vector{0, 1});
    REQUIRE(world.ask({large}).empty());
    std::vector<int> later = world.gone;
    while (later.size() < 3) {
        for (const int number : world.next_turn()) later.push_back(number);
    }
    REQUIRE(later == std::vector{2, 3, 4});
}

TEST_CASE("read pacer: a read beyond a portion goes alone") {
    World world;
    REQUIRE(world.ask({4 * half, large, 4 * half, large}) == std::vector{0});
    REQUIRE(world.next_turn() == std::vector{1});
    REQUIRE(world.next_turn() == std::vector{2});
    REQUIRE(world.next_turn() == std::vector{3});
}

TEST_CASE("read pacer: those who ask take turns, each with its oldest") {
    World world;
    REQUIRE(world.ask({half, half, half, half, half, half}) == std::vector{0, 1});
    REQUIRE(world.ask({half, half}, 1).empty());
    REQUIRE(world.ask({half}, 2).empty());
    std::vector<int> later = world.gone;
    while (later.size() < 7) {
        for (const int number : world.next_turn()) later.push_back(number);
    }
    REQUIRE(later == std::vector{2, 6, 8, 3, 7, 4, 5});
}

TEST_CASE("read pacer: who has much under way makes another one wait for a turn, not for all") {
    World world;
    world.ask(std::vector<std::uint64_t>(500, half));
    REQUIRE(world.ask({half}, 1).empty());
    int turns = 1;
    while (std::ranges::find(world.gone, 500) == world.gone.end()) {
        world.next_turn();
        REQUIRE(++turns <= 3);
    }
    while (!world.next_turn().empty()) {
    }
}

TEST_CASE("read pacer: what is too large for the rest of a portion is the first of the next") {
    World world;
    REQUIRE(world.ask({half, half, 2 * half}) == std::vector{0, 1});
    REQUIRE(world.ask({large, large}, 1) == std::vector<int>{});
    std::vector<int> later = world.gone;
    std::vector<std::vector<int>> turns{later};
    while (later.size() < 3) {
        turns.push_back(world.next_turn());
        later.insert(later.end(), turns.back().begin(), turns.back().end());
    }
    REQUIRE(later == std::vector{2, 3, 4});
}
