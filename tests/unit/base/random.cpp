#include "rtrs/base/random.h"

#include <array>
#include <catch2/catch.hpp>

using namespace rtrs;

TEST_CASE("random: a seed gives the same run, another seed another") {
    Random a(42), b(42), c(43);
    bool differs = false;
    for (int i = 0; i < 1000; ++i) {
        const std::uint64_t value = a.next();
        REQUIRE(value == b.next());
        differs |= value != c.next();
    }
    REQUIRE(differs);
}

TEST_CASE("random: below stays below and reaches every value about equally") {
    Random random(1);
    std::array<int, 7> counts{};
    for (int i = 0; i < 70000; ++i) {
        const std::uint64_t value = random.below(counts.size());
        REQUIRE(value < counts.size());
        ++counts[value];
    }
    for (const int count : counts) {  // 10000 expected, standard deviation 93
        REQUIRE(count > 9300);
        REQUIRE(count < 10700);
    }
    REQUIRE(random.below(1) == 0);
    for (int i = 0; i < 100; ++i) REQUIRE(random.below(~std::uint64_t{0}) < ~std::uint64_t{0});
}

TEST_CASE("random: chance knows never, always and about half") {
    Random random(2);
    int hits = 0;
    for (int i = 0; i < 10000; ++i) {
        REQUIRE(!random.chance(0, 5));
        REQUIRE(random.chance(5, 5));
        hits += random.chance(1, 2) ? 1 : 0;
    }
    REQUIRE(hits > 4600);
    REQUIRE(hits < 5400);
}

TEST_CASE("random: seeds from the system differ") {
    Random a = Random::from_entropy();
    Random b = Random::from_entropy();
    REQUIRE(a.next() != b.next());
}
