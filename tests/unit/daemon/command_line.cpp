#include "daemon/command_line.h"

#include <catch2/catch.hpp>
#include <filesystem>

using namespace rnbd;

namespace {

auto parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "rnbd-test");
    return parse_command_line({"rnbd-test", "A test.", "/etc/rnbd/test.yaml"},
                              static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

TEST_CASE("command line: defaults and options") {
    CHECK(parse({})->config_path == "/etc/rnbd/test.yaml");
    CHECK(parse({})->mode == DaemonCommandLine::Mode::run);
    CHECK_FALSE(parse({})->log_level);
    const auto all =
        parse({"--config", "/x.yaml", "--check-config", "--foreground", "--log-level", "debug"});
    REQUIRE(all);
    CHECK(all->config_path == "/x.yaml");
    CHECK(all->mode == DaemonCommandLine::Mode::check_config);
    CHECK(all->log_level == LogLevel::debug);
}

TEST_CASE("command line: a daemon tells others where its file is, wherever they stand") {
    const auto here = std::filesystem::current_path();
    CHECK(parse({"-c", "x.yaml"})->config_path == (here / "x.yaml").string());
    // What is wrong with a file is said by the name that it was given.
    CHECK(parse({"-c", "x.yaml", "--check-config"})->config_path == "x.yaml");
}

TEST_CASE("command line: help and version end well, rubbish does not") {
    CHECK(parse({"--help"}).error() == exit_code::ok);
    CHECK(parse({"--version"}).error() == exit_code::ok);
    CHECK(parse({"--cofnig", "x"}).error() == exit_code::usage);
    CHECK(parse({"--log-level", "loud"}).error() == exit_code::usage);
    CHECK(parse({"x"}).error() == exit_code::usage);
    CHECK(parse({"--config=/x=", "--check-config"})->config_path == "/x=");
    // As of an unset variable in a script.
    for (const char* option : {"--config", "--log-level"}) {
        const auto empty = parse({option, ""});
        REQUIRE_FALSE(empty);
        CHECK(empty.error() == exit_code::usage);
        const std::string joined = std::string(option) + "=";
        const auto before_another = parse({joined.c_str(), "--check-config"});
        REQUIRE_FALSE(before_another);
        CHECK(before_another.error() == exit_code::usage);
    }
}
