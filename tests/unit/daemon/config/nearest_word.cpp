#include "daemon/config/nearest_word.h"

#include <catch2/catch.hpp>

using namespace rnbd;

TEST_CASE("nearest word: near ones only") {
    const std::vector<std::string> words{"name", "block_size", "size"};
    CHECK(nearest_word("naem", words) == "name");
    CHECK(nearest_word("blocksize", words) == "block_size");
    CHECK(nearest_word("SIZE", words) == "size");
    CHECK(nearest_word("zzzzzzzz", words).empty());
    CHECK(nearest_word("", words).empty());
    CHECK(nearest_word(std::string(1000, 'a'), words).empty());
}
