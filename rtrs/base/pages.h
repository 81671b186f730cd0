// The CPU's pages. Registered memory begins and ends at a page boundary.
#pragma once

#include <cstddef>

namespace rtrs {

inline constexpr std::size_t page_bytes = 4096;

constexpr std::size_t round_to_page(std::size_t bytes) noexcept {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

}  // namespace rtrs
