#include "rnbdctl/saved_piece.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "daemon/config/types.h"
#include "daemon/config/yaml.h"
#include "rnbdctl/member_text.h"

namespace rnbd {
namespace {

using nlohmann::json;

constexpr const char* head =
    "# What rnbdctl --save keeps: one JSON object, which is YAML, too. rnbdctl rewrites it.\n";

// A member that is text; empty: there is none.
std::string text_of(const json& element, const char* key) {
    const auto found = element.find(key);
    return found != element.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_called(const json& element, const json& name) {
    return element.is_object() && element.value("name", json()) == name;
}

std::set<std::string> labels_of(const json& session) {
    std::set<std::string> labels;
    for (const json& path : members::elements(session, "paths")) labels.insert(label_of_path(path));
    return labels;
}

void drop_path(json& amendment, const std::string& label) {
    for (const char* const list : {"add_paths", "remove_paths"}) {
        const auto found = amendment.find(list);
        if (found == amendment.end() || !found->is_array()) continue;
        std::erase_if(found->get_ref<json::array_t&>(),
                      [&](const json& one) { return label_of_path(one) == label; });
        if (found->empty()) amendment.erase(found);
    }
}

// Null: this file has none of this name.
json* find(json& config, const std::string& list, const json& name) {
    const auto all = config.find(list);
    if (all == config.end() || !all->is_array()) return nullptr;
    const auto found =
        std::ranges::find_if(*all, [&](const json& one) { return is_called(one, name); });
    return found == all->end() ? nullptr : &*found;
}

// What is amended, if it can be changed where it stands: in this very file.
json* find_amended(json& config, const json& amendment, const Elsewhere& elsewhere) {
    const std::string kind = kind_amended(amendment);
    const std::string name = text_of(amendment, kind.c_str());
    json* const object = name.empty() ? nullptr : find(config, kind + "s", name);
    return object == nullptr || elsewhere.amends(kind, name) ? nullptr : object;
}

// Where an export has its size: beside its path or within its storage, and that within a delay.
json& sized(json& exported) {
    json* at = &exported;
    for (const char* const inner : {"storage", "of"}) {
        const auto found = at->find(inner);
        if (found == at->end() || !found->is_object()) break;
        at = &*found;
    }
    return *at;
}

// In the order of the daemon: first those that go. One that is there already takes the priority.
void change_paths(json& session, const json& amendment) {
    const auto paths = session.find("paths");
    if (paths == session.end() || !paths->is_array()) return;
    const auto called = [](const json& path) {
        return [label = label_of_path(path)](const json& one) {
            return one.is_object() && label_of_path(one) == label;
        };
    };
    for (const json& path : members::elements(amendment, "remove_paths"))
        std::erase_if(paths->get_ref<json::array_t&>(), called(path));
    for (const json& path : members::elements(amendment, "add_paths")) {
        const auto there = std::ranges::find_if(*paths, called(path));
        if (there == paths->end())
            paths->push_back(path);
        else if (path.contains("priority"))
            (*there)["priority"] = path["priority"];
        else
            there->erase("priority");
    }
}

// An object of this file is said to be another where it stands: to amend it, too, would leave two
// places that contradict each other.
void change(json& object, const json& amendment) {
    for (const auto& [key, value] : amendment.items()) {
        if (key == "add_paths" || key == "remove_paths" || key == kind_amended(amendment)) continue;
        (key == "size" ? sized(object) : object)[key] = value;
    }
    change_paths(object, amendment);
}

// Those of objects of this file: by hand, or by a former rnbdctl.
void settle_amendments(json& config, const Elsewhere& elsewhere) {
    const auto all = config.find("amend");
    if (all == config.end() || !all->is_array()) return;
    json others = json::array();
    for (const json& one : *all) {
        json* const object = one.is_object() ? find_amended(config, one, elsewhere) : nullptr;
        if (object != nullptr)
            change(*object, one);
        else
            others.push_back(one);
    }
    if (others.empty())
        config.erase(all);
    else
        *all = std::move(others);
}

void amend(json& config, const json& wanted, const Elsewhere& elsewhere) {
    if (json* const object = find_amended(config, wanted, elsewhere))
        return change(*object, wanted);
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
            drop_path(*found, label_of_path(path));
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
void drop_unused(json& config, const std::string& session, const Elsewhere& elsewhere) {
    for (const json& device : members::elements(config, "devices")) {
        if (device.is_object() && text_of(device, "session") == session) return;
    }
    if (find(config, "sessions", session) == nullptr || !elsewhere.may_leave(session)) return;
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

// Whether an element of the list has this name under this key; also if that cannot be known.
bool names(const ConfigSource& file, std::string_view list, std::string_view key,
           const std::string& name) {
    std::size_t values = 0;
    const auto root = parse_config_yaml(file.text, 0, values);
    if (!root) return true;
    const ConfigNode* const elements = value_of(*root, list);
    return elements != nullptr && elements->kind == ConfigNode::Kind::list &&
           std::ranges::any_of(elements->children, [&](const ConfigNode& one) {
               const ConfigNode* const named = value_of(one, key);
               return named != nullptr && named->text == name;
           });
}

}  // namespace

std::string label_of_path(const json& path) {
    const std::string written = path.is_string() ? path.get<std::string>() : "";
    const bool rdma = path.is_object() ? path.contains("rdma") : written.starts_with("rdma:");
    std::string text = written;
    if (path.is_object()) {
        const std::string source = text_of(path, "source");
        text = (source.empty() ? "" : source + "@") + text_of(path, rdma ? "rdma" : "tcp");
    } else if (rdma || text.starts_with("tcp:")) {
        text.erase(0, text.find(':') + 1);
    }
    if (const auto parsed = parse_path_addresses(text))
        text = (parsed->source.empty() ? "" : parsed->source + "@") + parsed->destination;
    return (rdma ? "rdma:" : "") + text;
}

const char* kind_amended(const json& amendment) {
    return amendment.contains("session") ? "session" : "export";
}

std::expected<std::string, std::string> with_piece(const std::string& text, const SavedPiece& piece,
                                                   const Elsewhere& elsewhere) {
    std::string_view left = text;
    while (left.starts_with('#')) {
        const auto end = left.find('\n');
        left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    }
    json config = left.empty() ? json::object() : json::parse(left, nullptr, false);
    if (!config.is_object())
        return std::unexpected(
            "it is not as rnbdctl writes it; move what it says into another file");
    settle_amendments(config, elsewhere);
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
            // With another device on it: what was said of it since it was made stays.
            const json* const there = list == "sessions" ? find(config, list, name) : nullptr;
            if (there != nullptr && labels_of(*there) == labels_of(element)) continue;
            if (list == "sessions" && elsewhere.has_session(text_of(element, "name"))) continue;
            drop(list, name);
            // Perhaps of a former one of this name, which is gone.
            drop_amendment(config, list, name);
            config[list].push_back(element);
        }
    }
    for (const std::string& session : left_sessions) drop_unused(config, session, elsewhere);
    if (!piece.amend.is_null()) amend(config, piece.amend, elsewhere);
    return head + config.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

bool amends(const ConfigSource& file, const std::string& kind, const std::string& name) {
    return names(file, "amend", kind, name);
}

bool has_session(const ConfigSource& file, const std::string& session) {
    return names(file, "sessions", "name", session);
}

bool names_session(const ConfigSource& file, const std::string& session) {
    return names(file, "devices", "session", session) || amends(file, "session", session);
}

}  // namespace rnbd
