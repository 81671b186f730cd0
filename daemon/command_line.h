// The command line of both daemons.
//
//   --config FILE   --check-config   --foreground   --log-level LEVEL   --version   --help
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config/error.h"
#include "daemon/log/level.h"

namespace rnbd {

// Exit codes of the daemons.
namespace exit_code {
constexpr int ok = 0;
// Could not start, or ended because of an error.
constexpr int failed = 1;
// Wrong command line.
constexpr int usage = 2;
// The configuration has errors (also --check-config).
constexpr int config = 3;
}  // namespace exit_code

struct DaemonDescription {
    // "rnbd-server"
    std::string name;
    // One sentence for --help.
    std::string purpose;
    // The default of --config.
    std::string config_path;
};

struct DaemonCommandLine {
    enum class Mode : std::uint8_t { run, check_config };
    std::string config_path;
    Mode mode = Mode::run;
    // Overrides the level of the configuration.
    std::optional<LogLevel> log_level;
};

// The error is an exit code: the help, the version or the complaint has been printed already.
std::expected<DaemonCommandLine, int> parse_command_line(const DaemonDescription& description,
                                                         int argc, const char* const* argv);

// These print each as one line on stderr.
void print_config_errors(const std::vector<ConfigError>& errors);
void print_config_warnings(const std::vector<ConfigError>& warnings);

}  // namespace rnbd
