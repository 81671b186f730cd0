#include "daemon/command_line_complaint.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace rnbd {

std::string command_line_complaint(const CLI::App& app, const CLI::ParseError& error) {
    // A mistyped option may be why a word is missing, so it comes first.
    const std::vector<std::string> unknown = app.remaining(true);
    const auto option = std::ranges::find_if(
        unknown, [](const std::string& word) { return word.starts_with('-'); });
    if (option != unknown.end()) return fmt::format("unknown option \"{}\" (see --help)", *option);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
        return fmt::format("unexpected word \"{}\" (see --help)", unknown.front());
    return fmt::format("{} (see --help)", error.what());
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
