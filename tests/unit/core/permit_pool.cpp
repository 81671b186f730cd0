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
