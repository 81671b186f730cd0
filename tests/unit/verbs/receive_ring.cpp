#include "rtrs/fabric/verbs/receive_ring.h"

#include <catch2/catch.hpp>
#include <vector>

using rtrs::verbs::ReceiveRing;

TEST_CASE("receive ring: is full at its capacity and gives back the oldest first, around its end") {
    ReceiveRing ring(3);
    CHECK(ring.empty());
    std::uint64_t next_in = 0;
    std::uint64_t next_out = 0;
    for (int round = 0; round < 10; ++round) {
        while (!ring.full()) ring.push({.context = next_in++});
        CHECK(next_in - next_out == 3);
        CHECK(ring.pop().context == next_out++);
        CHECK(ring.pop().context == next_out++);
    }
    CHECK(ring.pop().context == next_out);
    CHECK(ring.empty());
}

TEST_CASE("receive ring: shows what waits, with its buffers, oldest first") {
    ReceiveRing ring(2);
    std::byte memory[8];
    ring.push({.context = 1});
    ring.pop();
    ring.push({.context = 2, .buffer = {memory, 8}});
    ring.push({.context = 3});
    std::vector<std::uint64_t> seen;
    ring.for_each([&](const ReceiveRing::Entry& entry) {
        seen.push_back(entry.context);
        CHECK(entry.buffer.bytes == (entry.context == 2 ? 8u : 0u));
    });
    CHECK(seen == std::vector<std::uint64_t>{2, 3});
}
