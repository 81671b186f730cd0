#include "daemon/config/error.h"

#include <fmt/format.h>

namespace rnbd {

std::string to_string(const ConfigError& error) {
    std::string result = error.file;
    if (error.line != 0) result += fmt::format(":{}:{}", error.line, error.column);
    if (!error.key.empty()) result += ": " + error.key;
    return result + ": " + error.text;
}

std::string config_errors_text(const std::vector<ConfigError>& errors, std::string_view prefix) {
    std::string text;
    for (const ConfigError& error : errors) {
        std::string_view key = error.key;
        if (key.starts_with(prefix)) key.remove_prefix(prefix.size());
        text +=
            (text.empty() ? "" : "; ") + std::string(key) + (key.empty() ? "" : ": ") + error.text;
    }
    return text;
}

}  // namespace rnbd
