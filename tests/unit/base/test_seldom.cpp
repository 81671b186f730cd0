#include <catch2/catch.hpp>

#include "rtrs/base/seldom.h"

namespace rtrs {
namespace {
using namespace std::chrono_literals;

TEST_CASE("seldom: the first time, then once per interval with how often it was") {
    Seldom seldom(10s);
    const Instant begin = Instant() + 1h;
    CHECK(seldom.happened(begin) == 1);
    CHECK(!seldom.happened(begin));
    CHECK(!seldom.happened(begin + 10s - 1ns));
    CHECK(seldom.happened(begin + 10s) == 3);
    CHECK(!seldom.happened(begin + 11s));
    CHECK(seldom.happened(begin + 1h) == 2);
    CHECK(seldom.happened(begin + 2h) == 1);
}

TEST_CASE("seldom: one is not counted in words") {
    CHECK(how_often(1).empty());
    CHECK(how_often(2) == " (2 of these since the last such line)");
}

}  // namespace
}  // namespace rtrs
