// Counts the requests of an export since the daemon has had it, for all sessions together.
//
// OWNER: Volume. THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

#include "rnbd/messages.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/latency_histogram.h"

namespace rnbd {

// Counts only requests that reached the storage, not those that were refused before.
struct ExportCounters {
    // Aligned so that a request changes one cache line with these counters, and another one with
    // its bucket in durations.
    struct alignas(64) Kind {
        std::uint64_t requests = 0;
        std::uint64_t bytes = 0;  // of the requests without an error
        std::uint64_t errors = 0;
        rtrs::LatencyHistogram durations;  // from the request's arrival to the storage's answer
    };
    static constexpr std::size_t kinds = 6;
    std::array<Kind, kinds> by_operation{};

    // The newest request that failed in the storage. Requests that the storage does not support
    // (EOPNOTSUPP) are not noted here.
    struct LastError {
        std::string request;  // "write of 4096 bytes at 0"
        std::string session;
        std::error_code error;
        rtrs::Instant at{};
        std::uint64_t errors = 0;  // how many there were; 0: the other members have no meaning
    };
    LastError last_error;

    Kind& of(Operation operation) noexcept {
        return by_operation[static_cast<std::size_t>(operation)];
    }
    const Kind& of(Operation operation) const noexcept {
        return by_operation[static_cast<std::size_t>(operation)];
    }
};

}  // namespace rnbd
