#include "daemon/config/yaml_complaint.h"

#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <utility>

namespace rnbd {
namespace {

namespace said = YAML::ErrorMsg;

constexpr const char* other_indent =
    "found text that goes on with nothing above it, expected the keys of one mapping, or the \"-\" "
    "of one list, below each other, and text that begins with a bracket in quotes, as "
    "\"[::1]:1235\"";
constexpr const char* open_quotes =
    "found quotes that are not closed, expected the same quote at the end of the text";

const std::pair<std::string_view, const char*> complaints[] = {
    {said::END_OF_SEQ_FLOW, "found a list in brackets that is not closed, expected \",\" or \"]\""},
    {said::END_OF_MAP_FLOW,
     "found a mapping in braces that is not closed, expected \",\" or \"}\""},
    {said::FLOW_END, "found a bracket or brace that closes nothing, expected none"},
    {said::DOC_IN_SCALAR, open_quotes},
    {said::EOF_IN_SCALAR, open_quotes},
    {said::MAP_VALUE,
     "found \": \" where no key ends, expected one \"key: value\" a line, in the column of the "
     "keys beside it, and text with \": \" in quotes; or the line above has no \":\""},
    {said::END_OF_MAP, other_indent},
    {said::END_OF_SEQ, other_indent},
    {said::BLOCK_ENTRY,
     "found \"- \" where no list can be, expected each entry of a list on a line of its own"},
    {said::ALIAS_NOT_FOUND,
     "found \"*\", which is no text in YAML, expected text, in quotes if it begins with \"*\""},
    {said::UNKNOWN_TOKEN,
     "found a character that no text begins with, expected the text in quotes"},
};

}  // namespace

std::string config_yaml_complaint(const std::string& message) {
    const auto known =
        std::ranges::find(complaints, message, &std::pair<std::string_view, const char*>::first);
    if (known == std::end(complaints)) return "found no valid YAML: " + message;
    return fmt::format("{} (no valid YAML: {})", known->second, message);
}

bool config_quotes_are_open(const std::string& message) noexcept {
    return message == said::DOC_IN_SCALAR || message == said::EOF_IN_SCALAR;
}

ConfigTextPlace config_place_inside(std::string_view text, ConfigTextPlace place) noexcept {
    const std::size_t end = text.find_last_not_of(" \t\r\n") + 1;  // 0 if there is nothing
    const std::string_view written = text.substr(0, end);
    const auto last = static_cast<std::size_t>(std::ranges::count(written, '\n'));
    if (place.line <= last) return place;
    return {last, end - (written.rfind('\n') + 1)};
}

}  // namespace rnbd
