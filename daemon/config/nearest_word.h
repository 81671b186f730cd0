// Which word somebody meant who wrote another one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rnbd {

// The word nearest to `word` by edits (a swap of neighbours is one), or empty if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& words);

}  // namespace rnbd
