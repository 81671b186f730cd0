#include "rnbdctl/abbreviations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/command_line_complaint.h"
#include "daemon/config/nearest_word.h"

namespace rnbd {
namespace {

std::vector<std::string> words_of(const CLI::App& app) {
    std::vector<std::string> words;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        words.push_back(command->get_name());
    return words;
}

std::vector<std::string> beginning_with(const std::vector<std::string>& words,
                                        const std::string& beginning) {
    std::vector<std::string> found;
    for (const std::string& word : words) {
        if (word == beginning) return {word};
        if (word.starts_with(beginning)) found.push_back(word);
    }
    return found;
}

// Whether this word of the command line is an option whose value is the next one.
bool takes_next(const CLI::App& root, const CLI::App& app, const std::string& word) {
    if (!word.starts_with("--") || word.find('=') != std::string::npos) return false;
    for (const CLI::App* one : {&app, &root}) {
        const CLI::Option* const option = one->get_option_no_throw(word);
        if (option != nullptr) return option->get_items_expected_max() > 0;
    }
    return false;
}

// The value of an option that there is not looks like a command, and says less of the mistake.
bool is_unknown_option(const CLI::App& root, const CLI::App& app, const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    return name.starts_with('-') && app.get_option_no_throw(name) == nullptr &&
           root.get_option_no_throw(name) == nullptr;
}

// The commands in which this word is the second one: "exports resize".
std::vector<std::string> commands_with(const CLI::App& app, const std::string& second) {
    std::vector<std::string> found;
    for (const std::string& first : words_of(app)) {
        const auto seconds = words_of(*app.get_subcommand(first));
        if (std::ranges::find(seconds, second) != seconds.end())
            found.push_back(first + " " + second);
    }
    return found;
}

// or_else: what else would do, in words.
std::string no_command(const CLI::App& app, const std::string& word, const char* or_else) {
    const std::vector<std::string> words = words_of(app);
    std::vector<std::string> meant = commands_with(app, word);
    if (meant.empty()) {
        if (std::string nearest = nearest_word(word, words); !nearest.empty())
            meant.push_back(std::move(nearest));
    }
    const std::string text = fmt::format("no command \"{}\": ", word);
    const std::string help = see_help(app);
    if (!meant.empty())
        return text + fmt::format("did you mean {}? {}", fmt::join(meant, " or "), help);
    return text + fmt::format("expected {}{} {}", fmt::join(words, ", "), or_else, help);
}

bool more_words(const CLI::App& root, const CLI::App& app, const std::vector<std::string>& words,
                std::size_t from) {
    for (std::size_t i = from; i < words.size(); ++i) {
        if (!words[i].starts_with('-')) return true;
        if (takes_next(root, app, words[i])) ++i;
    }
    return false;
}

// "help exports resize", also behind options: "--help" in the place of "help". "help help" is help.
void ask_for_help(const CLI::App& root, std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == "help") {
            const auto first = words.begin() + static_cast<std::ptrdiff_t>(i);
            words.erase(first, std::find_if(first, words.end(),
                                            [](const auto& word) { return word != "help"; }));
            words.emplace_back("--help");
            return;
        }
        if (words[i] == "--" || !words[i].starts_with('-')) return;
        if (takes_next(root, root, words[i])) ++i;
    }
}

}  // namespace

std::expected<std::vector<std::string>, std::string> write_out(CommandTree& tree,
                                                               std::vector<std::string> words) {
    CLI::App* at = &tree.app();
    ask_for_help(tree.app(), words);
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "--") break;
        if (word.starts_with('-')) {
            if (takes_next(tree.app(), *at, word)) ++i;
            continue;
        }
        const auto known = words_of(*at);
        if (known.empty()) break;
        const auto found = beginning_with(known, word);
        const bool takes_value = at->get_option_no_throw("session") != nullptr ||
                                 at->get_option_no_throw("export") != nullptr;
        // A name may be the last word; with others behind it, it is a command.
        const bool is_name = takes_value && !more_words(tree.app(), *at, words, i + 1);
        if (is_name && (found.empty() || found.front() != word)) break;
        if (found.empty()) {
            if (i > 0 && is_unknown_option(tree.app(), *at, words[i - 1])) {
                return std::unexpected(unknown_option(words[i - 1], *at));
            }
            const char* const or_else = takes_value ? ", or one name with nothing behind it" : "";
            return std::unexpected(no_command(*at, word, or_else));
        }
        if (found.size() > 1) {
            return std::unexpected(
                fmt::format("\"{}\" may be {} {}", word, fmt::join(found, ", "), see_help(*at)));
        }
        words[i] = found.front();
        at = at->get_subcommand(words[i]);
    }
    return words;
}

}  // namespace rnbd
