#include <catch2/catch.hpp>
#include <deque>

#include "rtrs/base/random.h"
#include "rtrs/fabric/tcp/receive_queue.h"

using namespace rtrs;
using tcp::ReceiveQueue;

namespace {

std::byte memory[1 << 16];

ReceiveQueue::Entry entry(std::uint64_t context, std::size_t at, std::uint32_t bytes) {
    return {context, {bytes > 0 ? memory + at : nullptr, bytes}};
}

bool same(const ReceiveQueue::Entry& one, const ReceiveQueue::Entry& other) {
    return one.context == other.context && one.buffer.data == other.buffer.data &&
           one.buffer.bytes == other.buffer.bytes;
}

}  // namespace

TEST_CASE("receive queue: an array of buffers, each offered again when it was used") {
    ReceiveQueue queue(8);
    REQUIRE(queue.ready());
    for (std::uint64_t i = 0; i < 8; ++i) queue.push(entry(i, i * 64, 64));
    REQUIRE(queue.full());
    for (std::uint64_t i = 0; i < 100; ++i) {
        const auto used = queue.pop();
        REQUIRE(same(used, entry(i % 8, i % 8 * 64, 64)));
        queue.push(used);
    }
}

TEST_CASE("receive queue: empty buffers have no place") {
    ReceiveQueue queue(4);
    std::byte somewhere;
    queue.push({7, {&somewhere, 0}});
    REQUIRE(queue.front().buffer.data == nullptr);
    REQUIRE(queue.pop().context == 7);
    REQUIRE(queue.empty());
}

TEST_CASE("receive queue: whatever is offered comes out in its order") {
    Random random(1);
    for (int round = 0; round < 200; ++round) {
        const auto entries_max = static_cast<std::uint32_t>(1 + random.below(20));
        ReceiveQueue queue(entries_max);
        std::deque<ReceiveQueue::Entry> model;
        // Few values, so that runs come about and break.
        const std::uint64_t values = 1 + random.below(4);
        for (int step = 0; step < 500; ++step) {
            REQUIRE(queue.empty() == model.empty());
            REQUIRE(queue.full() == (model.size() == entries_max));
            if (!queue.full() && random.below(2) == 0) {
                const auto bytes = static_cast<std::uint32_t>(random.below(2) * 64);
                const auto next = entry(random.below(values), random.below(values) * 64, bytes);
                queue.push(next);
                model.push_back(next);
            } else if (!model.empty()) {
                REQUIRE(same(queue.front(), model.front()));
                REQUIRE(same(queue.pop(), model.front()));
                model.pop_front();
            }
        }
    }
}
