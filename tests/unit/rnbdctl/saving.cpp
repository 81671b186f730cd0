#include "rnbdctl/saving.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using nlohmann::json;

namespace {

json parsed(const std::string& text) {
    REQUIRE(text.starts_with("#"));
    return json::parse(text.substr(text.find('\n') + 1));
}

const json vol1{{"name", "vol1"}, {"path", "/a"}};
const json vol1_elsewhere{{"name", "vol1"}, {"path", "/b"}};
const json vol2{{"name", "vol2"}, {"path", "/c"}};

}  // namespace

TEST_CASE("saving: elements are put in, in the place of those of the same name") {
    const auto first = with_piece("", {.put = {{"exports", {vol1}}}});
    REQUIRE(first);
    CHECK(parsed(*first) == json{{"exports", {vol1}}});
    const auto second = with_piece(*first, {.put = {{"exports", {vol2}}}});
    REQUIRE(second);
    CHECK(parsed(*second) == json{{"exports", {vol1, vol2}}});
    const auto third = with_piece(*second, {.put = {{"exports", {vol1_elsewhere}}}});
    REQUIRE(third);
    CHECK(parsed(*third) == json{{"exports", {vol2, vol1_elsewhere}}});
}

TEST_CASE("saving: elements are taken out by name; what is not there is no error") {
    const auto both = with_piece("", {.put = {{"exports", {vol1, vol2}}}});
    REQUIRE(both);
    const auto one =
        with_piece(*both, {.take = {{"exports", {"vol1", "vol9"}}, {"devices", {"x"}}}});
    REQUIRE(one);
    CHECK(parsed(*one) == json{{"exports", {vol2}}});
    const auto none = with_piece(*one, {.take = {{"exports", {"vol2"}}}});
    REQUIRE(none);
    CHECK(parsed(*none) == json::object());
}

TEST_CASE("saving: a file that somebody else wrote is not touched") {
    for (const char* text :
         {"exports:\n  - name: vol1\n", "[1]", "{\"exports\": ", "# a\nexports: []\n"})
        CHECK(!with_piece(text, {.put = {{"exports", {vol1}}}}));
    // Elements of any form are no reason to fail.
    const auto odd =
        with_piece("{\"exports\": [1, {\"name\": 2}]}", {.put = {{"exports", {vol1}}}});
    REQUIRE(odd);
    CHECK(parsed(*odd) == json{{"exports", {1, {{"name", 2}}, vol1}}});
    CHECK(with_piece("# only this\n", {.put = {{"exports", {vol1}}}}));
}
