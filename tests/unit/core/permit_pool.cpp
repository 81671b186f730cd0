#include "rtrs/core/permit_pool.h"

#include <catch2/catch.hpp>

using namespace rtrs;

namespace {
struct Waiter : PermitWaiter {
    explicit Waiter(std::uint32_t wanted) : PermitWaiter([](PermitWaiter&) {}) { count = wanted; }
};
}  // namespace

TEST_CASE("the permit used last is taken first") {
    PermitPool pool;
    pool.fill(4);
    CHECK(pool.total() == 4);
    CHECK(pool.take() == PermitId{0});
    CHECK(pool.take() == PermitId{1});
    CHECK(pool.take() == PermitId{2});
    pool.put(PermitId{1});
    pool.put(PermitId{0});
    CHECK(pool.take() == PermitId{0});
    CHECK(pool.take() == PermitId{1});
    CHECK(pool.take() == PermitId{3});
    CHECK(pool.free() == 0);
    CHECK(!pool.can_take(1));
}

TEST_CASE("waiters are served in order, whole, and nobody overtakes") {
    PermitPool pool;
    pool.fill(3);
    const PermitId a = pool.take(), b = pool.take(), c = pool.take();
    Waiter big(3), small(1);
    pool.wait(big);
    pool.wait(small);
    pool.put(a);
    CHECK(pool.next_served() == nullptr);  // small would fit, but big came first
    CHECK(!pool.can_take(1));
    pool.put(b);
    CHECK(pool.next_served() == nullptr);
    pool.put(c);
    CHECK(pool.next_served() == &big);
    for (int i = 0; i < 3; ++i) pool.take();
    CHECK(pool.next_served() == nullptr);
    pool.put(c);
    CHECK(!pool.can_take(1));  // it is small's
    CHECK(pool.next_served() == &small);
    CHECK(pool.can_take(1));
}

TEST_CASE("who stops waiting lets the next one pass") {
    PermitPool pool;
    pool.fill(1);
    Waiter big(2), small(1), last(1);
    pool.wait(big);
    pool.wait(small);
    pool.wait(last);
    CHECK(pool.next_served() == nullptr);
    pool.stop_waiting(big);
    pool.stop_waiting(big);  // again: nothing
    pool.stop_waiting(last);
    CHECK(pool.next_served() == &small);
    CHECK(!pool.waiting());
}

namespace {
// Four permits were taken and came back, two of them in doubt.
struct Doubted {
    Doubted() {
        pool.fill(4);
        for (int i = 0; i < 4; ++i) taken.push_back(pool.take());
        pool.doubted();
        pool.doubted();
        pool.put(taken[0]);
        pool.put_doubtful(taken[1]);
        pool.put_doubtful(taken[2]);
        pool.put(taken[3]);
    }
    std::vector<PermitId> take(int count) {
        std::vector<PermitId> some;
        while (count-- > 0) some.push_back(pool.take());
        std::ranges::sort(some);
        return some;
    }
    PermitPool pool;
    std::vector<PermitId> taken;
};
}  // namespace

TEST_CASE("permit pool: those in doubt are taken when no other is free") {
    Doubted d;
    CHECK(d.pool.free() == 4);
    CHECK(d.pool.free_of_doubt() == 2);
    CHECK(d.take(2) == std::vector{d.taken[0], d.taken[3]});
    SECTION("another comes back first") {
        d.pool.put(d.taken[0]);
        CHECK(d.pool.take() == d.taken[0]);
    }
    SECTION("one of them is taken, and comes back") {
        const PermitId one = d.pool.take();
        d.pool.put_doubtful(one);
        d.pool.put(d.taken[3]);
        CHECK(d.pool.take() == d.taken[3]);
        CHECK(d.pool.free_of_doubt() == 0);
    }
    SECTION("one of them is settled") {
        d.pool.settled();
        CHECK(d.pool.take_doubtful(d.taken[1]));
        CHECK_FALSE(d.pool.take_doubtful(d.taken[1]));
        CHECK_FALSE(d.pool.take_doubtful(d.taken[0]));
        d.pool.put(d.taken[1]);
        CHECK(d.pool.free_of_doubt() == 1);
        CHECK(d.pool.take() == d.taken[1]);
        CHECK(d.pool.take() == d.taken[2]);
        CHECK(d.pool.free() == 0);
    }
}

TEST_CASE("permit pool: those in doubt are kept back from all who need no more than the others") {
    Doubted d;
    d.pool.keep_back(true);
    CHECK(d.pool.free() == 2);
    CHECK(d.pool.can_take(2));
    SECTION("who needs more gets them") {
        CHECK(d.pool.can_take(4));
        CHECK(d.take(3).size() == 3);
        CHECK(d.pool.free() == 0);
        CHECK_FALSE(d.pool.can_take(1));  // others will come back
        CHECK_FALSE(d.pool.can_take(3));  // only one is left
    }
    SECTION("all are in doubt") {
        d.take(2);
        CHECK_FALSE(d.pool.can_take(1));
        d.pool.doubted();
        CHECK_FALSE(d.pool.can_take(1));
        d.pool.doubted();
        CHECK(d.pool.can_take(2));
        CHECK(d.pool.free() == 2);
        CHECK(d.pool.free_of_doubt() == 0);
        CHECK(d.take(2) == std::vector{d.taken[1], d.taken[2]});
    }
    SECTION("who waits is served when they are not kept back any more") {
        d.take(2);
        Waiter waiter(2);
        d.pool.wait(waiter);
        CHECK(d.pool.next_served() == nullptr);
        d.pool.keep_back(false);
        CHECK(d.pool.next_served() == &waiter);
    }
    SECTION("who waits is served when the others have come to be in doubt") {
        d.take(2);
        Waiter waiter(2);
        d.pool.wait(waiter);
        d.pool.doubted();
        CHECK(d.pool.next_served() == &waiter);
    }
}
