// How many descriptors the process may still have. THREAD: any.
#pragma once

#include <sys/resource.h>

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

}  // namespace rtrs
