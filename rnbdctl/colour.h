// Colour for people at a terminal; off unless somebody turns it on.
//
// THREAD: one; the setting is the process's.
#pragma once

#include <string>

namespace rnbd {

enum class Colour : std::uint8_t { off, on };
void use_colour(Colour colour) noexcept;
bool colour_is_on() noexcept;

// A cell of a STATE column: good words green, bad ones red, those between yellow. The text itself
// while colour is off.
std::string coloured_state(const std::string& cell);

}  // namespace rnbd
