#include "rtrs/fabric/tcp/receive_queue.h"

#include <catch2/catch.hpp>
#include <deque>
#include <optional>

#include "rtrs/base/random.h"

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

TEST_CASE("receive queue: an array of buffers, of which a quiet connection uses one") {
    ReceiveQueue queue(8);
    REQUIRE(queue.ready());
    for (std::uint64_t i = 0; i < 8; ++i) queue.push(entry(i, i * 64, 64));
    REQUIRE(queue.full());
    for (std::uint64_t i = 0; i < 100; ++i) {
        const auto used = queue.pop();
        REQUIRE(same(used, entry(7, 7 * 64, 64)));
        queue.push(used);
    }
}

TEST_CASE("receive queue: a buffer of another size has its turn") {
    ReceiveQueue queue(8);
    queue.push(entry(100, 0, 128));
    for (std::uint64_t i = 0; i < 4; ++i) queue.push(entry(i, i * 64, 64));
    REQUIRE(queue.pop().context == 100);
    REQUIRE(queue.pop().context == 3);
    queue.push(entry(100, 0, 128));
    REQUIRE(queue.pop().context == 0);
    REQUIRE(queue.pop().context == 1);
    REQUIRE(queue.pop().context == 2);
    REQUIRE(queue.pop().context == 100);
    REQUIRE(queue.empty());
}

TEST_CASE("receive queue: empty buffers have no place") {
    ReceiveQueue queue(4);
    std::byte somewhere;
    queue.push({7, {&somewhere, 0}});
    REQUIRE(queue.next().buffer.data == nullptr);
    REQUIRE(queue.pop().context == 7);
    REQUIRE(queue.empty());
}

TEST_CASE("receive queue: whatever is offered comes out once, as large as the oldest") {
    Random random(1);
    for (int round = 0; round < 200; ++round) {
        const auto entries_max = static_cast<std::uint32_t>(1 + random.below(20));
        ReceiveQueue queue(entries_max);
        std::deque<ReceiveQueue::Entry> model;  // without the next, once that was asked for
        std::optional<ReceiveQueue::Entry> next;
        const auto choose = [&] {
            if (next) return;
            if (model.back().buffer.bytes == model.front().buffer.bytes) {
                next = model.back();
                model.pop_back();
            } else {
                next = model.front();
                model.pop_front();
            }
        };
        // Few values, so that runs come about and break.
        const std::uint64_t values = 1 + random.below(4);
        for (int step = 0; step < 500; ++step) {
            const std::size_t size = model.size() + (next ? 1 : 0);
            REQUIRE(queue.empty() == (size == 0));
            REQUIRE(queue.full() == (size == entries_max));
            const auto die = random.below(5);
            if (die < 2 && !queue.full()) {
                const auto bytes = static_cast<std::uint32_t>(random.below(2) * 64);
                const auto offered = entry(random.below(values), random.below(values) * 64, bytes);
                queue.push(offered);
                model.push_back(offered);
            } else if (die < 3 && size > 0) {
                choose();
                REQUIRE(same(queue.next(), *next));
            } else if (size > 0) {
                choose();
                REQUIRE(same(queue.pop(), *next));
                next.reset();
            }
        }
    }
}
