// What is wrong with a configuration, and where.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rnbd {

// One thing that is wrong.
struct ConfigError {
    std::string file;
    // From 1; 0 if it concerns the whole file.
    std::size_t line = 0;
    std::size_t column = 0;
    // "exports[0].io"; empty for the whole file.
    std::string key;
    // What was found, what is expected, the nearest word. One line.
    std::string text;
};

// "server.yaml:3:5: exports[0].io: found ..."
std::string to_string(const ConfigError& error);
// All of them in one line, without places: for arguments that were read as a piece of a file.
std::string config_errors_text(const std::vector<ConfigError>& errors);

}  // namespace rnbd
