#include "daemon/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "daemon/command_line_complaint.h"
#include "daemon/config/common.h"
#include "daemon/version.h"

namespace rnbd {
namespace {

// Who cannot be told anything still has the exit code.
void print_line(const std::string& line) {
    static_cast<void>(std::fputs((line + '\n').c_str(), stderr));
}

// Help, or the version.
int print_answer(const CLI::App& app, const CLI::ParseError& error) {
    app.exit(error);
    std::cout.flush();
    if (std::cout) return exit_code::ok;
    print_line(app.get_name() + ": the answer cannot be written");
    return exit_code::failed;
}

}  // namespace

std::expected<DaemonCommandLine, int> parse_command_line(const DaemonDescription& description,
                                                         int argc, const char* const* argv) {
    const auto usage = [&](const std::string& wrong) {
        print_line(fmt::format("{}: {}", description.name, wrong));
        return std::unexpected(exit_code::usage);
    };
    DaemonCommandLine result;
    result.config_path = description.config_path;
    CLI::App app{description.purpose, description.name};
    app.set_version_flag("--version", fmt::format("{} {}", description.name, version()),
                         "Print the version and end");
    app.set_help_flag("-h,--help", "Print this help and end");
    bool check = false;
    bool foreground = true;
    std::string level;
    app.add_option("-c,--config", result.config_path, "The configuration file")
        ->type_name("FILE")
        ->check(not_empty("FILE"))
        ->capture_default_str();
    app.add_flag("--check-config", check,
                 "Read the configuration, print every error in it, and end");
    app.add_flag("--foreground", foreground, "Stay in the foreground (always so)");
    app.add_option("--log-level", level,
                   "debug, info, warning or error, whatever the configuration says")
        ->type_name("LEVEL")
        ->check(not_empty("LEVEL"));
    try {
        app.parse(words_to_parse({argv + 1, argv + argc}));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) return usage(command_line_complaint(app, error));
        return std::unexpected(print_answer(app, error));
    }
    if (!level.empty()) {
        result.log_level = config_log_level().parse(level);
        if (!result.log_level) {
            return usage(fmt::format("--log-level: found \"{}\", expected {}", level,
                                     config_log_level().expected));
        }
    }
    if (check) {
        result.mode = DaemonCommandLine::Mode::check_config;
        return result;
    }
    // rnbdctl is told of it, and stands elsewhere.
    std::error_code error;
    const auto absolute = std::filesystem::absolute(result.config_path, error);
    if (!error) result.config_path = absolute.string();
    return result;
}

void print_config_errors(const std::vector<ConfigError>& errors) {
    for (const ConfigError& error : errors) print_line(to_string(error));
}

void print_config_warnings(const std::vector<ConfigError>& warnings) {
    for (const ConfigError& one : warnings) print_line("warning: " + to_string(one));
}

}  // namespace rnbd
