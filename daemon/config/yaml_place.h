// Finds out what the lines of a text are inside of (brackets, quotes, a block). It is used after
// the parser has failed, because the parser has one name for many errors, and reports some only at
// the end of the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace rnbd {

struct ConfigPlace {
    std::size_t line = 0;  // both from 1
    std::size_t column = 0;
};

// A tab in the indentation of this line (from 0), or of the line before it. Tabs that YAML accepts
// are ignored: in a list or mapping in brackets, in the text of a block (| or >) or of quotes, and
// before a comment.
std::optional<ConfigPlace> config_tab_near(std::string_view text, std::size_t line);

// The opening quote that is not closed up to the end of the text.
std::optional<ConfigPlace> config_open_quote(std::string_view text);

}  // namespace rnbd
