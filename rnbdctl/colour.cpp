#include "rnbdctl/colour.h"

#include <array>
#include <string_view>

namespace rnbd {
namespace {

Colour in_use = Colour::off;

constexpr std::array<std::string_view, 5> good{"ready", "open", "connected", "running", "applied"};
constexpr std::array<std::string_view, 5> bad{"closed", "disconnected", "failed", "refused",
                                              "superseded"};

}  // namespace

void use_colour(Colour colour) noexcept { in_use = colour; }
bool colour_is_on() noexcept { return in_use == Colour::on; }

std::string coloured_state(const std::string& cell) {
    if (in_use == Colour::off || cell.empty() || cell == "-") return cell;
    const std::string_view word = std::string_view(cell).substr(0, cell.find(' '));
    const auto among = [&](const auto& words) {
        for (const std::string_view one : words)
            if (one == word) return true;
        return false;
    };
    const char* const code = among(good) ? "\x1b[32m" : among(bad) ? "\x1b[31m" : "\x1b[33m";
    return code + cell + "\x1b[0m";
}

}  // namespace rnbd
