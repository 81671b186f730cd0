#include "rnbd-server/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>

#include "daemon/attributes/commands.h"
#include "daemon/attributes/machine.h"
#include "daemon/attributes/table.h"
#include "daemon/attributes/values.h"
#include "daemon/config/common.h"
#include "daemon/log/log.h"
#include "rtrs/base/host.h"

namespace rnbd {
namespace {

constexpr std::string_view path_folder = "class/rtrs-server/{session}/paths/{path}/";
constexpr std::string_view device_folder = "class/rnbd-server/ctl/devices/{device}/";
constexpr std::string_view holder_folder =
    "class/rnbd-server/ctl/devices/{device}/sessions/{holder}/";

// As rnbdctl exports evict.
constexpr rtrs::Duration force_close_time = std::chrono::seconds(60);

using attribute_table::by;
using attribute_table::expected_one;
using attribute_table::fail;
using attribute_table::gone;
using attribute_table::in;
using attribute_table::is_one;
using attribute_table::item_named;
using attribute_table::Lines;

std::string name_of(const rtrs::ServerPathStatus& path) {
    return attribute_address(rtrs::host_of(path.remote)) + "@" +
           attribute_address(rtrs::host_of(path.local));
}

// A path that has ended may be there for its operations, beside its next life, which has the name.
std::vector<std::string> names_of(const rtrs::ServerSessionStatus& status) {
    std::vector<std::size_t> order(status.paths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_partition(
        order, [&](std::size_t i) { return status.paths[i].state != std::string_view("closing"); });
    std::vector<std::string> names;
    for (const std::size_t i : order) names.push_back(name_of(status.paths[i]));
    names = unique_names(std::move(names));
    std::vector<std::string> by_path(names.size());
    for (std::size_t i = 0; i < order.size(); ++i) by_path[order[i]] = std::move(names[i]);
    return by_path;
}

// "sdb" for /dev/disk/by-id/something; empty for what is no device.
std::string block_device_of(const Volume& volume) {
    const StorageOptions& storage = volume.config().storage;
    // A look into /dev never hangs, unlike one at a file of who knows where.
    if (storage.kind != StorageOptions::Kind::path || !storage.path.starts_with("/dev/")) return "";
    std::error_code error;
    const auto real = std::filesystem::canonical(storage.path, error);
    if (error || !std::filesystem::is_block_file(real, error)) return "";
    return real.lexically_relative("/dev").string();
}

std::string name_of(const Volume& volume) {
    std::string name = block_device_of(volume);
    if (name.empty()) name = volume.name();
    std::ranges::replace(name, '/', '!');
    return name;
}

}  // namespace

ServerAttributes::ServerAttributes(rtrs::Server& server, Target& target)
    : server_(server), target_(target) {
    add_variables();
    add_path_attributes();
    add_device_attributes();
    tree_.around_list([this] { look_at_devices(); }, [this] { devices_.reset(); });
}

void ServerAttributes::add_variables() {
    tree_.add_variable("{session}", [this](AttributeScope) { return session_names(); });
    tree_.add_variable("{path}", [this](AttributeScope outer) { return path_names(outer[0]); });
    tree_.add_variable("{device}", [this](AttributeScope) { return device_names(); });
    tree_.add_variable("{holder}", [this](AttributeScope outer) { return holder_names(outer[0]); });
}

void ServerAttributes::add_path_attributes() {
    const Lines lines(tree_, path_folder, [this](AttributeScope scope) { return path(scope); });
    tree_.add({.pattern = in(path_folder, "disconnect"),
               .read = [](AttributeScope) -> AttributeValue { return usage_of_one("disconnect"); },
               .write = by(this, &ServerAttributes::disconnect),
               .read_format = "usage",
               .write_format = "`1`: begins to close it; else `EINVAL`",
               .remark = "The client comes back on it, as the kernel's does."});
    lines.add(
        "hca_name",
        [](const PathPlace& it) {
            if (!it.path.device.empty()) return it.path.device;
            const std::string interface = interface_of(rtrs::host_of(it.path.local));
            return interface.empty() ? it.path.fabric : interface;
        },
        "name",
        "Over TCP, the network interface that has the server's address, as with the kernel's "
        "devices without hardware (siw, rxe), which are made of one.");
    lines.add(
        "hca_port", [](const PathPlace&) { return "1"; }, "`%u`",
        "1: ports of a device are not told apart.");
    lines.add(
        "src_addr",
        [](const PathPlace& it) { return attribute_address(rtrs::host_of(it.path.remote)); },
        "`ip:ADDRESS` of the client", "");
    lines.add(
        "dst_addr",
        [](const PathPlace& it) { return attribute_address(rtrs::host_of(it.path.local)); },
        "`ip:ADDRESS` of the server", "");
    tree_.add({.pattern = in(path_folder, "stats/rdma"),
               .read = [this](AttributeScope scope) { return read_traffic(scope); },
               .write = by(this, &ServerAttributes::reset_traffic),
               .read_format = "four numbers: reads, bytes read, writes, bytes written",
               .write_format = "`1` resets it; else `EINVAL`",
               .remark = "Bytes with the messages that describe requests, as the kernel counts."});
}

void ServerAttributes::add_device_attributes() {
    const Lines lines(tree_, holder_folder, [this](AttributeScope scope) { return holder(scope); });
    tree_.add({.pattern = in(device_folder, "block_dev"),
               .kind = Attribute::Kind::link,
               .read = [this](AttributeScope scope) { return backing_device(scope); },
               .read_format = "to the device in `/sys/class/block`",
               .remark = "To the file, if the export is one; absent if it is in memory. The "
                         "directory is named by the block device, else by the export (`/` is "
                         "`!`), and is there while somebody has it open."});
    lines.add(
        "access_mode", [](const OpenPlace& it) { return to_word(it.open->access); },
        "`ro`, `rw`, `migration`", "");
    lines.add(
        "read_only",
        [](const OpenPlace& it) { return it.open->access == AccessMode::read_only ? "1" : "0"; },
        "`1`, `0`", "");
    tree_.add({.pattern = in(holder_folder, "force_close"),
               .read = [](AttributeScope) -> AttributeValue { return usage_of_one("force_close"); },
               .write = by(this, &ServerAttributes::force_close),
               .read_format = "usage",
               .write_format = "`1`: takes it from the session when what is in flight has ended; "
                               "else `EINVAL`",
               .remark = "It may not open it again for 60 s, as with `rnbdctl exports evict`. Our "
                         "client's I/O waits meanwhile, a kernel client's fails with 107."});
    lines.add(
        "mapping_path", [](const OpenPlace& it) { return it.volume->name(); }, "name",
        "The export's name.");
}

// --- Sessions and paths.

std::vector<rtrs::ServerSession*> ServerAttributes::named_sessions() const {
    auto sessions = server_.sessions();
    std::erase_if(sessions, [](const auto* session) { return session->name().empty(); });
    return sessions;
}

// Two of one name: one is taking over from the other.
std::vector<std::string> ServerAttributes::session_names() const {
    std::vector<std::string> names;
    for (const auto* session : named_sessions()) names.push_back(session->name());
    return unique_names(std::move(names));
}

std::expected<rtrs::ServerSession*, AttributeError> ServerAttributes::session(
    const std::string& name) const {
    return item_named(session_names(), name, named_sessions());
}

std::vector<std::string> ServerAttributes::path_names(const std::string& name) const {
    const auto found = session(name);
    return found ? names_of((*found)->status()) : std::vector<std::string>{};
}

std::expected<ServerAttributes::PathPlace, AttributeError> ServerAttributes::path(
    AttributeScope scope) const {
    const auto found = session(scope[0]);
    if (!found) return std::unexpected(found.error());
    auto status = (*found)->status();
    const auto names = names_of(status);
    auto path = item_named(names, scope[1], std::move(status.paths));
    if (!path) return std::unexpected(path.error());
    return PathPlace{*found, std::move(*path)};
}

AttributeValue ServerAttributes::read_traffic(AttributeScope scope) const {
    return read_at(path(scope), [this](const PathPlace& place) {
        const rtrs::ServerPathCounters& now = place.path.counters;
        const auto known = baselines_.find(place.path.id);
        const rtrs::ServerPathCounters then =
            known == baselines_.end() ? rtrs::ServerPathCounters{} : known->second;
        return fmt::format("{} {} {} {}\n", now.reads - then.reads,
                           now.read_bytes - then.read_bytes, now.writes - then.writes,
                           now.write_bytes - then.write_bytes);
    });
}

AttributeWritten ServerAttributes::reset_traffic(AttributeScope scope, std::string_view value) {
    const auto place = path(scope);
    if (!place) return std::unexpected(place.error());
    if (!is_one(value)) return expected_one();
    // Those of paths that are gone are forgotten on the way.
    std::erase_if(baselines_, [this](const auto& entry) {
        return std::ranges::none_of(server_.sessions(), [&](const auto* session) {
            const auto paths = session->status().paths;
            return std::ranges::find(paths, entry.first, &rtrs::ServerPathStatus::id) !=
                   paths.end();
        });
    });
    baselines_[place->path.id] = place->path.counters;
    return {};
}

AttributeWritten ServerAttributes::disconnect(AttributeScope scope, std::string_view value) {
    const auto place = path(scope);
    if (!place) return std::unexpected(place.error());
    if (!is_one(value)) return expected_one();
    if (!place->session->close_path(place->path.id, "disconnected by the operator")) {
        return gone();
    }
    return {};
}

// --- Devices and who has them open.

std::vector<const Volume*> ServerAttributes::open_volumes() const {
    std::vector<const Volume*> volumes;
    for (const auto& volume : target_.volumes()) {
        if (!volume->opens().empty()) volumes.push_back(volume.get());
    }
    return volumes;
}

void ServerAttributes::look_at_devices() {
    Devices devices{.names = device_names(), .by_name = {}};
    const auto volumes = open_volumes();
    for (std::size_t i = 0; i < volumes.size(); ++i)
        devices.by_name.emplace(devices.names[i], volumes[i]);
    devices_ = std::move(devices);
}

std::vector<std::string> ServerAttributes::device_names() const {
    if (devices_) return devices_->names;
    std::vector<std::string> names;
    for (const Volume* volume : open_volumes()) names.push_back(name_of(*volume));
    return unique_names(std::move(names));
}

std::expected<const Volume*, AttributeError> ServerAttributes::device(
    const std::string& name) const {
    if (!devices_) return item_named(device_names(), name, open_volumes());
    const auto found = devices_->by_name.find(name);
    if (found == devices_->by_name.end()) return gone();
    return found->second;
}

std::vector<std::string> ServerAttributes::holder_names(const std::string& name) const {
    std::vector<std::string> names;
    const auto found = device(name);
    if (!found) return names;
    for (const auto& open : (*found)->opens()) names.push_back(open->session);
    return unique_names(std::move(names));
}

std::expected<ServerAttributes::OpenPlace, AttributeError> ServerAttributes::holder(
    AttributeScope scope) const {
    const auto found = device(scope[0]);
    if (!found) return std::unexpected(found.error());
    std::vector<const Volume::Open*> opens;
    for (const auto& open : (*found)->opens()) opens.push_back(open.get());
    const auto open = item_named(holder_names(scope[0]), scope[1], std::move(opens));
    if (!open) return std::unexpected(open.error());
    return OpenPlace{*found, *open};
}

AttributeWritten ServerAttributes::force_close(AttributeScope scope, std::string_view value) {
    const auto place = holder(scope);
    if (!place) return std::unexpected(place.error());
    if (!is_one(value)) return expected_one();
    const auto evicted =
        target_.evict(place->volume->name(), place->open->session, force_close_time);
    if (!evicted) return std::unexpected(attribute_error(evicted.error()));
    return {};
}

AttributeValue ServerAttributes::backing_device(AttributeScope scope) const {
    const auto found = device(scope[0]);
    if (!found) return std::unexpected(found.error());
    const StorageOptions& storage = (*found)->config().storage;
    if (storage.kind != StorageOptions::Kind::path) return fail(ENOENT);
    std::string name = block_device_of(**found);
    if (name.empty()) return storage.path;
    std::ranges::replace(name, '/', '!');
    return "/sys/class/block/" + name;
}

}  // namespace rnbd
