#include "rtrs/fabric/verbs/send_ring.h"

#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "rtrs/base/random.h"

using namespace rtrs::verbs;
using Report = SendContext::Report;
using Signalled = SendRing::Signalled;

namespace {

SendRing::Posted push(SendRing& ring, std::uint64_t context, Report report = Report::failure_only) {
    return ring.push({.context = context, .report = report});
}

std::vector<std::uint64_t> complete(SendRing& ring, std::uint64_t number) {
    std::vector<std::uint64_t> released;
    CHECK(ring.complete(number, [&](const SendContext& context, std::uint64_t) {
        released.push_back(context.context);
    }));
    return released;
}

}  // namespace

TEST_CASE("send ring: every interval-th work is signalled, though nobody asks for it") {
    SendRing ring(64);
    REQUIRE(ring.interval() == 16);
    for (std::uint64_t i = 0; i < 64; ++i) {
        CHECK((push(ring, i).signalled == Signalled::yes) == (i % 16 == 15));
    }
}

TEST_CASE("send ring: who asks for a signal gets it, and the count begins anew") {
    SendRing ring(64);
    for (std::uint64_t i = 0; i < 10; ++i) push(ring, i);
    CHECK(push(ring, 10, Report::always).signalled == Signalled::yes);
    for (std::uint64_t i = 0; i < 15; ++i) CHECK(push(ring, i).signalled == Signalled::no);
    CHECK(push(ring, 15).signalled == Signalled::yes);
}

TEST_CASE("send ring: all is signalled while that is wished, and then the count begins anew") {
    SendRing ring(64);
    push(ring, 0);
    ring.signal_all(true);
    for (std::uint64_t i = 0; i < 20; ++i) CHECK(push(ring, i).signalled == Signalled::yes);
    ring.signal_all(false);
    for (std::uint64_t i = 0; i < 15; ++i) CHECK(push(ring, i).signalled == Signalled::no);
    CHECK(push(ring, 15).signalled == Signalled::yes);
}

TEST_CASE("send ring: a work waits from when it is pushed until it, or a later one, is completed") {
    SendRing ring(8);
    push(ring, 0);
    const std::uint64_t number = ring.next();
    CHECK(!ring.waits(number));
    CHECK(push(ring, 1).number == number);
    push(ring, 2);
    CHECK(ring.waits(number));
    complete(ring, number - 1);
    CHECK(ring.waits(number));
    complete(ring, number + 1);
    CHECK(!ring.waits(number));
}

TEST_CASE("send ring: the interval is bounded at both ends") {
    CHECK(SendRing(1).interval() == 1);
    CHECK(SendRing(7).interval() == 1);
    CHECK(SendRing(8).interval() == 2);
    CHECK(SendRing(65535).interval() == SendRing::interval_max);
    SendRing ring(1);
    CHECK(push(ring, 0).signalled == Signalled::yes);
}

TEST_CASE("send ring: one completion releases all before it and nothing behind it") {
    SendRing ring(8);
    for (std::uint64_t i = 0; i < 6; ++i) push(ring, 100 + i);
    CHECK(complete(ring, 3) == std::vector<std::uint64_t>{100, 101, 102, 103});
    CHECK(ring.used() == 2);
    CHECK(ring.free() == 6);
    CHECK(complete(ring, 5) == std::vector<std::uint64_t>{104, 105});
    CHECK(ring.empty());
}

TEST_CASE("send ring: a context is released before it is shown, so that its place can be taken") {
    SendRing ring(1);
    push(ring, 1);
    ring.complete(0, [&](const SendContext&, std::uint64_t) {
        REQUIRE(ring.free() == 1);
        push(ring, 2);
    });
    CHECK(ring.free() == 0);
    CHECK(complete(ring, 1) == std::vector<std::uint64_t>{2});
}

TEST_CASE("send ring: numbers tell which one failed") {
    SendRing ring(8);
    for (std::uint64_t i = 0; i < 4; ++i) push(ring, i);
    std::vector<std::uint64_t> numbers;
    ring.complete(2, [&](const SendContext& context, std::uint64_t number) {
        CHECK(context.context == number);
        numbers.push_back(number);
    });
    CHECK(numbers == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("send ring: a late completion of what was released before changes nothing") {
    SendRing ring(4);
    for (std::uint64_t i = 0; i < 4; ++i) push(ring, i);
    complete(ring, 2);
    CHECK(complete(ring, 1).empty());
    CHECK(complete(ring, 2).empty());
    CHECK(ring.used() == 1);
    CHECK(complete(ring, 3) == std::vector<std::uint64_t>{3});
    CHECK(complete(ring, 3).empty());
}

TEST_CASE("send ring: a completion of what was never posted is told") {
    SendRing ring(4);
    push(ring, 0);
    CHECK(!ring.complete(1, [](const SendContext&, std::uint64_t) { FAIL(); }));
    CHECK(!ring.complete(~0ull, [](const SendContext&, std::uint64_t) { FAIL(); }));
    CHECK(ring.used() == 1);
}

TEST_CASE("send ring: a flush shows what is left, oldest first, once") {
    SendRing ring(4);
    for (std::uint64_t i = 0; i < 3; ++i) push(ring, i);
    complete(ring, 0);
    push(ring, 3);
    std::vector<std::uint64_t> left;
    const auto take = [&](const SendContext& context) { left.push_back(context.context); };
    ring.flush(take);
    CHECK(left == std::vector<std::uint64_t>{1, 2, 3});
    ring.flush(take);
    CHECK(left.size() == 3);
    CHECK(ring.empty());
    // The device's own report of the flush comes late.
    CHECK(complete(ring, 3).empty());
}

TEST_CASE("send ring: full means wait, and a completion is always on its way then") {
    for (std::uint32_t capacity = 1; capacity < 200; ++capacity) {
        SendRing ring(capacity);
        std::uint64_t newest_signalled = 0;
        bool any = false;
        while (ring.free() > 0) {
            const auto posted = push(ring, 0);
            if (posted.signalled == Signalled::yes) {
                newest_signalled = posted.number;
                any = true;
            }
        }
        CHECK(any);
        complete(ring, newest_signalled);
        // Those behind the newest signal: fewer than an interval.
        CHECK(ring.used() < ring.interval());
    }
}

TEST_CASE("send ring: wraps around many times with all in order") {
    // A device that executes in order and reports what is signalled, at its own time.
    rtrs::Random random(7);
    SendRing ring(37);
    std::deque<std::uint64_t> on_its_way;
    std::uint64_t next = 0;
    std::uint64_t released = 0;
    while (released < 100000) {
        for (std::uint64_t n = random.below(20); n > 0 && ring.free() > 0; --n) {
            const auto posted =
                push(ring, next, random.below(5) == 0 ? Report::always : Report::failure_only);
            CHECK(posted.number == next);
            ++next;
            if (posted.signalled == Signalled::yes) on_its_way.push_back(posted.number);
        }
        REQUIRE((ring.free() > 0 || !on_its_way.empty()));
        for (std::uint64_t n = random.below(4); n > 0 && !on_its_way.empty(); --n) {
            for (const std::uint64_t context : complete(ring, on_its_way.front())) {
                REQUIRE(context == released++);
            }
            on_its_way.pop_front();
        }
    }
}
