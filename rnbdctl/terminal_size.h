// The terminal at standard output.
#pragma once

#include <cstddef>
#include <optional>

namespace rnbd {

// How many lines the terminal has now; none if standard output is not a terminal, or the terminal
// does not say.
std::optional<std::size_t> screen_rows() noexcept;
// How many characters a line of it has; likewise.
std::optional<std::size_t> screen_columns() noexcept;

// For how many items each of the daemons (1 or more) may show a row, so that all fit together with
// two header lines and a line for what is left out per daemon, and the line of the cursor. At least
// 1.
std::size_t rows_for_each(std::size_t screen_rows, std::size_t daemons) noexcept;

}  // namespace rnbd
