// Which seeds a test by seed runs: RNBD_SIM_SEED=N only this one, RNBD_SIM_SEEDS=N so many.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace simtest {

struct Seeds {
    std::uint64_t first = 1;
    std::uint64_t count = 0;
    std::uint64_t end() const { return first + count; }
};

inline Seeds chosen_seeds(std::uint64_t usual_count) {
    if (const char* one = std::getenv("RNBD_SIM_SEED")) return {std::strtoull(one, nullptr, 0), 1};
    if (const char* many = std::getenv("RNBD_SIM_SEEDS")) {
        return {1, std::strtoull(many, nullptr, 0)};
    }
    return {1, usual_count};
}

}  // namespace simtest
