#include "rnbdctl/saving.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

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

namespace {

// Two devices on a session that was made for them.
const char* const two_devices = R"({"sessions":[{"name":"s","paths":[{"tcp":"1.2.3.4:5"}]}],
                                    "devices":[{"name":"a","session":"s","volume":"a"},
                                               {"name":"b","session":"s","volume":"b"}]})";

}  // namespace

TEST_CASE("saving: a session of the file goes with the last device that is on it") {
    using Names = std::vector<std::string>;
    const auto without = [](const std::string& text, const char* device,
                            const Names& used_elsewhere = {}) {
        Names asked;
        const auto made = with_piece(
            text, {.take = {{"devices", {device}}}}, {.may_leave = [&](const std::string& session) {
                asked.push_back(session);
                return std::ranges::find(used_elsewhere, session) == used_elsewhere.end();
            }});
        REQUIRE(made);
        return std::pair(*made, asked);
    };
    const auto [one, asked_early] = without(two_devices, "a");
    CHECK(asked_early.empty());
    CHECK(parsed(one)["sessions"].size() == 1);
    const auto [none, asked] = without(one, "b");
    CHECK(asked == Names{"s"});
    CHECK(parsed(none) == json::object());
    const auto [kept, asked_too] = without(one, "b", {"s"});
    CHECK(asked_too == asked);
    CHECK(parsed(kept) == json::parse(one.substr(one.find('\n')))
                              .patch(json::parse(R"([{"op":"remove","path":"/devices"}])")));
    // One that is not there has no session; what nobody took a device from stays.
    const auto [same, not_asked] = without(kept, "b");
    CHECK(not_asked.empty());
    CHECK(same == kept);
    // With what was amended of it, but not what was amended of another file's.
    const auto [rest, asked_once] = without(
        R"({"sessions":[{"name":"s"}],"devices":[{"name":"a","session":"s"}],
            "amend":[{"session":"s","policy":"round-robin"},
                     {"session":"t","policy":"round-robin"}]})",
        "a");
    CHECK(asked_once == asked);
    CHECK(parsed(rest) == json::parse(R"({"amend":[{"session":"t","policy":"round-robin"}]})"));
    const auto [amended, never_asked] = without(
        R"({"devices":[{"name":"a","session":"t"}],
            "amend":[{"session":"t","policy":"round-robin"}]})",
        "a");
    CHECK(never_asked.empty());
    CHECK(parsed(amended)["amend"].size() == 1);
}

TEST_CASE("saving: a session goes, too, if its last device is put on another one") {
    const auto moved = with_piece(two_devices, {.take = {{"devices", {"a"}}}});
    REQUIRE(moved);
    const json other = json::parse(R"({
        "devices":[{"name":"b","session":"t","volume":"b"}],
        "sessions":[{"name":"t","paths":[{"tcp":"1.2.3.4:6"}]}]})");
    const auto there = with_piece(*moved, {.put = other});
    REQUIRE(there);
    CHECK(parsed(*there)["sessions"] ==
          json::parse(R"([{"name":"t","paths":[{"tcp":"1.2.3.4:6"}]}])"));
    // The same one again is none that goes.
    const auto again = with_piece(*there, {.put = parsed(*there)});
    REQUIRE(again);
    CHECK(*again == *there);
}

TEST_CASE("saving: which sessions a file of the configuration names") {
    const auto names = [](const char* text) { return names_session({"x.yaml", text}, "s"); };
    CHECK(names("devices:\n  - name: a\n    session: s\n"));
    CHECK(names("amend:\n  - session: 's'\n"));
    CHECK(names(R"({"devices": [1, {"name": "b"}, {"session": "s"}]})"));
    CHECK(!names("devices:\n  - name: s\n    session: t\n"));
    CHECK(!names("sessions:\n  - name: t\ndevices: s\namend: {session: s}\n"));
    CHECK(!names(""));
    CHECK(!names("# s\n"));
    // Who knows?
    CHECK(names("devices: [\n"));
    CHECK(names("- session: t\n"));
}

namespace {

json amended(const json& file, const char* amendment, const Elsewhere& elsewhere = {}) {
    const auto made = with_piece(file.dump(), {.amend = json::parse(amendment)}, elsewhere);
    REQUIRE(made);
    return parsed(*made);
}

}  // namespace

