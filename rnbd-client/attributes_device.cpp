// The attributes of devices, and map_device.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "daemon/attributes/machine.h"
#include "daemon/attributes/table.h"
#include "daemon/attributes/values.h"
#include "daemon/config/common.h"
#include "rnbd-client/attributes.h"
#include "rnbd-client/attributes_map.h"
#include "rnbd-client/client_session.h"
#include "rnbd-client/not_open.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using nlohmann::json;

using attribute_table::expected_one;
using attribute_table::fail;
using attribute_table::gone;

std::string device_name(const Mapping& mapping) { return fmt::format("rnbd{}", mapping.number()); }

// "vol!golden@host-a"
std::string link_name(const Mapping& mapping) {
    std::string name = mapping.config().volume;
    std::ranges::replace(name, '/', '!');
    return name + "@" + mapping.config().session;
}

// The options as the configuration that they stand for: the same rules. existing: has the paths.
std::expected<ClientConfig, AttributeError> configured(const MapOptions& options,
                                                       const std::string& name,
                                                       const std::string& socket,
                                                       const Client::Session* existing) {
    json paths = json::array();
    for (const auto& [address, port] : options.paths) {
        json path{
            {"tcp", configured_path({.source = "", .destination = address.destination}, port)}};
        if (!address.source.empty()) path["source"] = address.source;
        paths.push_back(std::move(path));
    }
    if (existing != nullptr) paths = {{{"tcp", existing->config.paths.front().destination}}};
    const json config{{"sessions", {{{"name", options.session}, {"paths", paths}}}},
                      {"devices",
                       {{{"name", name},
                         {"session", options.session},
                         {"volume", options.volume},
                         {"access", to_word(options.access)},
                         {"nbd", "unix:" + socket}}}}};
    auto parsed = ClientConfig::parse(config.dump(-1, ' ', false, json::error_handler_t::replace),
                                      "map_device");
    if (parsed) return std::move(*parsed);
    std::string message;
    for (const ConfigError& error : parsed.error()) {
        message += (message.empty() ? "" : "; ") + error.key + ": " + error.text;
    }
    return fail(EINVAL, std::move(message));
}

// Why a device that is being mapped will not be, if that is so.
std::optional<AttributeError> why_not(RemoteVolume& volume, const rtrs::ClientSessionStatus& status,
                                      SessionAge age) {
    if (const auto error = volume.open_error()) {
        return AttributeError{rtrs::to_errno(error), volume.reason()};
    }
    if (age == SessionAge::older) {
        if (status.link_up) return std::nullopt;
        return AttributeError{ECONNABORTED, why_not_open(volume)};
    }
    for (const auto& path : status.paths) {
        const bool failed = path.attempts_failed > 0 || path.state == rtrs::PathState::closed;
        if (path.state == rtrs::PathState::connected || !failed) continue;
        const int number = rtrs::to_errno(path.error);
        return AttributeError{number != 0 ? number : ENOTCONN,
                              fmt::format("path {}: {}", path.label, path.reason)};
    }
    return std::nullopt;
}

bool all_connected(const rtrs::ClientSessionStatus& status) {
    return std::ranges::all_of(status.paths, [](const rtrs::PathStatus& path) {
        return path.state == rtrs::PathState::connected;
    });
}

}  // namespace

std::vector<std::string> ClientAttributes::device_names() const {
    std::vector<std::string> names;
    for (const auto& mapping : client_.mappings()) names.push_back(device_name(*mapping));
    return names;
}

std::vector<std::string> ClientAttributes::link_names() const {
    std::vector<std::string> names;
    for (const auto& mapping : client_.mappings()) names.push_back(link_name(*mapping));
    return unique_names(std::move(names));
}

AttributeValue ClientAttributes::link_target(AttributeScope scope) const {
    const auto names = link_names();
    const auto found = std::ranges::find(names, scope[0]);
    if (found == names.end()) return fail(ENOENT);
    const auto at = static_cast<std::size_t>(found - names.begin());
    return "../../../../block/" + device_name(*client_.mappings()[at]);
}

std::expected<Mapping*, AttributeError> ClientAttributes::device(const std::string& name) const {
    for (const auto& mapping : client_.mappings()) {
        if (device_name(*mapping) == name) return mapping.get();
    }
    return gone();
}

AttributeValue ClientAttributes::read_device_state(AttributeScope scope) const {
    return read_at(device(scope[0]), [](Mapping* mapping) -> std::string {
        if (mapping->stopping()) return "unmapped\n";
        switch (mapping->volume().state()) {
            case VolumeState::opening:
                return "init\n";
            case VolumeState::open:
                return "open\n";
            case VolumeState::reopening:
            case VolumeState::superseded:
                return "closed\n";
            case VolumeState::closed:
                return "unmapped\n";
        }
        return "unknown\n";
    });
}

// --- Mapping.

