// What yaml-cpp says of text that is no YAML, in words for who wrote it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rnbd {

// What was found and expected, and what the parser said. message: of a YAML::Exception.
std::string config_yaml_complaint(const std::string& message);

struct ConfigTextPlace {
    std::size_t line = 0;  // both from 0
    std::size_t column = 0;
};

// Whether the parser says that quotes are open where the text ends.
bool config_quotes_are_open(const std::string& message) noexcept;

// The place, or the end of the last line that is not empty if the text has none such: what is
// missing at the end of a file is found behind it.
ConfigTextPlace config_place_inside(std::string_view text, ConfigTextPlace place) noexcept;

}  // namespace rnbd
