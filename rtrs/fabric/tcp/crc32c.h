// CRC32C (Castagnoli) as frames carry it: crc32c("123456789") = 0xe3069283.
#pragma once

#include <cstdint>
#include <span>

#include "rtrs/base/bytes.h"

namespace rtrs::tcp {

// Computed piece by piece: the value of the pieces in order is the value of their concatenation.
class Crc32c {
  public:
    void add(Bytes piece) noexcept;
    // add(), and a copy of the piece to `to`, in one pass if the processor can do that. ASSUMES:
    // the two do not overlap.
    void add_copied(std::byte* to, Bytes piece) noexcept;
    std::uint32_t value() const noexcept { return ~state_; }

  private:
    std::uint32_t state_ = ~std::uint32_t{0};
};

std::uint32_t crc32c(Bytes bytes) noexcept;
// The same for the 28 bytes of each frame's header, given as little-endian words.
std::uint32_t crc32c_of_28(std::uint64_t bytes_0, std::uint64_t bytes_8, std::uint64_t bytes_16,
                           std::uint32_t bytes_24) noexcept;

}  // namespace rtrs::tcp
