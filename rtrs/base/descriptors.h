// How many descriptors the process may still have. THREAD: any.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rtrs {

// RLIMIT_NOFILE.
inline std::uint64_t descriptors_max() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return std::numeric_limits<std::uint64_t>::max();
    }
    return limit.rlim_cur;
}

// A quarter of them is not for those who come from outside: with all of them theirs, a lost path
// could not be dialled again, nor an operator be answered. A new descriptor is the lowest that is
// free, so its number says how many there are.
inline bool is_of_the_last_quarter(int fd) noexcept {
    const std::uint64_t all = descriptors_max();
    return static_cast<std::uint64_t>(fd) >= all - all / 4;
}

// What is left of them beside fd, a new one.
enum class DescriptorsLeft : std::uint8_t {
    enough,
    few,   // for what is known already: its lost connections come back
    last,  // for this process itself, and for an operator
};

inline DescriptorsLeft descriptors_left_beside(int fd) noexcept {
    const std::uint64_t all = descriptors_max();
    const std::uint64_t left = all - std::min<std::uint64_t>(all, static_cast<std::uint64_t>(fd));
    if (left <= std::clamp<std::uint64_t>(all / 16, 8, 64)) return DescriptorsLeft::last;
    if (left <= std::clamp<std::uint64_t>(all / 8, 16, 128)) return DescriptorsLeft::few;
    return DescriptorsLeft::enough;
}

}  // namespace rtrs
