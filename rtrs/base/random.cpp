#include "rtrs/base/random.h"

#include <bit>
#include <random>

#include "rtrs/base/assert.h"

namespace rtrs {

Random::Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : state_) {  // splitmix64, as the authors advise for seeding
        seed += 0x9e3779b97f4a7c15u;
        std::uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        word = z ^ (z >> 31);
    }
}

Random Random::from_entropy() {
    std::random_device device;
    return Random((static_cast<std::uint64_t>(device()) << 32) | device());
}

std::uint64_t Random::next() noexcept {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
}

std::uint64_t Random::below(std::uint64_t bound) noexcept {
    RTRS_ASSERT(bound > 0);
    // Multiply-shift; the bias is below 2^-32 for the bounds used here.
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
}

}  // namespace rtrs
