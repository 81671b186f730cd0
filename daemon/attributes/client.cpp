#include "daemon/attributes/client.h"

#include <cerrno>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

namespace rnbd {
namespace {

using nlohmann::json;
using Kind = ControlCallFailure::Kind;

// Without "/sys" and the slashes around.
std::string_view trimmed(std::string_view path) {
    if (path == "/sys" || path.starts_with("/sys/")) path.remove_prefix(4);
    while (path.starts_with('/')) path.remove_prefix(1);
    while (path.ends_with('/')) path.remove_suffix(1);
    return path;
}

bool nobody_there(const ControlCallFailure& failure) noexcept {
    return failure.kind == Kind::absent || failure.kind == Kind::away ||
           failure.kind == Kind::unreachable;
}

std::string text_in(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

AttributeEntry parse_entry(const json& object) {
    AttributeEntry entry{.path = text_in(object, "path"), .target = text_in(object, "target")};
    const std::string kind = text_in(object, "kind");
    if (kind == "file") entry.kind = AttributeEntry::Kind::file;
    if (kind == "link") entry.kind = AttributeEntry::Kind::link;
    const std::string mode = text_in(object, "mode");
    std::from_chars(mode.data(), mode.data() + mode.size(), entry.mode, 8);
    return entry;
}

ControlCallFailure nonsense() { return {Kind::nonsense, "the answer is not what was asked for"}; }

}  // namespace

AttributeOwner attribute_owner(std::string_view path) {
    path = trimmed(path);
    const auto is_in = [&](std::string_view folder) {
        return path.starts_with(folder) &&
               (path.size() == folder.size() || path[folder.size()] == '/');
    };
    if (is_in("class/rtrs-server") || is_in("class/rnbd-server")) return AttributeOwner::server;
    if (is_in("class/rtrs-client") || is_in("class/rnbd-client") || is_in("block"))
        return AttributeOwner::client;
    return AttributeOwner::both;
}

std::vector<std::string> AttributeClient::sockets_for(std::string_view path) const {
    const AttributeOwner owner = attribute_owner(path);
    std::vector<std::string> sockets;
    if (owner != AttributeOwner::client && !sockets_.server.empty())
        sockets.push_back(sockets_.server);
    if (owner != AttributeOwner::server && !sockets_.client.empty())
        sockets.push_back(sockets_.client);
    return sockets;
}

// The first that has it.
AttributeClient::Answer<json> AttributeClient::ask_one(std::string_view path,
                                                       rtrs::Duration timeout,
                                                       std::string_view command,
                                                       const json& arguments) const {
    ControlCallFailure failure{Kind::absent, "no daemon has such a path"};
    for (const auto& socket : sockets_for(path)) {
        auto answer = control_call({.socket_path = socket, .timeout = timeout}, command, arguments);
        if (answer) return std::move(*answer);
        if (!nobody_there(answer.error()) || nobody_there(failure)) failure = answer.error();
    }
    return std::unexpected(std::move(failure));
}

AttributeClient::Answer<std::string> AttributeClient::read(std::string_view path) const {
    const auto answer = ask_one(path, sockets_.read_timeout, "attribute_get", {{"path", path}});
    if (!answer) return std::unexpected(answer.error());
    if (!answer->is_object() || !answer->contains("value")) return std::unexpected(nonsense());
    return text_in(*answer, "value");
}

AttributeClient::Answer<void> AttributeClient::write(std::string_view path,
                                                     std::string_view value) const {
    const auto answer =
        ask_one(path, sockets_.write_timeout, "attribute_set", {{"path", path}, {"value", value}});
    if (!answer) return std::unexpected(answer.error());
    return {};
}

AttributeClient::Answer<AttributeListing> AttributeClient::list(std::string_view path,
                                                                Depth depth) const {
    ControlCallFailure failure{Kind::absent, "no daemon has such a path"};
    AttributeListing listing;
    std::map<std::string, AttributeEntry> entries;
    bool found = false;
    for (const auto& socket : sockets_for(path)) {
        const auto answer =
            control_call({.socket_path = socket, .timeout = sockets_.read_timeout},
                         "attribute_list", {{"path", path}, {"recursive", depth == Depth::all}});
        if (!answer) {
            if (!nobody_there(answer.error()) || nobody_there(failure)) failure = answer.error();
            continue;
        }
        const auto below = answer->find("entries");
        if (below == answer->end() || !below->is_array()) return std::unexpected(nonsense());
        listing.entry = parse_entry(*answer);
        found = true;
        for (const json& one : *below) {
            if (!one.is_object()) return std::unexpected(nonsense());
            AttributeEntry entry = parse_entry(one);
            entries.emplace(entry.path, entry);
        }
    }
    if (!found) return std::unexpected(std::move(failure));
    for (auto& [name, entry] : entries) listing.entries.push_back(std::move(entry));
    return listing;
}

int to_errno(const ControlCallFailure& failure) noexcept {
    switch (failure.kind) {
        case Kind::absent:
        case Kind::away:
        case Kind::unreachable:
            return ENOENT;
        case Kind::timed_out:
            return ETIMEDOUT;
        case Kind::nonsense:
            return EPROTO;
        case Kind::refused:
            break;
    }
    if (failure.error_number != 0) return failure.error_number;
    // A daemon from before there were attributes.
    return failure.code == ControlError::unknown_command ? ENOENT : EIO;
}

}  // namespace rnbd
