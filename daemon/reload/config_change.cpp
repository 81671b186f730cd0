#include "daemon/reload/config_change.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace rnbd {

const char* to_string(ConfigChange::Kind kind) noexcept {
    switch (kind) {
        case ConfigChange::Kind::unchanged:
            return "unchanged";
        case ConfigChange::Kind::added:
            return "added";
        case ConfigChange::Kind::removed:
            return "removed";
        case ConfigChange::Kind::changed:
            return "changed";
        case ConfigChange::Kind::replaced:
            return "replaced";
        case ConfigChange::Kind::restart:
            return "restart";
    }
    return "?";
}

nlohmann::json to_json(const ConfigChange& change) {
    return {{"object", change.object},
            {"name", change.name},
            {"change", to_string(change.kind)},
            {"keys", change.keys},
            {"restart_keys", change.restart_keys},
            {"drift", change.drift},
            {"conflict", change.conflict},
            {"failure", change.failure}};
}

std::string to_string(const ConfigChange& change) {
    std::string text = fmt::format("{} {}: {}", change.object, change.name, to_string(change.kind));
    if (!change.keys.empty()) text += fmt::format(" ({})", fmt::join(change.keys, ", "));
    if (!change.restart_keys.empty())
        text += fmt::format(", needs a restart: {}", fmt::join(change.restart_keys, ", "));
    if (!change.drift.empty()) text += fmt::format(", {} by rnbdctl", change.drift);
    if (!change.conflict.empty()) text += ": " + change.conflict;
    if (!change.failure.empty()) text += ", which failed: " + change.failure;
    return text;
}

void compare_setting(const std::string& key, bool same, ConfigChange::Kind kind,
                     std::vector<ConfigChange>& changes) {
    if (same) return;
    ConfigChange change{.object = "setting", .name = key, .kind = kind};
    (kind == ConfigChange::Kind::restart ? change.restart_keys : change.keys).push_back(key);
    changes.push_back(std::move(change));
}

}  // namespace rnbd
