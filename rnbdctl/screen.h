// The terminal that standard output is.
#pragma once

#include <cstddef>
#include <optional>

namespace rnbd {

// How many lines it has now; none if standard output is no terminal, or one that does not say.
std::optional<std::size_t> screen_rows() noexcept;

// Of how many items each of the daemons (1 or more) may show a row, so that all of them fit with
// their two lines of heads, a line for what is left out, and the cursor's line. At least 1.
std::size_t rows_for_each(std::size_t screen_rows, std::size_t daemons) noexcept;

}  // namespace rnbd
