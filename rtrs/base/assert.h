// Assertions that stay on in every build: a bug stops the process, it never corrupts data.
//
// For programmer errors only. What a peer, a file or a user sends is never asserted; it is checked
// and refused.
#pragma once

namespace rtrs {

// Prints the failed condition and its location to stderr, and aborts.
[[noreturn]] void assert_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace rtrs

#define RTRS_ASSERT(condition)                           \
    (static_cast<bool>(condition) ? static_cast<void>(0) \
                                  : ::rtrs::assert_failed(#condition, __FILE__, __LINE__))
