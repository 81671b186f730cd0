#include "librnbd/settings.h"

#include <fmt/format.h>

#include "daemon/config/nearest_word.h"
#include "daemon/config/types.h"
#include "rtrs/limits.h"

namespace rnbd::library {
namespace {

using namespace std::chrono_literals;
using Applied = std::expected<void, std::string>;

struct Row {
    std::string_view key;
    Applied (*apply)(Settings& settings, std::string_view value);
};

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

template <typename T, typename Target>
Applied read(const ConfigType<T>& type, std::string_view value, Target& target) {
    auto parsed = type.parse(value);
    if (!parsed) {
        return std::unexpected("found " + quoted(value) + ", expected " + type.expected);
    }
    target = std::move(*parsed);
    return {};
}

ConfigType<bool> on_or_off() {
    return {"on or off", [](std::string_view text) -> std::optional<bool> {
                if (text == "on") return true;
                if (text == "off") return false;
                return std::nullopt;
            }};
}

// In the order of librnbd(3), with the names of rnbd-client.yaml(5) where that has them.
constexpr Row rows[] = {
    {"name", [](Settings& s,
                std::string_view v) { return read(config_session_name(), v, s.session.name); }},
    {"connections",
     [](Settings& s, std::string_view v) {
         return read(config_integer<std::uint32_t>(1, rtrs::limits::io_connections_max), v,
                     s.session.io_connections);
     }},
    {"policy",
     [](Settings& s, std::string_view v) -> Applied {
         const auto policy = rtrs::parse_path_policy(v);
         if (!policy) {
             return std::unexpected("found " + quoted(v) +
                                    ", expected round-robin, min-inflight, min-latency or "
                                    "service-time");
         }
         s.session.policy = *policy;
         return {};
     }},
    {"data-checksum",
     [](Settings& s, std::string_view v) { return read(on_or_off(), v, s.data_checksum); }},
    {"catalog",
     [](Settings& s, std::string_view v) {
         bool follows = false;
         const auto set = read(on_or_off(), v, follows);
         if (!set) return set;
         s.session.messages.reset();
         if (follows) s.session.messages.emplace();
         return set;
     }},
    {"busy-poll",
     [](Settings& s, std::string_view v) {
         return read(config_duration(0us, 1ms), v, s.busy_poll);
     }},
    {"prompt-sends",
     [](Settings& s, std::string_view v) { return read(on_or_off(), v, s.prompt_sends); }},
    {"hold-time",
     [](Settings& s, std::string_view v) {
         return read(config_duration_or_forever(0s, 24h * 365), v, s.session.hold_time);
     }},
    {"fail-fast-time",
     [](Settings& s, std::string_view v) {
         return read(config_duration_or_never(0s, 24h * 365), v, s.session.fail_fast_time);
     }},
    {"connect-timeout",
     [](Settings& s, std::string_view v) {
         return read(config_duration(10ms, 10min), v, s.session.connect_timeout);
     }},
    {"heartbeat-interval",
     [](Settings& s, std::string_view v) {
         const auto set = read(config_duration(10ms, 10min), v, s.session.heartbeat_interval);
         if (set) s.heartbeat_interval_said = true;
         return set;
     }},
    {"heartbeat-timeout",
     [](Settings& s, std::string_view v) {
         const auto set = read(config_duration(20ms, 1h), v, s.session.heartbeat_timeout);
         if (!set) return set;
         if (!s.probe_timeout_said) s.session.probe_timeout = s.session.heartbeat_timeout / 4;
         if (!s.heartbeat_interval_said) {
             s.session.heartbeat_interval =
                 rtrs::heartbeat_interval_beside(s.session.heartbeat_timeout);
         }
         return set;
     }},
    {"request-deadline",
     [](Settings& s, std::string_view v) {
         return read(config_duration(10ms, 1h), v, s.session.request_deadline);
     }},
    {"probe-timeout",
     [](Settings& s, std::string_view v) {
         const auto set = read(config_duration(5ms, 1h), v, s.session.probe_timeout);
         if (set) s.probe_timeout_said = true;
         return set;
     }},
    {"reconnect-delay-min",
     [](Settings& s, std::string_view v) {
         return read(config_duration(1ms, 1h), v, s.session.reconnect_delay_min);
     }},
    {"reconnect-delay-max",
     [](Settings& s, std::string_view v) {
         return read(config_duration(1ms, 1h), v, s.session.reconnect_delay_max);
     }},
    {"max-reconnect-attempts",
     [](Settings& s, std::string_view v) {
         return read(config_reconnect_attempts(), v, s.session.reconnect_attempts_max);
     }},
    {"close-time",
     [](Settings& s, std::string_view v) {
         return read(config_duration_or_forever(0s, 24h * 365), v, s.close_time);
     }},
    {"thread",
     [](Settings& s, std::string_view v) -> Applied {
         bool own = false;
         const auto set = read(on_or_off(), v, own);
         if (set) s.thread = own ? Thread::own : Thread::none;
         return set;
     }},
};

bool cut_prefix(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

}  // namespace

std::expected<PathSetting, std::string> PathSetting::parse(std::string_view text) {
    const auto wrong = [whole = text] {
        return std::unexpected("path: found " + quoted(whole) +
                               ", expected [standby:][tcp:|rdma:][SOURCE@]HOST:PORT with numeric "
                               "hosts of one family, an IPv6 HOST in brackets");
    };
    PathSetting path;
    if (cut_prefix(text, "standby:")) path.priority = rtrs::PathPriority::standby;
    if (cut_prefix(text, "rdma:")) {
        path.fabric = Fabric::rdma;
    } else {
        cut_prefix(text, "tcp:");
    }
    auto addresses = parse_path_addresses(text);
    if (!addresses) return wrong();
    path.source = std::move(addresses->source);
    path.destination = std::move(addresses->destination);
    return path;
}

std::string PathSetting::label() const {
    const std::string addresses = source.empty() ? destination : source + "@" + destination;
    return fabric == Fabric::rdma ? "rdma:" + addresses : addresses;
}

std::expected<void, std::string> Settings::set(std::string_view key, std::string_view value) {
    for (const Row& row : rows) {
        if (row.key != key) continue;
        auto applied = row.apply(*this, value);
        if (!applied) applied.error() = std::string(key) + ": " + applied.error();
        return applied;
    }
    std::vector<std::string> known;
    for (const Row& row : rows) known.emplace_back(row.key);
    const std::string nearest = nearest_word(key, known);
    return std::unexpected(fmt::format("found the key {}{}, expected one of {}", quoted(key),
                                       nearest.empty() ? "" : " (nearest: " + quoted(nearest) + ")",
                                       fmt::join(known, ", ")));
}

std::expected<void, std::string> Settings::check() const {
    if (session.name.empty()) return std::unexpected("name: it was not set");
    if (paths.empty()) return std::unexpected("there is no path to a server");
    if (session.heartbeat_timeout < 2 * session.heartbeat_interval) {
        return std::unexpected("heartbeat-timeout: it is less than twice heartbeat-interval");
    }
    if (session.probe_timeout > session.heartbeat_timeout) {
        return std::unexpected("probe-timeout: it is more than heartbeat-timeout");
    }
    if (session.reconnect_delay_min > session.reconnect_delay_max) {
        return std::unexpected("reconnect-delay-min: it is more than reconnect-delay-max");
    }
    if (session.hold_time && session.fail_fast_time &&
        *session.fail_fast_time > *session.hold_time) {
        return std::unexpected("fail-fast-time: it is more than hold-time");
    }
    return {};
}

}  // namespace rnbd::library
