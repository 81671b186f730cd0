// CRC32C with the instructions of x86-64. Which variants a processor supports, and which is faster,
// is found out at run time. Only for crc32c.cpp and its test.
//
// ISA-L uses both instructions too, but between the system calls of a turn it was slower in every
// comparison: docs/explanation/performance-tried.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rtrs::tcp {

// Continues a CRC register: neither its seed nor its result is inverted.
using ContinueCrc32c = std::uint32_t (*)(std::uint32_t state, const std::byte* data,
                                         std::size_t bytes);
// The same, for bytes that it also copies. ASSUMES: the two do not overlap.
using CopyCrc32c = std::uint32_t (*)(std::uint32_t state, std::byte* to, const std::byte* from,
                                     std::size_t bytes);
// CRC of 28 bytes in little-endian words, with seed and final inversion.
using Crc32cOf28 = std::uint32_t (*)(std::uint64_t bytes_0, std::uint64_t bytes_8,
                                     std::uint64_t bytes_16, std::uint32_t bytes_24) noexcept;

namespace x86 {

// Three interleaved lanes of the crc32 instruction, in parallel with a part that is folded by
// carry-less multiplications on another port of the processor; neither needs wide registers.
// NEEDS: has_lanes().
std::uint32_t continue_by_lanes(std::uint32_t state, const std::byte* data, std::size_t bytes);
bool has_lanes() noexcept;
// NEEDS: has_lanes().
std::uint32_t crc32c_of_28(std::uint64_t bytes_0, std::uint64_t bytes_8, std::uint64_t bytes_16,
                           std::uint32_t bytes_24) noexcept;

// Four registers of 512 bits, folded by carry-less multiplications; short rests are done by lanes.
// NEEDS: has_folds().
std::uint32_t continue_by_folds(std::uint32_t state, const std::byte* data, std::size_t bytes);
std::uint32_t copy_by_folds(std::uint32_t state, std::byte* to, const std::byte* from,
                            std::size_t bytes);
// In the gaps of the multiplications a part behind them is done by lanes. NEEDS: has_folds().
std::uint32_t continue_by_folds_and_lanes(std::uint32_t state, const std::byte* data,
                                          std::size_t bytes);
bool has_folds() noexcept;

// Whether there are such gaps: where one multiplication of 512 bits takes two cycles, as on AMD's
// processors (EPYC 9005). A copy beside the checksum fills them, too.
bool folds_leave_gaps() noexcept;

// Whether short bursts of 512-bit work have no cost other than themselves. Measured for AMD's
// processors (EPYC 9005) and Intel's since Sapphire Rapids, which are recognised by their
// half-precision support; on processors that lower their clock for such work, the lanes are faster
// between system calls.
bool wide_is_free() noexcept;

}  // namespace x86
}  // namespace rtrs::tcp
