#include "rtrs/base/log_rate_limit.h"

#include <catch2/catch.hpp>

namespace rtrs {
namespace {
using namespace std::chrono_literals;

TEST_CASE("log rate limit: the first time, then once per interval with how often it was") {
    LogRateLimit limit(10s);
    const Instant begin = Instant() + 1h;
    CHECK(limit.happened(begin) == 1);
    CHECK(!limit.happened(begin));
    CHECK(!limit.happened(begin + 10s - 1ns));
    CHECK(limit.happened(begin + 10s) == 3);
    CHECK(!limit.happened(begin + 11s));
    CHECK(limit.happened(begin + 1h) == 2);
    CHECK(limit.happened(begin + 2h) == 1);
}

TEST_CASE("log rate limit: one is not counted in words") {
    CHECK(how_often(1).empty());
    CHECK(how_often(2) == " (2 of these since the last such line)");
}

}  // namespace
}  // namespace rtrs
