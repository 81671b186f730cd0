// Prepares the words of a command line for parsing: writes out short forms, and explains typos.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "rnbdctl/command_tree.h"

namespace rnbd {

// Replaces each abbreviated command by the whole word, if the abbreviation is the beginning of
// exactly one command. Where a command takes a value as well as further commands (`paths SESSION`),
// an abbreviation counts as a command only if more words follow.
// ERRORS: a word that is not a command, with the nearest command; a word that begins several.
std::expected<std::vector<std::string>, std::string> write_out(CommandTree& tree,
                                                               std::vector<std::string> words);

}  // namespace rnbd
