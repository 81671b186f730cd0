// CRC32C with the instructions of x86-64. Which ways a processor has, and which is the faster, is
// asked at run time. Only for crc32c.cpp and its test.
//
// ISA-L has both instructions too, but between the system calls of a turn it was the slower in
// every comparison: docs/explanation/performance-tried.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rtrs::tcp {

// Continues a CRC register: neither its seed nor its result is inverted.
using ContinueCrc32c = std::uint32_t (*)(std::uint32_t state, const std::byte* data,
                                         std::size_t bytes);
// The same of what it copies. ASSUMES: the two do not overlap.
using CopyCrc32c = std::uint32_t (*)(std::uint32_t state, std::byte* to, const std::byte* from,
                                     std::size_t bytes);
// Of 28 bytes in little-endian words, with seed and final inversion.
using Crc32cOf28 = std::uint32_t (*)(std::uint64_t bytes_0, std::uint64_t bytes_8,
                                     std::uint64_t bytes_16, std::uint32_t bytes_24) noexcept;

namespace x86 {

// Three interleaved lanes of the crc32 instruction beside a part that is folded by carry-less
// multiplications, on another port of the processor; neither needs wide registers.
// NEEDS: has_lanes().
std::uint32_t continue_by_lanes(std::uint32_t state, const std::byte* data, std::size_t bytes);
bool has_lanes() noexcept;
// NEEDS: has_lanes().
std::uint32_t crc32c_of_28(std::uint64_t bytes_0, std::uint64_t bytes_8, std::uint64_t bytes_16,
                           std::uint32_t bytes_24) noexcept;

// Four registers of 512 bits, folded by carry-less multiplications; what is short goes by lanes.
// NEEDS: has_folds().
std::uint32_t continue_by_folds(std::uint32_t state, const std::byte* data, std::size_t bytes);
std::uint32_t copy_by_folds(std::uint32_t state, std::byte* to, const std::byte* from,
                            std::size_t bytes);
bool has_folds() noexcept;

// Whether short bursts of 512-bit work cost nothing beside themselves. Measured for AMD's (EPYC
// 9005) and Intel's since Sapphire Rapids, which are told by their half-precision numbers; on
// processors that lower their clock for it, the lanes are the faster way between system calls.
bool wide_is_free() noexcept;

}  // namespace x86
}  // namespace rtrs::tcp
