// Random numbers, seeded by the caller: the same seed gives the same run.
#pragma once

#include <cstdint>

namespace rtrs {

// xoshiro256** (Blackman and Vigna, public domain algorithm, https://prng.di.unimi.it).
// Not for secrets. Not thread safe.
class Random {
  public:
    explicit Random(std::uint64_t seed) noexcept;

    // A generator seeded by the operating system.
    static Random from_entropy();

    std::uint64_t next() noexcept;
    // Uniform in [0, bound). bound > 0.
    std::uint64_t below(std::uint64_t bound) noexcept;
    // True in `numerator` of `denominator` cases.
    bool chance(std::uint64_t numerator, std::uint64_t denominator) noexcept {
        return below(denominator) < numerator;
    }

  private:
    std::uint64_t state_[4];
};

}  // namespace rtrs