void ClientAttributes::map_device(AttributeScope, std::string_view value, Done done) {
    const auto options = MapOptions::parse(value, static_cast<int>(possible_processors()));
    if (!options) return done(std::unexpected(options.error()));
    for (const auto& mapping : client_.mappings()) {
        if (mapping->config().session == options->session &&
            mapping->config().volume == options->volume) {
            return done(fail(EEXIST, "it is mapped already, as " + device_name(*mapping)));
        }
    }
    const auto known = client_.sessions().find(options->session);
    const bool is_new = known == client_.sessions().end();
    if (is_new && options->paths.empty()) {
        return done(fail(ENXIO, "there is no session " + options->session + ", and no path="));
    }
    std::string name = fmt::format("rnbd{}", client_.free_number());
    const auto taken = [&](const auto& mapping) { return mapping->config().name == name; };
    while (std::ranges::any_of(client_.mappings(), taken)) name += "_";
    auto config = configured(*options, name, socket_folder_ + "/" + name + ".sock",
                             is_new ? nullptr : known->second.get());
    if (!config) return done(std::unexpected(config.error()));
    for (auto& path : config->sessions.front().paths) path.fabric = client_.fabric_towards(path);
    client_.map(config->devices.front(), is_new ? &config->sessions.front() : nullptr,
                [this, name, age = is_new ? SessionAge::just_made : SessionAge::older,
                 done](const std::expected<void, ControlFailure>& mapped) {
                    if (!mapped) return done(std::unexpected(attribute_error(mapped.error())));
                    wait_until_mapped(name, age, done);
                });
}

// Until it is open; or cannot be, and is gone again.
void ClientAttributes::wait_until_mapped(const std::string& name, SessionAge age, Done done) {
    const auto failure = std::make_shared<std::optional<AttributeError>>();
    waits_.wait(
        [this, name, age, failure]() -> std::optional<Written> {
            const auto found = std::ranges::find_if(client_.mappings(), [&](const auto& mapping) {
                return mapping->config().name == name;
            });
            if (found == client_.mappings().end()) {
                return *failure ? std::unexpected(**failure) : gone();
            }
            if (*failure) return std::nullopt;
            RemoteVolume& volume = (*found)->volume();
            const auto status = volume.session().rtrs().status();
            *failure = why_not(volume, status, age);
            if (!*failure) {
                const bool complete = age == SessionAge::older || all_connected(status);
                const bool open = volume.state() == VolumeState::open && complete;
                return open ? std::optional(Written{}) : std::nullopt;
            }
            client_.unmap(name, Client::Unmap::by_force, [](const auto&) {});
            return std::nullopt;
        },
        done);
}

void ClientAttributes::unmap_device(AttributeScope scope, std::string_view value, Done done) {
    const auto found = device(scope[0]);
    if (!found) return done(std::unexpected(found.error()));
    const bool by_force = stripped(value) == "force";
    if (!by_force && stripped(value) != "normal") {
        return done(fail(EINVAL, "expected normal or force"));
    }
    if ((*found)->stopping()) return done(fail(EALREADY, "it is being unmapped"));
    client_.unmap((*found)->config().name,
                  by_force ? Client::Unmap::by_force : Client::Unmap::if_unused,
                  [done](const std::expected<Client::Gone, ControlFailure>& unmapped) {
                      if (!unmapped)
                          return done(std::unexpected(attribute_error(unmapped.error())));
                      if (unmapped->loss.empty()) return done(Written{});
                      done(fail(EIO, "it is unmapped, but " + unmapped->loss));
                  });
}

AttributeWritten ClientAttributes::resize(AttributeScope scope, std::string_view value) {
    const auto found = device(scope[0]);
    if (!found) return std::unexpected(found.error());
    const auto sectors = parse_attribute_unsigned(value);
    if (!sectors) return fail(sectors.error(), "expected a number of sectors of 512 bytes");
    if (*sectors > std::numeric_limits<std::uint64_t>::max() / sector_bytes) return fail(EINVAL);
    if ((*found)->stopping()) return fail(ENOENT, "it is being unmapped");
    const auto error = (*found)->volume().set_size(*sectors * sector_bytes);
    if (!error) return {};
    return fail(rtrs::to_errno(error), error == std::errc::no_such_file_or_directory
                                           ? "it is not open"
                                           : "expected whole blocks");
}

void ClientAttributes::remap_device(AttributeScope scope, std::string_view value, Done done) {
    const auto found = device(scope[0]);
    if (!found) return done(std::unexpected(found.error()));
    if (stripped(value) != "1") return done(expected_one());
    if ((*found)->stopping()) return done(fail(ENODEV, "it is being unmapped"));
    RemoteVolume& volume = (*found)->volume();
    if (volume.state() == VolumeState::opening) return done(fail(EBUSY, why_not_open(volume)));
    if (const auto error = volume.open_again()) {
        return done(fail(rtrs::to_errno(error), why_not_open(volume)));
    }
    waits_.wait(
        [this, name = (*found)->config().name]() -> std::optional<Written> {
            const auto now = std::ranges::find_if(client_.mappings(), [&](const auto& mapping) {
                return mapping->config().name == name;
            });
            if (now == client_.mappings().end()) return gone();
            RemoteVolume& it = (*now)->volume();
            if (it.state() == VolumeState::open) return Written{};
            if (const auto error = it.open_error()) {
                return fail(rtrs::to_errno(error), it.reason());
            }
            if (!it.session().rtrs().link_up()) return fail(ECONNABORTED, why_not_open(it));
            return std::nullopt;
        },
        done);
}

}  // namespace rnbd
