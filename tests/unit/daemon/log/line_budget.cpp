#include "daemon/log/line_budget.h"

#include <catch2/catch.hpp>

namespace rnbd {
namespace {
using namespace std::chrono_literals;

// How many of so many lines at this moment are written.
std::uint64_t written(LineBudget& budget, rtrs::Instant now, std::uint64_t lines) {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < lines; ++i) count += budget.spend(now) ? 1 : 0;
    return count;
}

TEST_CASE("line budget: a burst is written, and then so many a second on the whole") {
    LineBudget budget;
    const rtrs::Instant begin = rtrs::Instant() + 1h;
    CHECK(written(budget, begin, 2 * LineBudget::burst) == LineBudget::burst);
    CHECK(budget.left_out() == LineBudget::burst);
    budget.told();
    CHECK(budget.left_out() == 0);
    // A flood that goes on for an hour.
    std::uint64_t count = 0;
    for (int i = 1; i <= 3600; ++i) count += written(budget, begin + i * 1s, 5000);
    CHECK(count > 3500 * LineBudget::per_second);
    CHECK(count <= 3600 * LineBudget::per_second);
    CHECK(budget.left_out() == 3600 * 5000 - count);
}

TEST_CASE("line budget: what rests begins again with many lines, not with single ones") {
    LineBudget budget;
    const rtrs::Instant begin = rtrs::Instant() + 1h;
    written(budget, begin, LineBudget::burst + 1);
    const auto enough = LineBudget::resume_from / LineBudget::per_second * 1s;
    CHECK(written(budget, begin + enough - 1ms, 1) == 0);
    CHECK(written(budget, begin + enough, 5000) == LineBudget::resume_from);
}

TEST_CASE("line budget: who is below it loses nothing, and a quiet time earns a burst again") {
    LineBudget budget;
    rtrs::Instant now = rtrs::Instant() + 1h;
    for (int i = 0; i < 100000; ++i, now += 20ms) REQUIRE(budget.spend(now));
    written(budget, now, LineBudget::burst + 1);
    now += 1h;
    CHECK(written(budget, now, 2 * LineBudget::burst) == LineBudget::burst);
}

}  // namespace
}  // namespace rnbd
