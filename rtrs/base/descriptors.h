// How many descriptors the process has, and may still have. THREAD: any.
#pragma once

#include <cstdint>
#include <limits>

namespace rtrs {

// RLIMIT_NOFILE.
std::uint64_t descriptors_max() noexcept;

// Those that are open; at least fd + 1. Before Linux 6.2, and without /proc, no more than that is
// known of a new one, which is the lowest that was free: there may be others above it.
std::uint64_t descriptors_open(int fd) noexcept;

// A quarter of them is not for those who come from outside: with all of them theirs, a lost path
// could not be dialled again, nor an operator be answered.
bool is_of_the_last_quarter(int fd) noexcept;

// What is left of them to peers. The last are for this process itself, and for an operator.
struct DescriptorsLeft {
    std::uint64_t to_new = std::numeric_limits<std::uint64_t>::max();
    // Whose lost connections come back; no fewer.
    std::uint64_t to_known = std::numeric_limits<std::uint64_t>::max();
};

// With fd among them, a new one.
DescriptorsLeft descriptors_left(int fd) noexcept;

}  // namespace rtrs
