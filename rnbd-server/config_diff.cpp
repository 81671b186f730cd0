#include "rnbd-server/config_diff.h"

#include <fmt/format.h>

#include <map>

namespace rnbd {
namespace {

using Kind = ConfigChange::Kind;

struct NamedListener {
    std::string name;
    ServerConfig::Listen listen;
};

std::vector<NamedListener> named(const std::vector<ServerConfig::Listen>& listen) {
    const auto names = listener_names(listen);
    std::vector<NamedListener> result;
    for (std::size_t i = 0; i < listen.size(); ++i) result.push_back({names[i], listen[i]});
    return result;
}

ConfigKeys listener_keys(const ServerConfig::Listen& running, const ServerConfig::Listen& wanted) {
    ConfigKeys keys;
    if (running.kernel == wanted.kernel) return keys;
    // Whether clients need the extension is said when it begins to listen.
    (running.kernel && wanted.kernel ? keys.live : keys.replace).emplace_back("kernel");
    return keys;
}

ConfigKeys export_keys(const ServerConfig::Export& running, const ServerConfig::Export& wanted,
                       const ServerConfig::Export* before) {
    ConfigKeys keys;
    const StorageOptions& now = running.storage;
    const StorageOptions& then = wanted.storage;
    if (now.kind != then.kind || now.uri != then.uri || now.delay != then.delay)
        keys.replace.emplace_back("storage");
    else if (now.path != then.path)
        keys.replace.emplace_back("path");
    if (now.io != then.io) keys.replace.emplace_back("io");
    if (now.logical_block_bytes != then.logical_block_bytes)
        keys.replace.emplace_back("block_size");
    if (now.uuid != then.uuid) keys.replace.emplace_back("uuid");
    if (now.use != then.use) keys.replace.emplace_back("read_only");
    const auto& size = before != nullptr ? before->storage.size_bytes : now.size_bytes;
    if (size != then.size_bytes && now.size_bytes != then.size_bytes)
        keys.live.emplace_back("size");
    if (running.allow != wanted.allow) keys.live.emplace_back("allow");
    return keys;
}

}  // namespace

std::vector<std::string> listener_names(const std::vector<ServerConfig::Listen>& listen) {
    std::map<std::string, int> seen;
    std::vector<std::string> names;
    for (const ServerConfig::Listen& one : listen) {
        const std::string name = fmt::format("{} {}", to_word(one.fabric), one.address);
        const int number = ++seen[name];
        names.push_back(number == 1 ? name : fmt::format("{} ({})", name, number));
    }
    return names;
}

std::vector<ConfigChange> server_config_diff(const ServerConfig& running,
                                             const ServerConfig& before,
                                             const ServerConfig& wanted) {
    std::vector<ConfigChange> changes;
    compare_objects(
        "listener", named(running.listen), named(before.listen), named(wanted.listen),
        [](const NamedListener& one) { return one.name; },
        [](const NamedListener& now, const NamedListener& then, const NamedListener*) {
            return listener_keys(now.listen, then.listen);
        },
        changes);
    compare_objects(
        "export", running.exports, before.exports, wanted.exports,
        [](const ServerConfig::Export& one) { return one.name; }, export_keys, changes);
    const auto fixed = [&](const char* key, bool same) {
        compare_setting(key, same, Kind::restart, changes);
    };
    fixed("control", running.control == wanted.control);
    fixed("queue_depth", running.queue_depth == wanted.queue_depth);
    fixed("max_io_size", running.max_io_bytes == wanted.max_io_bytes);
    fixed("always_invalidate", running.always_invalidate == wanted.always_invalidate);
    fixed("data_checksum", running.data_checksum == wanted.data_checksum);
    fixed("heartbeat", running.heartbeat_interval == wanted.heartbeat_interval &&
                           running.heartbeat_timeout == wanted.heartbeat_timeout &&
                           running.kernel_heartbeat_timeout == wanted.kernel_heartbeat_timeout);
    compare_loop_settings(running, wanted, changes);
    fixed("prompt_storage", running.prompt_storage == wanted.prompt_storage);
    fixed("polled_io", running.polled_io == wanted.polled_io);
    fixed("zero_copy_sends", running.zero_copy_sends == wanted.zero_copy_sends);
    fixed("registered_io", running.registered_io == wanted.registered_io);
    fixed("read_portions", running.read_portions == wanted.read_portions);
    compare_process_settings(running, wanted, changes);
    return changes;
}

}  // namespace rnbd
