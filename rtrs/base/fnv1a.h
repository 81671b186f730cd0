// FNV-1a with 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/): distinguishes names in few
// bytes. Two names with the same hash are easily made: nothing may depend on collisions being hard
// to find.
#pragma once

#include <cstdint>
#include <string_view>

namespace rtrs {

constexpr std::uint64_t fnv1a_of_nothing = 0xcbf29ce484222325;
constexpr std::uint64_t fnv1a_prime = 0x100000001b3;

// before: the hash of another text; the result is the hash of both, one after the other.
constexpr std::uint64_t fnv1a(std::string_view text,
                              std::uint64_t before = fnv1a_of_nothing) noexcept {
    for (const char c : text) before = (before ^ static_cast<unsigned char>(c)) * fnv1a_prime;
    return before;
}

}  // namespace rtrs
