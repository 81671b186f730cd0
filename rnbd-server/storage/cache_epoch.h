// Numbers (epochs) for the lives of caches that keep acknowledged writes until they are flushed.
// These are the page cache, which lives as long as the machine runs, and the caches of drives,
// which are assumed to live no longer than that.
#pragma once

#include <cstdint>

namespace rnbd {

// The epoch of storages that have nothing to lose.
inline constexpr std::uint64_t epoch_without_cache = 1;

// The epoch of this machine since it was booted; 0 if the system does not tell.
std::uint64_t machine_epoch();

// Makes a different epoch for each value, for caches that share a machine. The result is 0 if epoch
// is 0, else never 0 nor epoch_without_cache.
std::uint64_t mix_epoch(std::uint64_t epoch, std::uint64_t value) noexcept;

}  // namespace rnbd
