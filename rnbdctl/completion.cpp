#include "rnbdctl/completion.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/control/client.h"
#include "rnbdctl/command_tree.h"
#include "rnbdctl/member_text.h"

namespace rnbd {
namespace {

using namespace members;

constexpr const char* bash_script = R"(# Completion of rnbdctl for bash.
_rnbdctl() {
    local cur cword words
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n : cur words cword
    else
        words=("${COMP_WORDS[@]}")
        cword=$COMP_CWORD
        cur=${words[cword]}
    fi
    words=("${words[@]//\\/}")
    # Names come from peers: what is inserted is one word of the shell, whatever it is made of. What
    # was inserted so before is typed text now.
    local found one
    mapfile -t found < <("${words[0]}" complete "${words[@]:1:cword}" 2>/dev/null)
    COMPREPLY=()
    for one in "${found[@]}"; do
        printf -v one %q "$one"
        COMPREPLY+=("$one")
    done
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "$cur"
    fi
}
complete -o default -F _rnbdctl rnbdctl
)";

constexpr const char* zsh_script = R"(#compdef rnbdctl
# Completion of rnbdctl for zsh.
_rnbdctl() {
    local -a found
    found=("${(@f)$("${words[1]}" complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} )); then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _rnbdctl ]]; then
    _rnbdctl "$@"
else
    compdef _rnbdctl rnbdctl
fi
)";

// Where the cursor is.
struct Place {
    CLI::App* app = nullptr;
    std::vector<std::string> values;            // of the command before the cursor
    const CLI::Option* before_value = nullptr;  // the option whose value is being written
    std::string socket;
    bool server = false;
    bool client = false;
};

const CLI::Option* option_of(const CLI::App& root, const CLI::App& app, const std::string& word) {
    for (const CLI::App* one : {&app, &root}) {
        if (const CLI::Option* const option = one->get_option_no_throw(word)) return option;
    }
    return nullptr;
}

Place place_of(CommandTree& tree, const std::vector<std::string>& words) {
    Place place;
    place.app = &tree.app();
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const std::string& word = words[i];
        if (word.starts_with("--")) {
            place.server = place.server || word == "--server";
            place.client = place.client || word == "--client";
            const CLI::Option* const option = option_of(tree.app(), *place.app, word);
            if (option == nullptr || option->get_items_expected_max() == 0) continue;
            if (i + 2 == words.size()) place.before_value = option;
            if (word == "--socket" && i + 2 < words.size()) place.socket = words[i + 1];
            ++i;
        } else if (CLI::App* const next = command_called(*place.app, word)) {
            place.app = next;
            place.values.clear();
        } else if (!word.starts_with('-')) {
            place.values.push_back(word);
        }
    }
    return place;
}

json status_of(CommandTree& tree, const Place& place, const DefaultSockets& sockets) {
    const auto* command = tree.command_of(place.app);
    const bool server =
        place.server || (!place.client && command != nullptr && command->daemon == Daemon::server);
    const std::string socket = !place.socket.empty() ? place.socket
                               : server              ? sockets.server
                                                     : sockets.client;
    const auto answer = control_call({.socket_path = socket, .timeout = std::chrono::seconds(1)},
                                     "status", json::object());
    return answer ? *answer : json();
}

std::vector<std::string> names_in(const json& document, const char* list, const char* key) {
    std::vector<std::string> names;
    for (const json& item : elements(document, list)) names.push_back(word(item, key));
    return names;
}

std::vector<std::string> values_of(CommandTree& tree, const Place& place, const std::string& kind,
                                   const DefaultSockets& sockets) {
    if (const auto fixed = fixed_words(kind); !fixed.empty()) return fixed;
    if (kind == "from") return {"from"};
    const bool of_session = kind == "SESSION" || kind == "SERVER";
    if (!of_session && kind != "DEVICE" && kind != "EXPORT" && kind != "PATH") return {};
    const json status = status_of(tree, place, sockets);
    if (of_session) return names_in(status, "sessions", "name");
    if (kind == "DEVICE") return names_in(status, "devices", "name");
    if (kind == "EXPORT") return names_in(status, "exports", "name");
    for (const json& session : elements(status, "sessions")) {
        if (!place.values.empty() && word(session, "name") == place.values.front())
            return names_in(session, "paths", "label");
    }
    return {};
}

std::vector<std::string> candidates(CommandTree& tree, const Place& place, const std::string& start,
                                    const DefaultSockets& sockets) {
    if (place.before_value != nullptr) {
        return values_of(tree, place, place.before_value->get_type_name(), sockets);
    }
    std::vector<std::string> found;
    if (start.starts_with('-')) {
        for (const CLI::App* app :
             {static_cast<const CLI::App*>(place.app), static_cast<const CLI::App*>(&tree.app())}) {
            for (const CLI::Option* option : app->get_options())
                for (const std::string& name : option->get_lnames()) found.push_back("--" + name);
        }
        return found;
    }
    if (place.values.empty()) {
        for (const CLI::App* app : place.app->get_subcommands([](const CLI::App*) { return true; }))
            found.push_back(app->get_name());
    }
    std::size_t position = 0;
    for (const CLI::Option* option : place.app->get_options()) {
        if (!option->get_positional() || position++ != place.values.size()) continue;
        for (std::string& name : values_of(tree, place, option->get_type_name(), sockets))
            found.push_back(std::move(name));
    }
    return found;
}

}  // namespace

std::string completion_script(const std::string& shell) {
    if (shell == "bash") return bash_script;
    if (shell == "zsh") return zsh_script;
    return "";
}

std::vector<std::string> complete(const std::vector<std::string>& words,
                                  const DefaultSockets& sockets) {
    CommandTree tree;
    const std::string start = words.empty() ? "" : words.back();
    std::vector<std::string> found = candidates(tree, place_of(tree, words), start, sockets);
    std::erase_if(found, [&](const std::string& word) { return !word.starts_with(start); });
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

}  // namespace rnbd
