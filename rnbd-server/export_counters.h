// What was done to an export since the daemon has it, for all who had it open.
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

// Requests that its storage had; those that were refused before are not among them.
struct ExportCounters {
    // What every request changes is one line of the cache, and its bucket another.
    struct alignas(64) Kind {
        std::uint64_t requests = 0;
        std::uint64_t bytes = 0;  // of those without an error
        std::uint64_t errors = 0;
        rtrs::LatencyHistogram durations;  // from the request's arrival to the storage's answer
    };
    static constexpr std::size_t kinds = 6;
    std::array<Kind, kinds> by_operation{};

    // The newest request that its storage failed; not one that it cannot do.
    struct LastError {
        std::string request;  // "write of 4096 bytes at 0"
        std::string session;
        std::error_code error;
        rtrs::Instant at{};
        std::uint64_t errors = 0;  // so many; 0: none, and the others say nothing
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
