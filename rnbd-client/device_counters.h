// What was asked of a device, or over one connection to it, and how that ended.
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
        // From the request's header to its answer.
        rtrs::LatencyHistogram durations;
    };
    // Indexed by nbd::Command; the last one counts unknown commands.
    static constexpr std::size_t kinds = 9;
    std::array<Kind, kinds> by_command{};
    // Answers that carried an error, by its kind.
    std::uint64_t errors_perm = 0;
    std::uint64_t errors_io = 0;
    std::uint64_t errors_nomem = 0;
    std::uint64_t errors_inval = 0;
    std::uint64_t errors_nospc = 0;
    std::uint64_t errors_notsup = 0;
    std::uint64_t errors_shutdown = 0;
    std::uint64_t errors_overflow = 0;

    // took: from the request's header to its answer.
    void count(const nbd::Request& request, nbd::NbdError error, rtrs::Duration took) noexcept;
    const Kind& of(nbd::Command command) const noexcept;
};

}  // namespace rnbd
