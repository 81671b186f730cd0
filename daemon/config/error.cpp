#include "daemon/config/error.h"

#include <fmt/format.h>

namespace rnbd {

std::string to_string(const ConfigError& error) {
    std::string result = error.file;
    if (error.line != 0) result += fmt::format(":{}:{}", error.line, error.column);
    if (!error.key.empty()) result += ": " + error.key;
    return result + ": " + error.text;
}

std::string config_errors_text(const std::vector<ConfigError>& errors) {
    std::string text;
    for (const ConfigError& error : errors) {
        text +=
            (text.empty() ? "" : "; ") + error.key + (error.key.empty() ? "" : ": ") + error.text;
    }
    return text;
}

}  // namespace rnbd
