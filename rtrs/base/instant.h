// Points in time and durations. Time is always handed in (see clock.h), never read from a global.
#pragma once

#include <chrono>
#include <cstdint>

namespace rtrs {

using Duration = std::chrono::nanoseconds;

// A monotonic clock's epoch: in production CLOCK_MONOTONIC, in simulation the start of the run.
struct MonotonicEpoch {
    using duration = Duration;
    using rep = duration::rep;
    using period = duration::period;
    static constexpr bool is_steady = true;
};

using Instant = std::chrono::time_point<MonotonicEpoch, Duration>;

}  // namespace rtrs
