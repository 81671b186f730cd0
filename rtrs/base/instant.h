// Points in time and durations. Time is always handed in (see clock.h), never read from a global.
#pragma once

#include <chrono>
#include <cstdint>

namespace rtrs {

using Duration = std::chrono::nanoseconds;

// The epoch of a monotonic clock: in production that of CLOCK_MONOTONIC, in simulation the start of
// the run.
struct MonotonicEpoch {
    using duration = Duration;
    using rep = duration::rep;
    using period = duration::period;
    static constexpr bool is_steady = true;
};

using Instant = std::chrono::time_point<MonotonicEpoch, Duration>;

}  // namespace rtrs
