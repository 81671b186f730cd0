#include "rtrs/core/worker_shares.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace rtrs;

TEST_CASE("worker shares: the nearest has it, as long as it has no more than others") {
    WorkerShares shares;
    std::vector<WorkerShares::Place> places;
    const auto near = [&](std::uint32_t nearest) {
        return places.emplace_back(shares.near(nearest, 2)).worker();
    };
    CHECK(near(1) == 1);
    CHECK(near(1) == 0);  // a second path from the same processor
    CHECK(near(1) == 1);
    CHECK(near(0) == 0);
}

TEST_CASE("worker shares: a place that is given back is free again") {
    WorkerShares shares;
    auto first = shares.near(0, 2);
    {
        const auto second = shares.near(1, 2);
        CHECK(second.worker() == 1);
    }
    first.give_back();
    first.give_back();  // once is enough
    CHECK(first.worker() == 0);
    auto again = shares.near(0, 2);
    CHECK(again.worker() == 0);
    const WorkerShares::Place moved = std::move(again);
    CHECK(shares.near(0, 2).worker() == 1);
}

TEST_CASE("worker shares: further connections of a path go to who has the fewest") {
    WorkerShares shares;
    const auto first = shares.near(1, 3);
    const auto second = shares.idlest(3);
    const auto third = shares.idlest(3);
    const auto fourth = shares.near(2, 3);
    CHECK(first.worker() == 1);
    CHECK(second.worker() == 0);
    CHECK(third.worker() == 2);
    CHECK(fourth.worker() == 2);
}

// Idle sessions are in the count: it need not be exact where there are many.
TEST_CASE("worker shares: of many the nearest may have an eighth more, and no more than that") {
    WorkerShares shares;
    std::vector<WorkerShares::Place> places;
    for (int i = 0; i < 80; ++i) places.push_back(shares.idlest(2));
    for (int i = 0; i < 6; ++i) {
        places.push_back(shares.near(0, 2));
        CHECK(places.back().worker() == 0);
    }
    CHECK(shares.near(0, 2).worker() == 1);
    CHECK(shares.near(1, 2).worker() == 1);
}
