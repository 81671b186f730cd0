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
            {"failure", change.failure},
            {"loss", change.loss}};
}

std::string to_string(const ConfigChange& change) {
    std::string text = fmt::format("{} {}: {}", change.object, change.name, to_string(change.kind));
    if (!change.keys.empty()) text += fmt::format(" ({})", fmt::join(change.keys, ", "));
    if (!change.restart_keys.empty())
        text += fmt::format(", needs a restart: {}", fmt::join(change.restart_keys, ", "));
    if (!change.drift.empty()) text += fmt::format(", {} by rnbdctl", change.drift);
    if (!change.conflict.empty()) text += ": " + change.conflict;
    if (!change.failure.empty()) text += ", which failed: " + change.failure;
    if (!change.loss.empty()) text += ", but " + change.loss;
    return text;
}

void compare_setting(const std::string& key, bool same, ConfigChange::Kind kind,
                     std::vector<ConfigChange>& changes) {
    if (same) return;
    ConfigChange change{.object = "setting", .name = key, .kind = kind};
    (kind == ConfigChange::Kind::restart ? change.restart_keys : change.keys).push_back(key);
    changes.push_back(std::move(change));
}

void compare_loop_settings(const DaemonSettings& running, const DaemonSettings& wanted,
                           std::vector<ConfigChange>& changes) {
    using Kind = ConfigChange::Kind;
    compare_setting("busy_poll", running.busy_poll == wanted.busy_poll, Kind::restart, changes);
    compare_setting("prompt_sends", running.prompt_sends == wanted.prompt_sends, Kind::restart,
                    changes);
    compare_setting("batch_scheduling", running.batch_scheduling == wanted.batch_scheduling,
                    Kind::restart, changes);
}

void compare_process_settings(const DaemonSettings& running, const DaemonSettings& wanted,
                              std::vector<ConfigChange>& changes) {
    using Kind = ConfigChange::Kind;
    compare_setting("cpus", running.cpus == wanted.cpus, Kind::restart, changes);
    compare_setting("workers", running.workers == wanted.workers, Kind::restart, changes);
    compare_setting("metrics", running.metrics == wanted.metrics, Kind::restart, changes);
    compare_setting("log", running.log_level == wanted.log_level, Kind::changed, changes);
}

void add_setting_steps(ConfigPlan& plan, const DaemonSettings& wanted,
                       const std::function<void(LogLevel)>& use_log_level) {
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "setting" || !change.acts()) continue;
        plan.steps.push_back(
            {i, [use_log_level, level = wanted.log_level](const ConfigStep::Done& done) {
                 use_log_level(level);
                 done("");
             }});
    }
}

}  // namespace rnbd
