// How many file descriptors the process has open, and may still open. THREAD: any.
#pragma once

#include <cstdint>
#include <limits>

namespace rtrs {

// RLIMIT_NOFILE.
std::uint64_t descriptors_max() noexcept;

// How many are open; at least fd + 1. fd: a new one, which is the lowest that was free. Before
// Linux 6.2, and without /proc, no more than that is known: there may be others above it.
std::uint64_t descriptors_open(int fd) noexcept;

// The last quarter of them is not for connections from outside: if those had all, a lost path could
// not be dialled again, and an operator could not be answered.
bool is_of_the_last_quarter(int fd) noexcept;

// How many are left to peers. The last ones are kept for this process itself and for an operator.
struct DescriptorsLeft {
    std::uint64_t to_new = std::numeric_limits<std::uint64_t>::max();
    // For peers whose lost connections come back; no fewer than to_new.
    std::uint64_t to_known = std::numeric_limits<std::uint64_t>::max();
};

// fd: a new one, which is counted among those that are left.
DescriptorsLeft descriptors_left(int fd) noexcept;

}  // namespace rtrs
