#include "rnbdctl/saved_piece.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/config/yaml.h"
#include "rnbdctl/members.h"

namespace rnbd {
namespace {

using nlohmann::json;

constexpr const char* head =
    "# What rnbdctl --save keeps: one JSON object, which is YAML, too. rnbdctl writes it anew.\n";

// "rdma:SOURCE@HOST:PORT": what remove_paths says for an element of add_paths.
std::string label_of(const json& path) {
    const std::string rdma = members::word(path, "rdma");
    return rdma.empty() ? members::word(path, "tcp") : "rdma:" + rdma;
}

void drop_path(json& amendment, const std::string& label) {
    for (const char* const list : {"add_paths", "remove_paths"}) {
        const auto found = amendment.find(list);
        if (found == amendment.end() || !found->is_array()) continue;
        std::erase_if(found->get_ref<json::array_t&>(), [&](const json& one) {
            return one.is_string() ? one == label : one.is_object() && label_of(one) == label;
        });
        if (found->empty()) amendment.erase(found);
    }
}

void amend(json& config, const json& wanted) {
    const char* const kind = kind_amended(wanted);
    json& all = config["amend"];
    if (!all.is_array()) all = json::array();
    auto found = std::ranges::find_if(all, [&](const json& one) {
        return one.is_object() && one.value(kind, json()) == wanted[kind];
    });
    if (found == all.end()) found = all.insert(all.end(), json{{kind, wanted[kind]}});
    for (const auto& [key, value] : wanted.items()) {
        if (key != "add_paths" && key != "remove_paths") {
            (*found)[key] = value;
            continue;
        }
        for (const json& path : value) {
            drop_path(*found, path.is_string() ? path.get<std::string>() : label_of(path));
            (*found)[key].push_back(path);
        }
    }
}

void drop_amendment(json& config, const std::string& list, const json& name) {
    const auto all = config.find("amend");
    if (all == config.end() || !all->is_array() || (list != "sessions" && list != "exports"))
        return;
    const std::string kind = list.substr(0, list.size() - 1);
    std::erase_if(all->get_ref<json::array_t&>(), [&](const json& one) {
        return one.is_object() && one.value(kind, json()) == name;
    });
    if (all->empty()) config.erase(all);
}

// A member that is text; empty: there is none.
std::string text_of(const json& element, const char* key) {
    const auto found = element.find(key);
    return found != element.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_called(const json& element, const json& name) {
    return element.is_object() && element.value("name", json()) == name;
}

// Those of this name, from a list of the configuration.
json::array_t take_out(json& config, const std::string& list, const json& name) {
    const auto found = config.find(list);
    if (found == config.end() || !found->is_array()) return {};
    auto& elements = found->get_ref<json::array_t&>();
    const auto taken = std::ranges::stable_partition(
        elements, [&](const json& one) { return !is_called(one, name); });
    json::array_t out(std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end()));
    elements.erase(taken.begin(), taken.end());
    if (elements.empty()) config.erase(found);
    return out;
}

// A session that devices have left: without one on it, nobody could take it out any more, and the
// daemon would dial it for ever.
void drop_unused(json& config, const std::string& session, const MayLeave& may_leave) {
    for (const json& device : members::elements(config, "devices")) {
        if (device.is_object() && text_of(device, "session") == session) return;
    }
    const bool here = std::ranges::any_of(members::elements(config, "sessions"),
                                          [&](const json& one) { return is_called(one, session); });
    if (!here || !may_leave(session)) return;
    take_out(config, "sessions", session);
    drop_amendment(config, "sessions", session);
}

// Null: none.
const ConfigNode* value_of(const ConfigNode& map, std::string_view key) {
    if (map.kind != ConfigNode::Kind::map) return nullptr;
    for (std::size_t i = 0; i + 1 < map.children.size(); i += 2) {
        if (map.children[i].text == key) return &map.children[i + 1];
    }
    return nullptr;
}

}  // namespace

const char* kind_amended(const json& amendment) {
    return amendment.contains("session") ? "session" : "export";
}

std::expected<std::string, std::string> with_piece(const std::string& text, const SavedPiece& piece,
                                                   const MayLeave& may_leave) {
    std::string_view left = text;
    while (left.starts_with('#')) {
        const auto end = left.find('\n');
        left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    }
    json config = left.empty() ? json::object() : json::parse(left, nullptr, false);
    if (!config.is_object())
        return std::unexpected(
            "it is not as rnbdctl writes it; move what it says into another file");
    std::set<std::string> left_sessions;
    const auto drop = [&](const std::string& list, const json& name) {
        for (const json& one : take_out(config, list, name)) {
            if (list == "devices") left_sessions.insert(text_of(one, "session"));
        }
    };
    for (const auto& [list, names] : piece.take.items()) {
        for (const json& name : names) {
            drop(list, name);
            // Also of what another file has: when that goes, too, nothing may be left of it here.
            drop_amendment(config, list, name);
        }
    }
    for (const auto& [list, elements] : piece.put.items()) {
        for (const json& element : elements) {
            const json name = element.value("name", json());
            drop(list, name);
            // Perhaps of a former one of this name, which is gone.
            drop_amendment(config, list, name);
            config[list].push_back(element);
        }
    }
    for (const std::string& session : left_sessions) drop_unused(config, session, may_leave);
    if (!piece.amend.is_null()) amend(config, piece.amend);
    return head + config.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

bool names_session(const ConfigSource& file, const std::string& session) {
    std::size_t values = 0;
    const auto root = parse_config_yaml(file.text, 0, values);
    if (!root) return true;
    for (const char* const list : {"devices", "amend"}) {
        const ConfigNode* const elements = value_of(*root, list);
        if (elements == nullptr || elements->kind != ConfigNode::Kind::list) continue;
        for (const ConfigNode& one : elements->children) {
            const ConfigNode* const named = value_of(one, "session");
            if (named != nullptr && named->text == session) return true;
        }
    }
    return false;
}

}  // namespace rnbd
