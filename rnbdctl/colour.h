// Colour for people at a terminal; off by default.
//
// THREAD: one; the setting is global to the process.
#pragma once

#include <string>

namespace rnbd {

enum class Colour : std::uint8_t { off, on };
void use_colour(Colour colour) noexcept;
bool colour_is_on() noexcept;

// Colours a cell of a STATE column: good words green, bad ones red, others yellow. Returns the text
// unchanged while colour is off.
std::string coloured_state(const std::string& cell);

}  // namespace rnbd
