// What the lines of a text are in (brackets, quotes, a block), looked for when a parser has
// stumbled: it calls many things by one name, and tells of some only where the text ends.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace rnbd {

struct ConfigPlace {
    std::size_t line = 0;  // both from 1
    std::size_t column = 0;
};

// A tab in the indent of this line (from 0), or of the one before it. Not one that YAML takes: in a
// list or mapping in brackets, in the text of a block (| or >) or of quotes, before a comment.
std::optional<ConfigPlace> config_tab_near(std::string_view text, std::size_t line);

// The quote that opens what nothing closes up to the end of the text.
std::optional<ConfigPlace> config_open_quote(std::string_view text);

}  // namespace rnbd
