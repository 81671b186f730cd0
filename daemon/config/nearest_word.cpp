#include "daemon/config/nearest_word.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace rnbd {
namespace {

// Edits between two words: insert, delete, replace, swap of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> two_ago(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], two_ago[j - 2] + 1);
        }
        std::swap(two_ago, previous);
        std::swap(previous, row);
    }
    return previous[b.size()];
}

std::string lower_case(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
    constexpr std::size_t word_bytes_max = 64;
    if (word.empty() || word.size() > word_bytes_max) return "";
    std::string nearest;
    std::size_t least = std::max<std::size_t>(2, word.size() / 2) + 1;
    for (const std::string& candidate : words) {
        const std::size_t distance = edit_distance(lower_case(word), lower_case(candidate));
        // Replacing every letter is no resemblance.
        if (distance < least && distance < std::max(word.size(), candidate.size())) {
            least = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

}  // namespace rnbd
