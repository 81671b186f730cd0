// Translates what yaml-cpp says about text that is not YAML into words for the author of the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rnbd {

// What was found, what was expected, and what the parser said. message: that of a YAML::Exception.
std::string config_yaml_complaint(const std::string& message);

struct ConfigTextPlace {
    std::size_t line = 0;  // both from 0
    std::size_t column = 0;
};

// Whether the parser says that quotes are still open at the end of the text.
bool config_quotes_are_open(const std::string& message) noexcept;

// The place, if it is inside the text, else the end of the last line that is not empty: the parser
// reports what is missing at the end of a file at a place after it.
ConfigTextPlace config_place_inside(std::string_view text, ConfigTextPlace place) noexcept;

}  // namespace rnbd
