#include "rnbd-client/config_diff.h"

#include <algorithm>

namespace rnbd {
namespace {

using Kind = ConfigChange::Kind;
using Session = ClientConfig::Session;
using Device = ClientConfig::Device;
using Path = ClientConfig::Path;

ConfigKeys session_keys(const Session& now, const Session& then, const Session*) {
    ConfigKeys keys;
    const auto live = [&](const char* key, bool same) {
        if (!same) keys.live.emplace_back(key);
    };
    const auto restart = [&](const char* key, bool same) {
        if (!same) keys.restart.emplace_back(key);
    };
    live("policy", now.policy == then.policy);
    live("hold_time", now.hold_time == then.hold_time);
    live("fail_fast_time", now.fail_fast_time == then.fail_fast_time);
    live("max_reconnect_attempts", now.max_reconnect_attempts == then.max_reconnect_attempts);
    live("request_deadline", now.request_deadline == then.request_deadline);
    // Paths and connections are made with these.
    restart("reconnect_delay", now.reconnect_delay_min == then.reconnect_delay_min &&
                                   now.reconnect_delay_max == then.reconnect_delay_max);
    restart("connect_timeout", now.connect_timeout == then.connect_timeout);
    restart("heartbeat", now.heartbeat_interval == then.heartbeat_interval &&
                             now.heartbeat_timeout == then.heartbeat_timeout);
    restart("probe_timeout", now.probe_timeout == then.probe_timeout);
    restart("connections", now.connections == then.connections);
    restart("data_checksum", now.data_checksum == then.data_checksum);
    return keys;
}

ConfigKeys path_keys(const Path& now, const Path& then, const Path*) {
    ConfigKeys keys;
    if (now.priority != then.priority) keys.live.emplace_back("priority");
    return keys;
}

ConfigKeys device_keys(const Device& now, const Device& then, const Device*) {
    ConfigKeys keys;
    const auto replace = [&](const char* key, bool same) {
        if (!same) keys.replace.emplace_back(key);
    };
    replace("session", now.session == then.session);
    replace("volume", now.volume == then.volume);
    replace("access", now.access == then.access);
    replace("nbd", now.nbd == then.nbd);
    replace("device", now.kernel == then.kernel);
    replace("device_connections", now.kernel_connections == then.kernel_connections);
    return keys;
}

const Session* find(const ClientConfig& config, const std::string& name) {
    const auto found = std::ranges::find(config.sessions, name, &Session::name);
    return found == config.sessions.end() ? nullptr : &*found;
}

void compare_paths(const Session& now, const Session* before, const Session& then,
                   std::vector<ConfigChange>& changes) {
    std::vector<ConfigChange> found;
    compare_objects(
        "path", now.paths, before != nullptr ? before->paths : std::vector<Path>{}, then.paths,
        [&](const Path& path) { return path_object_name(now.name, path); }, path_keys, found);
    for (ConfigChange& change : found) {
        if (change.kind != Kind::unchanged || !change.drift.empty())
            changes.push_back(std::move(change));
    }
}

}  // namespace

std::string path_object_name(const std::string& session, const Path& path) {
    return session + " " + path.to_string();
}

std::pair<std::string, std::string> session_and_label(const std::string& path_object) {
    // Neither has a space.
    const auto space = path_object.find(' ');
    return {path_object.substr(0, space), path_object.substr(space + 1)};
}

std::vector<ConfigChange> client_config_diff(const ClientConfig& running,
                                             const ClientConfig& before,
                                             const ClientConfig& wanted) {
    std::vector<ConfigChange> changes;
    compare_objects(
        "session", running.sessions, before.sessions, wanted.sessions,
        [](const Session& one) { return one.name; }, session_keys, changes);
    for (const Session& then : wanted.sessions) {
        const Session* const now = find(running, then.name);
        if (now != nullptr) compare_paths(*now, find(before, then.name), then, changes);
    }
    compare_objects(
        "device", running.devices, before.devices, wanted.devices,
        [](const Device& one) { return one.name; }, device_keys, changes);
    compare_setting("control", running.control == wanted.control, Kind::restart, changes);
    compare_loop_settings(running, wanted, changes);
    compare_process_settings(running, wanted, changes);
    return changes;
}

}  // namespace rnbd
