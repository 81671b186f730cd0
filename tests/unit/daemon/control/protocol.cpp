#include "daemon/control/protocol.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace rnbd;
using nlohmann::json;

TEST_CASE("control protocol: a request") {
    const auto request = parse_control_request(R"({"command": "map", "arguments": {"a": 1}})");
    REQUIRE(request);
    CHECK(request->command == "map");
    CHECK(*request->arguments == json{{"a", 1}});
    CHECK(parse_control_request(R"({"command":"list"})")->arguments->is_object());
    CHECK(parse_control_request(emit_control_request("x", {{"b", "\n"}}))->command == "x");
}

TEST_CASE("control protocol: everything else is a bad request") {
    const auto* line = GENERATE(
        "", "null", "[]", "{", R"({"command": 1})", R"({"command":"a","arguments":[]})",
        R"({"arguments":{}})", R"({"command":"a","extra":1})", "\xff\xfe", R"({"command":"a"} {})");
    const auto request = parse_control_request(line);
    REQUIRE_FALSE(request);
    CHECK(request.error().code == ControlError::bad_request);
}

TEST_CASE("control protocol: depth is bounded, strings do not count") {
    const std::string deep = R"({"command":"a","arguments":{"x":)" + std::string(500'000, '[');
    CHECK(parse_control_request(deep).error().message.find("nested") != std::string::npos);
    const std::string flat =
        R"({"command":"a","arguments":{"x":")" + std::string(500, '[') + "\\\"" + R"("}})";
    CHECK(parse_control_request(flat));
}

TEST_CASE("control protocol: answers are one line with schema and version") {
    const auto good = json::parse(emit_control_result({{"text", "a\nb\xff"}}));
    CHECK(good["schema"] == "rnbd-control");
    CHECK(good["version"] == 1);
    CHECK(good["ok"] == true);
    const auto line = emit_control_failure({ControlError::not_found, "no\nsuch"});
    CHECK(line.find('\n') == std::string::npos);
    CHECK(json::parse(line)["error"] == json{{"code", "not_found"}, {"message", "no\nsuch"}});
    CHECK(control_error_from("busy") == ControlError::busy);
    CHECK_FALSE(control_error_from("nonsense"));
}
