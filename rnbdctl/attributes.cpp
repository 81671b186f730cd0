// rnbdctl get, set and tree: the attributes of kernel RNBD's sysfs tree.

#include "rnbdctl/attributes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "daemon/attributes/client.h"
#include "rnbdctl/command_tree.h"
#include "rnbdctl/member_text.h"
#include "rnbdctl/units.h"

namespace rnbd {
namespace {

using namespace members;

// Who is asked follows from the path, unless the command line has said it.
void choose_daemon(Request& request, const std::string& path) {
    if (request.sockets.size() != 2) return;
    const AttributeOwner owner = attribute_owner(path);
    if (owner == AttributeOwner::both) return;
    request.sockets.erase(owner == AttributeOwner::server ? request.sockets.begin() + 1
                                                          : request.sockets.begin());
    request.absent = Request::Absent::is_an_error;
}

const char* permissions(const json& entry) {
    const json& kind = member(entry, "kind");
    if (kind == "link") return "lrwxrwxrwx";
    if (kind == "directory") return "drwxr-xr-x";
    return member(entry, "mode") == "0644" ? "-rw-r--r--" : "-r--r--r--";
}

}  // namespace

void CommandTree::add_attributes() {
    const auto add_one = [this](const char* word, const char* help, const char* command,
                                Request::View view) {
        auto* one = add(app_, word, help, Daemon::both, [this, command, view](Request& request) {
            request.command = command;
            request.view = view;
            request.arguments = {{"path", options_.attribute}};
            if (request.command == "attribute_set") request.arguments["value"] = options_.value;
            if (request.command == "attribute_list") request.arguments["recursive"] = true;
            request.absent_hint = "rnbdctl tree shows what there is";
            choose_daemon(request, options_.attribute);
            return std::optional<std::string>();
        });
        option(*one, "path", options_.attribute, "PATH",
               "Its path in kernel RNBD's sysfs, with or without /sys in front");
        return one;
    };
    add_one("get", "Read an attribute of kernel RNBD's sysfs tree", "attribute_get", get_view)
        ->get_option("path")
        ->required();
    auto* set =
        add_one("set", "Write an attribute of kernel RNBD's sysfs tree", "attribute_set", set_view);
    set->get_option("path")->required();
    // It may be empty, as what is written to a file.
    set->add_option("value", options_.value, "The text to write")->type_name("VALUE")->required();
    add_one("tree", "Attributes of kernel RNBD's sysfs tree, one per line", "attribute_list",
            tree_view);
}

// As cat(1) would show it, but safe for a terminal.
std::string get_view(const json& document) {
    const json& value = member(document, "value");
    if (!value.is_string()) return "-\n";
    std::string text;
    std::string_view left = value.get_ref<const std::string&>();
    while (!left.empty()) {
        const auto end = left.find('\n');
        text += terminal_text(left.substr(0, end));
        if (end == std::string_view::npos) break;
        text += "\n";
        left.remove_prefix(end + 1);
    }
    return text;
}

std::string set_view(const json&) { return ""; }

// "-rw-r--r-- class/rtrs-client/host-a/add_path", a line each.
std::string tree_view(const json& document) {
    std::string text;
    const auto add = [&](const json& entry) {
        text += fmt::format("{} {}", permissions(entry), word(entry, "path"));
        if (member(entry, "kind") == "link") text += " -> " + word(entry, "target");
        text += "\n";
    };
    if (elements(document, "entries").empty()) add(document);
    for (const json& entry : elements(document, "entries")) add(entry);
    return text;
}

}  // namespace rnbd