TEST_CASE("saving: an object of this file is changed where it stands") {
    const json file = json::parse(R"({
        "sessions":[{"name":"s","paths":[{"tcp":"1.2.3.4:5"},
                                         {"tcp":"[0:0::1]:5","source":"::2","priority":"standby"}]},
                    {"name":"t","paths":[{"tcp":"1.2.3.4:5"}]}],
        "exports":[{"name":"s","path":"/a","size":"1MiB"},{"name":"e","path":"/b"},
                   {"name":"m","storage":{"kind":"memory","size":"1MiB"}},
                   {"name":"d","storage":{"kind":"delay","of":{"kind":"null","size":512}}}]})");
    const auto with = [&](const char* patch) { return file.patch(json::parse(patch)); };
    CHECK(amended(file, R"({"session":"s","policy":"round-robin"})") ==
          with(R"([{"op":"add","path":"/sessions/0/policy","value":"round-robin"}])"));
    // However a path is written.
    CHECK(amended(file, R"({"session":"s","remove_paths":["::2@[::1]:5"]})") ==
          with(R"([{"op":"remove","path":"/sessions/0/paths/1"}])"));
    CHECK(amended(file, R"({"session":"s","add_paths":[{"tcp":"::2@[::1]:5"}]})") ==
          with(R"([{"op":"remove","path":"/sessions/0/paths/1/priority"}])"));
    CHECK(amended(file,
                  R"({"session":"s","add_paths":[{"tcp":"1.2.3.4:5","priority":"standby"}]})") ==
          with(R"([{"op":"add","path":"/sessions/0/paths/0/priority","value":"standby"}])"));
    CHECK(amended(file, R"({"session":"s","add_paths":[{"rdma":"1.2.3.4:5"}]})") ==
          with(R"([{"op":"add","path":"/sessions/0/paths/-","value":{"rdma":"1.2.3.4:5"}}])"));
    // Wherever an export has its size.
    CHECK(amended(file, R"({"export":"s","size":4096})") ==
          with(R"([{"op":"replace","path":"/exports/0/size","value":4096}])"));
    CHECK(amended(file, R"({"export":"e","size":4096})") ==
          with(R"([{"op":"add","path":"/exports/1/size","value":4096}])"));
    CHECK(amended(file, R"({"export":"m","size":4096})") ==
          with(R"([{"op":"replace","path":"/exports/2/storage/size","value":4096}])"));
    CHECK(amended(file, R"({"export":"d","size":4096})") ==
          with(R"([{"op":"replace","path":"/exports/3/storage/of/size","value":4096}])"));
    // Of another file; and what another file amends, too, which would count over this.
    const char* const other = R"({"export":"t","size":4096})";
    CHECK(amended(file, other)["amend"] == json::array({json::parse(other)}));
    const char* const own = R"({"export":"s","size":4096})";
    const Elsewhere all{.amends = [](const auto&, const auto&) { return true; }};
    CHECK(amended(file, own, all)["amend"] == json::array({json::parse(own)}));
    // Elements of any form are no reason to fail.
    CHECK(amended(json::parse(R"({"sessions":[1,{"name":"s","paths":["1.2.3.4:5",2]}]})"),
                  R"({"session":"s","add_paths":[{"tcp":"1.2.3.4:5"}]})")["sessions"][1]["paths"]
              .size() == 3);
    CHECK(amended(json::parse(R"({"sessions":[{"name":"s","paths":7}]})"),
                  R"({"session":"s","add_paths":[{"tcp":"1.2.3.4:5"}]})") ==
          json::parse(R"({"sessions":[{"name":"s","paths":7}]})"));
}

TEST_CASE("saving: what was amended of an object of this file moves to where it stands") {
    const char* const text =
        R"({"sessions":[{"name":"s","paths":[{"tcp":"1.2.3.4:5"},{"tcp":"1.2.3.4:6"}]}],
            "exports":[{"name":"e","path":"/a","size":"1MiB"}],
            "amend":[{"session":"s","remove_paths":["1.2.3.4:5"],"add_paths":[{"tcp":"1.2.3.4:7"}]},
                     {"export":"e","size":4096},{"export":"s","size":8192},
                     {"session":"s","policy":"round-robin"},{"session":7},8]})";
    const auto settled = with_piece(text, {});
    REQUIRE(settled);
    const json there = json::parse(
        R"({"sessions":[{"name":"s","policy":"round-robin",
                         "paths":[{"tcp":"1.2.3.4:6"},{"tcp":"1.2.3.4:7"}]}],
            "exports":[{"name":"e","path":"/a","size":4096}],
            "amend":[{"export":"s","size":8192},{"session":7},8]})");
    CHECK(parsed(*settled) == there);
    const auto not_all = with_piece(text, {}, {.amends = [](const std::string& kind, const auto&) {
                                        return kind == "export";
                                    }});
    REQUIRE(not_all);
    CHECK(parsed(*not_all)["amend"].size() == 4);
    CHECK(parsed(*not_all)["exports"] == json::parse(text)["exports"]);
}

TEST_CASE("saving: a session that has one more device keeps what was said of it") {
    const char* const text =
        R"({"sessions":[{"name":"s","policy":"round-robin",
                         "paths":[{"tcp":"1.2.3.4:5"},{"tcp":"[::1]:5","priority":"standby"}]}]})";
    const auto again = with_piece(
        text, {.put = json::parse(R"({"sessions":[{"name":"s","paths":[{"tcp":"[0::1]:5"},
                                                                       {"tcp":"1.2.3.4:5"}]}]})")});
    REQUIRE(again);
    CHECK(parsed(*again) == json::parse(text));
    const json other = json::parse(R"({"sessions":[{"name":"s","paths":[{"tcp":"1.2.3.4:5"}]}]})");
    const auto anew = with_piece(text, {.put = other});
    REQUIRE(anew);
    CHECK(parsed(*anew) == other);
}

TEST_CASE("saving: what a file of the configuration amends") {
    const auto of = [](const char* text, const char* kind) {
        return amends({"x.yaml", text}, kind, "a");
    };
    CHECK(of("amend:\n  - export: a\n    size: 1MiB\n", "export"));
    CHECK(!of("amend:\n  - export: a\n    size: 1MiB\n", "session"));
    CHECK(!of("devices:\n  - name: d\n    session: a\n", "session"));
    CHECK(of("amend: [\n", "session"));
}
