// Words of a command line before they are parsed: short forms are written out, typos are explained.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "rnbdctl/command_tree.h"

namespace rnbd {

// Each word that stands for a command is replaced by the whole word, if it is the beginning
// of just one. Where a command takes a value as well as further commands (`paths SESSION`), a
// beginning counts as a command only when more words follow.
// ERRORS: a word that is no command, with the nearest one; one that begins several.
std::expected<std::vector<std::string>, std::string> write_out(CommandTree& tree,
                                                               std::vector<std::string> words);

}  // namespace rnbd
