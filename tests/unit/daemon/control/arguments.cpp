#include "daemon/control/arguments.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using nlohmann::json;
using Need = ControlArguments::Need;

namespace {

std::optional<int> parse_number_word(std::string_view text) {
    if (text == "one") return 1;
    if (text == "two") return 2;
    return std::nullopt;
}

std::string failure_of(ControlArguments& arguments) {
    const auto failure = arguments.failure();
    if (!failure) return "";
    CHECK(failure->code == ControlError::bad_arguments);
    return failure->message;
}

// What is said when take() takes the only argument, key, out.
template <typename Take>
std::string failure_of(const json& given, Take take) {
    ControlArguments arguments(given);
    take(arguments);
    return failure_of(arguments);
}

}  // namespace

TEST_CASE("control arguments: each is taken out as what it is, or is absent") {
    const json given{
        {"text", "a"},    {"empty", ""},   {"flag", true},         {"number", 7u},
        {"seconds", 1.5}, {"word", "two"}, {"object", {{"a", 1}}}, {"any", json::array({1})}};
    ControlArguments arguments(given);
    CHECK(arguments.text("text", Need::required) == "a");
    CHECK(arguments.text("empty", Need::present).empty());
    CHECK(arguments.flag("flag"));
    CHECK(arguments.number("number") == 7);
    CHECK(arguments.seconds("seconds", {}, std::chrono::seconds(2)) ==
          std::chrono::milliseconds(1500));
    CHECK(arguments.word("word", parse_number_word, "one or two") == 2);
    CHECK(arguments.object("object") == json{{"a", 1}});
    CHECK(arguments.any("any") == json::array({1}));
    // Once.
    CHECK(arguments.text("text").empty());
    CHECK_FALSE(arguments.flag("flag"));
    CHECK_FALSE(arguments.number("number"));
    CHECK(arguments.seconds("seconds", std::chrono::seconds(1), {}) == std::chrono::seconds(1));
    CHECK_FALSE(arguments.word("word", parse_number_word, "one or two"));
    CHECK(arguments.object("object").is_null());
    CHECK_FALSE(arguments.any("any"));
    CHECK(failure_of(arguments).empty());
}

TEST_CASE("control arguments: what is wrong is said by its name") {
    const auto name = [](ControlArguments& a) { a.text("key", Need::required, "a name"); };
    CHECK(failure_of(json::object(), name) == "key: expected a name");
    CHECK(failure_of({{"key", ""}}, name) == "key: expected a name");
    CHECK(failure_of({{"key", 1}}, name) == "key: expected a name");
    const auto present = [](ControlArguments& a) { a.text("key", Need::present); };
    CHECK(failure_of(json::object(), present) == "key: expected a text");
    CHECK(failure_of({{"key", ""}}, present).empty());
    const auto word = [](ControlArguments& a) { a.word("key", parse_number_word, "one or two"); };
    CHECK(failure_of(json::object(), word).empty());
    CHECK(failure_of({{"key", 1}}, word) == "key: expected one or two");
    CHECK(failure_of({{"key", "th\nree"}}, word) ==
          "key: found \"th\\x0aree\", expected one or two");
    CHECK(failure_of(json::object(), [](ControlArguments& a) {
              a.word("key", parse_number_word, "one or two", Need::required);
          }) == "key: expected one or two");
    CHECK(failure_of({{"key", 1}}, [](ControlArguments& a) { a.flag("key"); }) ==
          "key: expected true or false");
    CHECK(failure_of({{"key", -1}}, [](ControlArguments& a) { a.number("key"); }) ==
          "key: expected a whole number");
    CHECK(failure_of({{"key", 3}}, [](ControlArguments& a) {
              a.seconds("key", {}, std::chrono::seconds(2));
          }) == "key: expected seconds from 0 to 2");
    CHECK(failure_of({{"key", 3}}, [](ControlArguments& a) { a.object("key"); }) ==
          "key: expected an object");
}

TEST_CASE("control arguments: the first that is wrong is told, and last what is left over") {
    const json given{{"a", 1u}, {"b", 1u}, {"other", 1u}};
    ControlArguments arguments(given);
    arguments.flag("b");
    arguments.flag("a");
    CHECK(failure_of(arguments) == "b: expected true or false");
    ControlArguments none(given);
    none.number("a");
    none.number("b");
    CHECK(failure_of(none) == "unknown argument other, expected a, b");
    ControlArguments nothing(given);
    CHECK(failure_of(nothing) == "unknown argument a, expected none");
}
