// Tabs where YAML takes none, looked for when a parser has stumbled: it calls them many things.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace rnbd {

struct ConfigTab {
    std::size_t line = 0;  // both from 1
    std::size_t column = 0;
};

// A tab in the indent of this line (from 0), or of the one before it. Not one that YAML takes: in a
// list or mapping in brackets, in the text of a block (| or >) or of quotes, before a comment.
std::optional<ConfigTab> config_tab_near(std::string_view text, std::size_t line);

}  // namespace rnbd
