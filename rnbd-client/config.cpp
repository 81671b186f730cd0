#include "rnbd-client/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "daemon/config/nearest_word.h"
#include "rtrs/limits.h"

namespace rnbd {

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kernel_connections_max = 16;

// What has been seen so far, to find what is said twice or refers to nothing.
struct Seen {
    // With the place where it was said first.
    std::map<std::string, std::string> names;
    std::map<std::string, std::string> session_places;
    std::map<std::string, std::string> kernel_devices;
    std::map<std::pair<std::string, std::string>, std::string> volumes;
    std::vector<std::string> sessions;
    std::set<std::string> addresses;
};

std::optional<NbdAddress> parse_nbd_address(std::string_view text) {
    if (text.starts_with("unix:")) {
        const auto path = config_socket_path().parse(text.substr(5));
        if (!path) return std::nullopt;
        return NbdAddress{NbdTransport::unix_socket, *path};
    }
    if (!text.starts_with("tcp:")) return std::nullopt;
    const auto address = parse_address(text.substr(4), PortZero::allowed);
    if (!address) return std::nullopt;
    return NbdAddress{NbdTransport::tcp, *address};
}

ConfigType<NbdAddress> config_nbd() {
    return {fmt::format("unix:/PATH (at most {} bytes), tcp:IPv4:PORT or tcp:[IPv6]:PORT",
                        socket_path_bytes_max),
            parse_nbd_address};
}

ConfigType<KernelDeviceName> config_kernel_device() {
    return {fmt::format("/dev/nbdN with N from 0 to {}, or auto", KernelDeviceName::index_max),
            KernelDeviceName::parse,
            {"auto"}};
}

ConfigType<ClientConfig::Path> config_path_address() {
    return {config_address(PortZero::refused).expected +
                ", or SOURCE@ and that with a local numeric address of the same family",
            ClientConfig::Path::parse_addresses};
}

// The names of an enumeration, as the transport has them.
template <typename Names>
auto config_names(const Names& names) {
    using Value = typename Names::value_type::first_type;
    std::vector<std::pair<std::string, Value>> choices;
    for (const auto& [value, name] : names) choices.emplace_back(name, value);
    return config_enum<Value>(std::move(choices));
}

// "never" is an empty optional.
bool is_six(const std::string& host) noexcept { return host.find(':') != std::string::npos; }

const char* word_of(ClientConfig::Path::Fabric fabric) noexcept {
    return fabric == ClientConfig::Path::Fabric::tcp ? "tcp" : "rdma";
}

void read_path_source(ConfigMap& map, ClientConfig::Path& path) {
    const char* const word = word_of(path.fabric);
    std::string source;
    if (!map.optional("source", config_host(), source) || path.destination.empty()) return;
    const bool six = path.destination.starts_with('[');
    if (!path.source.empty())
        map.error("source", fmt::format("found \"{}\" and a source in {}, expected one of them",
                                        source, word));
    else if (six != is_six(source))
        map.error("source", fmt::format("found \"{}\", expected an {} address as of {}", source,
                                        six ? "IPv6" : "IPv4", word));
    else
        path.source = std::move(source);
}

// `tcp` or `rdma`, one of them.
bool read_path_addresses(ConfigMap& map, ClientConfig::Path& path) {
    const auto tcp = map.find("tcp");
    const auto rdma = map.find("rdma");
    if (tcp && rdma)
        return map.error("rdma", "found both tcp and rdma, expected one of them"), false;
    if (!tcp && !rdma)
        return map.error("tcp", "found no such key, expected tcp or rdma with an address"), false;
    if (!(tcp ? tcp : rdma)->scalar(config_path_address(), path)) return false;
    path.fabric = tcp ? ClientConfig::Path::Fabric::tcp : ClientConfig::Path::Fabric::rdma;
    return true;
}

void read_path(const ConfigValue& item, ClientConfig::Session& session) {
    item.map([&](ConfigMap& map) {
        ClientConfig::Path path;
        const bool known = read_path_addresses(map, path);
        read_path_source(map, path);
        map.optional("priority", config_names(rtrs::path_priority_names), path.priority);
        if (known && std::ranges::any_of(session.paths,
                                         [&](const auto& other) { return other.same_way(path); }))
            map.error(word_of(path.fabric),
                      fmt::format("found \"{}\" a second time, expected each path once",
                                  path.to_string()));
        session.paths.push_back(std::move(path));
    });
}

void read_waiting(ConfigMap& map, ClientConfig::Session& session) {
    map.optional("hold_time", config_duration_or_forever(0s, 24h * 365), session.hold_time);
    map.optional("fail_fast_time", config_duration_or_never(0s, 24h * 365), session.fail_fast_time);
    if (session.hold_time && session.fail_fast_time && *session.fail_fast_time > *session.hold_time)
        map.error("fail_fast_time",
                  "found more than hold_time, after which everything fails, expected at most that");
}

// After the heartbeat.
void read_probing(ConfigMap& map, ClientConfig::Session& session) {
    map.optional("request_deadline", config_duration(10ms, 1h), session.request_deadline);
    session.probe_timeout = session.heartbeat_timeout / 4;
    if (map.optional("probe_timeout", config_duration(5ms, 1h), session.probe_timeout) &&
        session.probe_timeout > session.heartbeat_timeout)
        map.error("probe_timeout",
                  "found more than the heartbeat's timeout, expected at most that");
}

void read_reconnect_delay(ConfigMap& map, ClientConfig::Session& session) {
    map.optional_map("reconnect_delay", [&](ConfigMap& delay) {
        delay.optional("min", config_duration(1ms, 1h), session.reconnect_delay_min);
        delay.optional("max", config_duration(1ms, 1h), session.reconnect_delay_max);
        if (session.reconnect_delay_min > session.reconnect_delay_max)
            delay.error("max", "found less than min, expected at least min");
    });
}

void read_session(const ConfigValue& item, ClientConfig& config, Seen& seen) {
    item.map([&](ConfigMap& map) {
        ClientConfig::Session session;
        if (map.required("name", config_session_name(), session.name)) {
            const auto [first, added] =
                seen.session_places.emplace(session.name, map.place("name"));
            if (!added)
                map.error("name", fmt::format("found \"{}\" a second time, expected each name "
                                              "once (first at {})",
                                              session.name, first->second));
            seen.sessions.push_back(session.name);
        }
        map.required_list("paths", {.min = 1, .max = rtrs::limits::paths_max},
                          [&](const ConfigValue& path) { read_path(path, session); });
        map.optional("policy", config_names(rtrs::path_policy_names), session.policy);
        read_waiting(map, session);
        map.optional("max_reconnect_attempts", config_reconnect_attempts(),
                     session.max_reconnect_attempts);
        read_reconnect_delay(map, session);
        map.optional("connect_timeout", config_duration(10ms, 10min), session.connect_timeout);
        read_heartbeat(map, session.heartbeat_interval, session.heartbeat_timeout);
        read_probing(map, session);
        map.optional("connections",
                     config_integer<std::uint32_t>(1, rtrs::limits::io_connections_max),
                     session.connections);
        map.optional("data_checksum", config_bool(), session.data_checksum);
        config.sessions.push_back(std::move(session));
    });
}

// One that cannot be listened on beside this one; both as NbdAddress::text(). Null: none.
const std::string* overlapping(const Seen& seen, std::string_view text) {
    constexpr std::string_view tcp = "tcp:";
    const auto host_and_port = [&](std::string_view address) { return address.substr(tcp.size()); };
    if (!text.starts_with(tcp)) return nullptr;
    const auto found = std::ranges::find_if(seen.addresses, [&](const std::string& other) {
        return other.starts_with(tcp) &&
               addresses_overlap(host_and_port(other), host_and_port(text));
    });
    return found == seen.addresses.end() ? nullptr : &*found;
}

void read_nbd_address(const ConfigValue& value, ClientConfig::Device& device, Seen& seen) {
    NbdAddress address;
    if (!value.scalar(config_nbd(), address)) return;
    const std::string text = address.text();
    // Several devices may share a socket: clients choose by name.
    seen.addresses.insert(text);
    if (const std::string* const other = overlapping(seen, text))
        value.error(
            fmt::format("found \"{}\" beside \"{}\", expected no address that another one "
                        "has as well",
                        text, *other));
    if (!text.ends_with(":0") && std::ranges::find(device.nbd, address) != device.nbd.end())
        value.error(fmt::format("found \"{}\" a second time, expected each address once", text));
    device.nbd.push_back(std::move(address));
}

// One address, or a list of them.
void read_nbd(ConfigMap& map, ClientConfig::Device& device, Seen& seen) {
    // One that the kernel has, whatever is wrong with how it is called there, needs none.
    const auto value = map.find("device")
                           ? map.find("nbd")
                           : map.require("nbd", config_nbd().expected + "; or a device");
    if (!value) return;
    if (!value->is_list()) return read_nbd_address(*value, device, seen);
    value->list({.min = 1, .max = 16},
                [&](const ConfigValue& item) { read_nbd_address(item, device, seen); });
}

void read_kernel_device(ConfigMap& map, ClientConfig::Device& device, Seen& seen) {
    KernelDeviceName name;
    if (map.optional("device", config_kernel_device(), name)) {
        const std::string text = name.to_string();
        const auto [first, added] = seen.kernel_devices.emplace(text, map.place("device"));
        if (name.index && !added)
            map.error("device", fmt::format("found \"{}\" a second time, expected each device "
                                            "once (first at {})",
                                            text, first->second));
        device.kernel = name;
    }
    map.optional("device_connections", config_integer<std::uint32_t>(1, kernel_connections_max),
                 device.kernel_connections);
}

// A session opens a volume once: the server would give a second device the first one's access, and
// closing one would close the other.
void check_volume_unused(const ConfigMap& map, const ClientConfig& config,
                         const ClientConfig::Device& device, Seen& seen) {
    const auto [first, added] =
        seen.volumes.emplace(std::pair(device.session, device.volume), map.place("volume"));
    if (added) return;
    for (const auto& other : config.devices)
        if (other.session == device.session && other.volume == device.volume)
            return map.error(
                "volume", fmt::format("found \"{}\" which device \"{}\" has already through "
                                      "session \"{}\", expected another volume or session (first "
                                      "at {})",
                                      device.volume, other.name, device.session, first->second));
}

// ", nearest valid value "host-a"", or all if there are few.
std::string those_there_are(const std::vector<std::string>& names, const std::string& found) {
    constexpr std::size_t few = 8;
    const std::string nearest = nearest_word(found, names);
    if (!nearest.empty()) return fmt::format(", nearest valid value \"{}\"", nearest);
    if (names.empty()) return "; there is none";
    return names.size() <= few ? fmt::format(": {}", fmt::join(names, ", ")) : "";
}

void read_device(const ConfigValue& item, ClientConfig& config, Seen& seen) {
    item.map([&](ConfigMap& map) {
        ClientConfig::Device device;
        if (map.required("name", config_volume_name(), device.name)) {
            const auto [first, added] = seen.names.emplace(device.name, map.place("name"));
            if (!added)
                map.error("name", fmt::format("found \"{}\" a second time, expected each name "
                                              "once (first at {})",
                                              device.name, first->second));
        }
        if (map.required("session", config_session_name(), device.session) &&
            !seen.session_places.contains(device.session)) {
            map.error("session",
                      fmt::format("found \"{}\", expected the name of a session{}", device.session,
                                  those_there_are(seen.sessions, device.session)));
        }
        const bool known = map.required("volume", config_volume_name(), device.volume);
        map.required("access", config_access(), device.access);
        read_kernel_device(map, device, seen);
        read_nbd(map, device, seen);
        if (known) check_volume_unused(map, config, device, seen);
        config.devices.push_back(std::move(device));
    });
}

ConfigType<ClientConfig::Path> config_path_label() {
    return {"[rdma:][SOURCE@]HOST:PORT, numeric", ClientConfig::Path::parse};
}

// First those that go, whether or not they are there; then those that come, in the place of theirs.
void amend_paths(ConfigMap& map, ClientConfig::Session& session) {
    using Path = ClientConfig::Path;
    const auto drop = [&](const Path& path) {
        return std::erase_if(session.paths, [&](const Path& one) { return one.same_way(path); });
    };
    map.optional_list("remove_paths", {}, [&](const ConfigValue& item) {
        Path path;
        if (item.scalar(config_path_label(), path)) drop(path);
    });
    ClientConfig::Session added;
    map.optional_list("add_paths", {}, [&](const ConfigValue& item) { read_path(item, added); });
    for (Path& path : added.paths) {
        const auto there = std::ranges::find_if(
            session.paths, [&](const Path& one) { return one.same_way(path); });
        if (there != session.paths.end())
            there->priority = path.priority;
        else
            session.paths.push_back(std::move(path));
    }
    if (session.paths.empty() || session.paths.size() > rtrs::limits::paths_max)
        map.error(session.paths.empty() ? "remove_paths" : "add_paths",
                  fmt::format("found {} paths left in session \"{}\", expected 1 to {}",
                              session.paths.size(), session.name, rtrs::limits::paths_max));
}

// What another file has said of a session, as rnbdctl --save has it now.
void read_amendment(const ConfigValue& item, ClientConfig& config) {
    item.map([&](ConfigMap& map) {
        std::string name;
        ClientConfig::Session unknown;
        ClientConfig::Session* session = &unknown;
        if (map.required("session", config_session_name(), name)) {
            const auto found =
                std::ranges::find(config.sessions, name, &ClientConfig::Session::name);
            if (found != config.sessions.end()) {
                session = &*found;
            } else {
                // As what is left of a session that was taken out by hand: no reason not to start.
                map.warning("session", fmt::format("found \"{}\", which is no session of any file: "
                                                   "passed over; take it out, too",
                                                   name));
            }
        }
        map.optional("policy", config_names(rtrs::path_policy_names), session->policy);
        if (session != &unknown) return amend_paths(map, *session);
        map.find("remove_paths");
        map.find("add_paths");
    });
}

void read_client(ConfigMap& map, ClientConfig& config) {
    Seen seen;
    map.optional_list("sessions", {},
                      [&](const ConfigValue& item) { read_session(item, config, seen); });
    map.optional_list("devices", {},
                      [&](const ConfigValue& item) { read_device(item, config, seen); });
    map.optional_list("amend", {}, [&](const ConfigValue& item) { read_amendment(item, config); });
    map.optional("control", config_socket_path(), config.control);
    if (seen.addresses.contains("unix:" + config.control))
        map.error("control", fmt::format("found \"{}\" which a device has as its nbd address, "
                                         "expected another path",
                                         config.control));
    read_loop_settings(map, config);
    read_process_settings(map, config);
    const bool any_port = config.metrics.ends_with(":0");
    if (!any_port && (seen.addresses.contains(config.metrics) ||
                      seen.addresses.contains("tcp:" + config.metrics)))
        map.error("metrics", fmt::format("found \"{}\" which a device has as its nbd address, "
                                         "expected another one",
                                         config.metrics));
    const bool on_tcp = !config.metrics.empty() && !config.metrics.starts_with("unix:");
    const std::string* const other = on_tcp ? overlapping(seen, "tcp:" + config.metrics) : nullptr;
    if (other != nullptr)
        map.error("metrics", fmt::format("found \"{}\" beside \"{}\", expected no address that "
                                         "another one has as well",
                                         config.metrics, *other));
}

}  // namespace

