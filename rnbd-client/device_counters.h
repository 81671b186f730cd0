// Counts the requests of a device, and their results.
//
// THREAD: its owner's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rnbd-client/nbd/transmission.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/latency_histogram.h"

namespace rnbd {

struct DeviceCounters {
    struct Kind {
        std::uint64_t requests = 0;
        std::uint64_t bytes = 0;
        std::uint64_t errors = 0;
        // From the arrival of the request's header to its answer.
        rtrs::LatencyHistogram durations;
    };
    // Indexed by nbd::Command; the last one counts unknown commands.
    static constexpr std::size_t kinds = 9;
    std::array<Kind, kinds> by_command{};

    // took: the time from the request's header to its answer.
    void count(const nbd::Request& request, nbd::NbdError error, rtrs::Duration took) noexcept;
    const Kind& of(nbd::Command command) const noexcept;
};

}  // namespace rnbd
