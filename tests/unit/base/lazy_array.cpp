// Arrays of less than a page (on the heap) and of more (pages of their own).
#include "rtrs/base/lazy_array.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>

using rtrs::LazyArray;

TEST_CASE("lazy array: zeroed, whatever its size") {
    for (const std::size_t count :
         {std::size_t{1}, rtrs::page_bytes / 8 - 1, rtrs::page_bytes / 8, std::size_t{100'000}}) {
        LazyArray<std::uint64_t> array(count);
        REQUIRE(array);
        REQUIRE(array.size() == count);
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += array[i];
        CHECK(sum == 0);
        array[count - 1] = 7;
        CHECK(std::as_const(array)[count - 1] == 7);
    }
}

TEST_CASE("lazy array: what was moved keeps its elements, and what they were moved from has none") {
    for (const std::size_t count : {std::size_t{3}, std::size_t{3000}}) {
        LazyArray<std::uint64_t> first(count);
        first[2] = 5;
        LazyArray<std::uint64_t> second(std::move(first));
        CHECK(!first);
        CHECK(first.size() == 0);
        REQUIRE(second.size() == count);
        CHECK(second[2] == 5);
        LazyArray<std::uint64_t> third(1);
        third = std::move(second);
        CHECK(!second);
        REQUIRE(third.size() == count);
        CHECK(third[2] == 5);
        third = LazyArray<std::uint64_t>(count);
        CHECK(third[2] == 0);
    }
}
