#include "rnbd-server/kernel_listener.h"

#include <fmt/format.h>

#include <algorithm>

namespace rnbd {
namespace {

constexpr std::string_view session_token = "%SESSNAME%";
constexpr std::size_t device_path_bytes_max = 254;

// As a kernel client may give it: with or without the leading '/'.
ConfigType<std::string> config_device_path() {
    return {"a device path of 1 to 254 printable ASCII characters without space and \"..\"",
            [](std::string_view text) -> std::optional<std::string> {
                const auto odd = [](char c) { return c <= 0x20 || c >= 0x7f; };
                if (text.size() > device_path_bytes_max || std::ranges::any_of(text, odd) ||
                    text.find("..") != std::string_view::npos)
                    return std::nullopt;
                auto plain = plain_device_path(text);
                if (plain.empty()) return std::nullopt;
                return plain;
            }};
}

void read_client(const ConfigValue& item, KernelListener& kernel) {
    item.map([&](ConfigMap& map) {
        KernelListener::Client client;
        map.required("session", config_allowed_session(), client.session);
        map.optional("address", config_address_range(), client.address);
        kernel.allow.push_back(std::move(client));
    });
}

void read_device(const ConfigValue& item, KernelListener& kernel) {
    item.map([&](ConfigMap& map) {
        std::string path, name;
        const bool known = map.required("path", config_device_path(), path);
        map.required("export", config_volume_name(), name);
        if (known && !kernel.devices.emplace(path, name).second)
            map.error("path",
                      fmt::format("found \"{}\" a second time, expected each path once", path));
    });
}

}  // namespace

std::string plain_device_path(std::string_view device_path) {
    std::string plain;
    for (const char c : device_path) {
        if (c == '/' && (plain.empty() || plain.back() == '/')) continue;
        plain.push_back(c);
    }
    return plain;
}

bool KernelListener::allows(std::string_view session, const std::string& host) const {
    return std::ranges::any_of(allow, [&](const Client& client) {
        return client.session == session && (!client.address || client.address->contains(host));
    });
}

std::string KernelListener::export_for(std::string_view session,
                                       std::string_view device_path) const {
    const std::string path = plain_device_path(device_path);
    if (const auto known = devices.find(path); known != devices.end()) return known->second;
    std::string prefix = search_path;
    if (const auto at = prefix.find(session_token); at != std::string::npos)
        prefix.replace(at, session_token.size(), session);
    return prefix.empty() ? path : plain_device_path(prefix + "/" + path);
}

void read_kernel_listener(ConfigMap& map, KernelListener& kernel) {
    map.required_list("allow", {.min = 1, .max = 4096},
                      [&](const ConfigValue& item) { read_client(item, kernel); });
    map.optional("search_path", config_device_path(), kernel.search_path);
    map.optional_list("devices", {}, [&](const ConfigValue& item) { read_device(item, kernel); });
}

}  // namespace rnbd
