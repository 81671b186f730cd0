// Numbers for the lives of caches that keep acknowledged writes until they are flushed: the page
// cache, which lives as long as the machine runs, and drives' caches, taken to live no longer.
#pragma once

#include <cstdint>

namespace rnbd {

// Of storages that have nothing to lose.
inline constexpr std::uint64_t epoch_without_cache = 1;

// Of this machine since it was booted; 0 if the system does not tell.
std::uint64_t machine_epoch();

// Tells apart what shares a machine: 0 if epoch is, else never 0 nor epoch_without_cache.
std::uint64_t mix_epoch(std::uint64_t epoch, std::uint64_t value) noexcept;

}  // namespace rnbd
