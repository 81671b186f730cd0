// What is wrong with a configuration, and where.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rnbd {

// One error.
struct ConfigError {
    std::string file;
    // From 1; 0 if it concerns the whole file.
    std::size_t line = 0;
    std::size_t column = 0;
    // "exports[0].io"; empty for the whole file.
    std::string key;
    // What was found, what was expected, and the nearest legal word. One line.
    std::string text;
};

// "server.yaml:3:5: exports[0].io: found ..."
std::string to_string(const ConfigError& error);
// All errors in one line, without their places: for arguments that were read like a part of a file.
std::string config_errors_text(const std::vector<ConfigError>& errors);

}  // namespace rnbd
