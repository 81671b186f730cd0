#include "daemon/command_line_complaint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rnbd {

namespace {

// The innermost command that was found before the error.
const CLI::App& found(const CLI::App& app) {
    const auto commands = app.get_subcommands();
    return commands.empty() ? app : found(*commands.front());
}

std::string words_of(const CLI::App& app) {
    const CLI::App* const parent = app.get_parent();
    return parent == nullptr ? app.get_name() : words_of(*parent) + " " + app.get_name();
}

}  // namespace

std::string see_help(const CLI::App& command) {
    if (command.get_parent() == nullptr) return "(see --help)";
    return fmt::format("(see {} --help)", words_of(command));
}

std::string unknown_option(const std::string& word, const CLI::App& command) {
    return fmt::format("unknown option \"{}\" {}", word, see_help(command));
}

std::string command_line_complaint(const CLI::App& app, const CLI::ParseError& error) {
    const std::string help = see_help(found(app));
    // A mistyped option may be why a word is missing, so it comes first.
    const std::vector<std::string> unknown = app.remaining(true);
    const auto option = std::ranges::find_if(
        unknown, [](const std::string& word) { return word.starts_with('-'); });
    if (option != unknown.end()) return unknown_option(*option, found(app));
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
        return fmt::format("unexpected word \"{}\" {}", unknown.front(), help);
    return fmt::format("{} {}", error.what(), help);
}

CLI::Validator not_empty(std::string kind) {
    return {[kind = std::move(kind)](const std::string& text) {
                return text.empty() ? fmt::format("found nothing, expected {}", kind)
                                    : std::string();
            },
            ""};
}

std::vector<std::string> words_to_parse(std::vector<std::string> words) {
    std::vector<std::string> result;
    bool options = true;
    for (std::string& word : words) {
        options = options && word != "--";
        if (options && word.starts_with("--") && word.find('=') == word.size() - 1) {
            word.pop_back();
            result.push_back(std::move(word));
            result.emplace_back();
        } else {
            result.push_back(std::move(word));
        }
    }
    std::ranges::reverse(result);
    return result;
}

}  // namespace rnbd
