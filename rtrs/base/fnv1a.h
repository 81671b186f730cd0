// FNV-1a with 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/): tells names apart in few bytes.
// Two names with one hash are easily made: nothing may depend on it being hard to guess.
#pragma once

#include <cstdint>
#include <string_view>

namespace rtrs {

constexpr std::uint64_t fnv1a_of_nothing = 0xcbf29ce484222325;
constexpr std::uint64_t fnv1a_prime = 0x100000001b3;

// From another text's hash on: as of both, one behind the other.
constexpr std::uint64_t fnv1a(std::string_view text,
                              std::uint64_t before = fnv1a_of_nothing) noexcept {
    for (const char c : text) before = (before ^ static_cast<unsigned char>(c)) * fnv1a_prime;
    return before;
}

}  // namespace rtrs
