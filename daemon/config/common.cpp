#include "daemon/config/common.h"

#include "rtrs/heartbeat_times.h"
#include "rtrs/reactor_group.h"

namespace rnbd {

ConfigType<AccessMode> config_access() {
    return config_enum<AccessMode>({{"ro", AccessMode::read_only},
                                    {"rw", AccessMode::read_write},
                                    {"migration", AccessMode::migration}});
}

const char* to_word(AccessMode access) noexcept {
    switch (access) {
        case AccessMode::read_only:
            return "ro";
        case AccessMode::read_write:
            return "rw";
        case AccessMode::migration:
            return "migration";
    }
    return "";
}

ConfigType<LogLevel> config_log_level() {
    return config_enum<LogLevel>({{"debug", LogLevel::debug},
                                  {"info", LogLevel::info},
                                  {"warning", LogLevel::warning},
                                  {"error", LogLevel::error}});
}

ConfigType<std::string> config_socket_path() { return config_path(socket_path_bytes_max); }

bool read_heartbeat(ConfigMap& map, rtrs::Duration& interval, rtrs::Duration& timeout) {
    using namespace std::chrono_literals;
    bool timeout_said = false;
    map.optional_map("heartbeat", [&](ConfigMap& heartbeat) {
        const bool said = heartbeat.optional("interval", config_duration(10ms, 10min), interval);
        timeout_said = heartbeat.optional("timeout", config_duration(20ms, 1h), timeout);
        if (!said) interval = rtrs::heartbeat_interval_beside(timeout);
        if (timeout >= 2 * interval) return;
        constexpr const char* reason = ", so that one late answer does not end a path";
        if (timeout_said) {
            heartbeat.error("timeout", std::string("found less than twice the interval, expected "
                                                   "at least that") +
                                           reason);
        } else {
            const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout).count();
            heartbeat.error("interval", "found more than half of the timeout (" +
                                            std::to_string(seconds) +
                                            "s by default), expected at most that" + reason);
        }
    });
    return timeout_said;
}

namespace {

ConfigType<std::string> config_metrics_address() {
    return {"a numeric address and port, IPv4:PORT or [IPv6]:PORT, or unix: and an absolute path",
            [](std::string_view text) -> std::optional<std::string> {
                constexpr std::string_view unix_prefix = "unix:";
                if (!text.starts_with(unix_prefix)) return parse_address(text, PortZero::allowed);
                const auto path = config_socket_path().parse(text.substr(unix_prefix.size()));
                if (!path) return std::nullopt;
                return std::string(unix_prefix) + *path;
            }};
}

}  // namespace

void read_loop_settings(ConfigMap& map, DaemonSettings& settings) {
    map.optional("busy_poll", config_duration(rtrs::Duration::zero(), std::chrono::milliseconds(1)),
                 settings.busy_poll);
    map.optional("prompt_sends", config_bool(), settings.prompt_sends);
    map.optional("batch_scheduling", config_bool(), settings.batch_scheduling);
}

void read_process_settings(ConfigMap& map, DaemonSettings& settings) {
    const ConfigType<CpuList> cpus{"numbers and ranges of processors below 1024, like 0 or 0-3,8",
                                   parse_cpu_list};
    map.optional("cpus", cpus, settings.cpus);
    map.optional("workers", config_integer<std::uint32_t>(1, rtrs::ReactorGroup::members_max),
                 settings.workers);
    map.optional_map("metrics", [&](ConfigMap& metrics) {
        metrics.required("listen", config_metrics_address(), settings.metrics);
    });
    if (settings.metrics == "unix:" + settings.control)
        map.error("metrics", "found \"" + settings.control +
                                 "\" which is the control socket, expected another path");
    map.optional_map("log", [&](ConfigMap& log) {
        log.optional("level", config_log_level(), settings.log_level);
    });
}

}  // namespace rnbd
