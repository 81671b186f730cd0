#include "rtrs/base/whole_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "rtrs/base/error.h"

namespace rtrs {

std::expected<std::string, std::error_code> read_whole(int fd) {
    std::string text;
    std::array<char, 4096> piece{};
    for (;;) {
        const ssize_t got = ::read(fd, piece.data(), piece.size());
        if (got == 0) return text;
        if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
        if (got < 0 && errno != EINTR) return std::unexpected(from_errno(errno));
    }
}

std::error_code write_whole(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
        if (written == 0) return from_errno(EIO);
        if (written < 0 && errno != EINTR) return from_errno(errno);
    }
    return {};
}

}  // namespace rtrs
