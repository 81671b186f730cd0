#include "rtrs/base/lazy_queue.h"

#include <catch2/catch.hpp>

using rtrs::LazyQueue;

TEST_CASE("lazy queue: first in, first out, also around the end of its memory") {
    LazyQueue<int> queue(3);
    REQUIRE(queue);
    CHECK(queue.empty());
    int in = 0;
    int out = 0;
    for (int round = 0; round < 10; ++round) {
        while (!queue.full()) queue.push(in++);
        CHECK(in - out == 3);
        for (int i = 0; i < 2; ++i, queue.pop()) CHECK(queue.front() == out++);
    }
    CHECK(queue.front() == out);
    queue.pop();
    CHECK(queue.empty());
}

TEST_CASE("lazy queue: one without memory takes nothing") {
    const LazyQueue<int> queue;
    CHECK_FALSE(queue);
    CHECK(queue.empty());
    CHECK(queue.full());
}
