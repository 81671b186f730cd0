// Finds the word that a user meant who wrote an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rnbd {

// The word nearest to `word` by number of edits (swapping neighbours is one edit), or empty if none
// is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

}  // namespace rnbd
