// Makes a failing run smaller: leaves out faults, lowers numbers, as long as it still fails.
#pragma once

#include <cstdint>

#include "tests/sim/failover/options.h"

namespace failover {

// Prints each step and, last, the line that repeats the smallest run. False: it does not fail.
bool shrink(std::uint64_t seed, Overrides overrides, const char* program);

}  // namespace failover
