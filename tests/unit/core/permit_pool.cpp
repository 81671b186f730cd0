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

TEST_CASE("permit pool: what is put last is taken when no other is free") {
    PermitPool pool;
    pool.fill(4);
    std::vector<PermitId> taken;
    for (int i = 0; i < 4; ++i) taken.push_back(pool.take());
    pool.put(taken[0]);
    pool.put_last(taken[1]);
    pool.put_last(taken[2]);
    pool.put(taken[3]);
    std::vector<PermitId> usual{pool.take(), pool.take()};
    std::ranges::sort(usual);
    std::vector<PermitId> expected{taken[0], taken[3]};
    std::ranges::sort(expected);
    CHECK(usual == expected);
    SECTION("another comes back first") {
        pool.put(taken[0]);
        CHECK(pool.take() == taken[0]);
    }
    SECTION("one of the last is taken, and comes back as any other") {
        const PermitId last = pool.take();
        pool.put(last);
        pool.put(taken[3]);
        CHECK(pool.take() == taken[3]);
        CHECK(pool.take() == last);
        pool.put_last(last);
        pool.put(taken[0]);
        CHECK(pool.take() == taken[0]);
    }
    SECTION("they are withdrawn") {
        pool.withdraw([&](std::uint32_t id) { return PermitId{id} == taken[1]; });
        CHECK(pool.take() == taken[2]);
        CHECK(pool.free() == 0);
        pool.put(taken[1]);
        pool.put(taken[0]);
        CHECK(pool.take() == taken[0]);
    }
}
