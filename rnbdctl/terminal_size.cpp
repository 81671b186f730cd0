#include "rnbdctl/terminal_size.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace rnbd {
namespace {

// Zeroes: no terminal, or it does not say.
winsize terminal_size() noexcept {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
    return size;
}

}  // namespace

std::optional<std::size_t> screen_rows() noexcept {
    const winsize size = terminal_size();
    return size.ws_row != 0 ? std::optional<std::size_t>(size.ws_row) : std::nullopt;
}

std::optional<std::size_t> screen_columns() noexcept {
    const winsize size = terminal_size();
    return size.ws_col != 0 ? std::optional<std::size_t>(size.ws_col) : std::nullopt;
}

std::size_t rows_for_each(std::size_t screen_rows, std::size_t daemons) noexcept {
    constexpr std::size_t others = 3;
    const std::size_t each = screen_rows > 1 ? (screen_rows - 1) / daemons : 0;
    return each > others ? each - others : 1;
}

}  // namespace rnbd
