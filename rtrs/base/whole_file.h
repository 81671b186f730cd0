// Files that are read and written as a whole. A signal does not end either. THREAD: any; both
// wait for the file.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <system_error>

namespace rtrs {

// From where the descriptor stands to the end. ERRORS: of read(2).
std::expected<std::string, std::error_code> read_whole(int fd);
// All of the text, not synchronized. ERRORS: of write(2); EIO if it takes nothing.
std::error_code write_whole(int fd, std::string_view text);

}  // namespace rtrs
