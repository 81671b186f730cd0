#include "rnbdctl/terminal_size.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace rnbd {

std::optional<std::size_t> screen_rows() noexcept {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::nullopt;
    return size.ws_row;
}

std::size_t rows_for_each(std::size_t screen_rows, std::size_t daemons) noexcept {
    constexpr std::size_t others = 3;
    const std::size_t each = screen_rows > 1 ? (screen_rows - 1) / daemons : 0;
    return each > others ? each - others : 1;
}

}  // namespace rnbd