bool ClientConfig::Path::same_way(const Path& other) const noexcept {
    return fabric == other.fabric && destination == other.destination && source == other.source;
}

std::string ClientConfig::Path::to_string() const {
    const std::string addresses =
        source.empty() ? destination : fmt::format("{}@{}", source, destination);
    return fabric == Fabric::rdma ? "rdma:" + addresses : addresses;
}

std::optional<ClientConfig::Path> ClientConfig::Path::parse(std::string_view text) {
    const bool rdma = text.starts_with("rdma:");
    if (rdma || text.starts_with("tcp:")) text.remove_prefix(text.find(':') + 1);
    auto path = parse_addresses(text);
    if (path && rdma) path->fabric = Fabric::rdma;
    return path;
}

std::optional<ClientConfig::Path> ClientConfig::Path::parse_addresses(std::string_view text) {
    auto addresses = parse_path_addresses(text);
    if (!addresses) return std::nullopt;
    Path path;
    path.source = std::move(addresses->source);
    path.destination = std::move(addresses->destination);
    return path;
}

std::string KernelDeviceName::to_string() const {
    return index ? fmt::format("/dev/nbd{}", *index) : "auto";
}

std::optional<KernelDeviceName> KernelDeviceName::parse(std::string_view text) {
    constexpr std::string_view folder = "/dev/nbd";
    if (text == "auto") return KernelDeviceName{};
    if (!text.starts_with(folder)) return std::nullopt;
    const auto index = parse_integer(text.substr(folder.size()));
    if (!index || *index < 0 || *index > index_max) return std::nullopt;
    return KernelDeviceName{static_cast<std::uint32_t>(*index)};
}

std::expected<ClientConfig, std::vector<ConfigError>> ClientConfig::parse(
    const std::vector<ConfigSource>& sources) {
    return read_config<ClientConfig>(sources, read_client);
}

std::expected<ClientConfig, std::vector<ConfigError>> ClientConfig::parse(std::string_view text,
                                                                          std::string file) {
    return parse(std::vector{ConfigSource{std::move(file), std::string(text)}});
}

}  // namespace rnbd
