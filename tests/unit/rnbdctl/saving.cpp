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

TEST_CASE("saving: what an object of any file is now") {
    const auto then = [](const std::string& text, const char* amend) {
        const auto made = with_piece(text, {.amend = json::parse(amend)});
        REQUIRE(made);
        return *made;
    };
    std::string text = then("", R"({"session":"s","policy":"round-robin"})");
    text = then(text, R"({"export":"s","size":4096})");
    text = then(text, R"({"session":"s","policy":"min-latency"})");
    CHECK(parsed(text) == json::parse(R"({"amend":[{"session":"s","policy":"min-latency"},
                                                    {"export":"s","size":4096}]})"));
    // A path is in one of the lists.
    text = then(text, R"({"session":"s","add_paths":[{"tcp":"1.2.3.4:5","priority":"standby"}]})");
    text = then(text, R"({"session":"s","add_paths":[{"rdma":"1.2.3.4:5"}]})");
    text = then(text, R"({"session":"s","remove_paths":["1.2.3.4:5"]})");
    CHECK(parsed(text)["amend"][0] ==
          json::parse(R"({"session":"s","policy":"min-latency","add_paths":[{"rdma":"1.2.3.4:5"}],
                          "remove_paths":["1.2.3.4:5"]})"));
    text = then(text, R"({"session":"s","remove_paths":["rdma:1.2.3.4:5"]})");
    text = then(text, R"({"session":"s","add_paths":[{"tcp":"1.2.3.4:5"}]})");
    CHECK(parsed(text)["amend"][0] ==
          json::parse(R"({"session":"s","policy":"min-latency","add_paths":[{"tcp":"1.2.3.4:5"}],
                          "remove_paths":["rdma:1.2.3.4:5"]})"));
    // It goes with its object, whichever file has that.
    const auto other = with_piece(text, {.take = {{"exports", {"s"}}, {"devices", {"s"}}}});
    REQUIRE(other);
    CHECK(parsed(*other)["amend"].size() == 1);
    const auto own = with_piece(text, {.put = {{"exports", {{{"name", "s"}}}}}});
    REQUIRE(own);
    const auto gone = with_piece(*own, {.take = {{"exports", {"s"}}}});
    REQUIRE(gone);
    CHECK(parsed(*gone)["amend"].size() == 1);
    CHECK(!parsed(*gone).contains("exports"));
    // What was left of a former one is nothing of a new one.
    const auto left = with_piece("", {.amend = {{"export", "vol1"}, {"size", 4096}}});
    REQUIRE(left);
    const auto anew = with_piece(*left, {.put = {{"exports", {vol1}}}});
    REQUIRE(anew);
    CHECK(parsed(*anew) == json{{"exports", {vol1}}});
}
