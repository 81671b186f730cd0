// Defaults: how long an idle path may be silent, and how often it sends a heartbeat.
//
// A dead path is found after the timeout, however often heartbeats are sent. The interval decides
// what an idle session costs and how long a peer may stand still without harm (the timeout minus
// the interval). The kernel sends one every 5 s.
#pragma once

#include <algorithm>
#include <chrono>

#include "rtrs/base/instant.h"

namespace rtrs {

inline constexpr Duration heartbeat_timeout_default = std::chrono::seconds(5);
// Timeout with a kernel at either end: six of its intervals. SOURCE: RTRS_HB_INTERVAL_MS and
// RTRS_HB_MISSED_MAX of Linux 6.12, drivers/infiniband/ulp/rtrs/rtrs-pri.h.
inline constexpr Duration kernel_heartbeat_timeout = std::chrono::seconds(30);

// Two fifths of the timeout, at most 2 s: this leaves time for two heartbeats, and for the answer
// to the second one.
constexpr Duration heartbeat_interval_beside(Duration timeout) noexcept {
    return std::min<Duration>(2 * timeout / 5, std::chrono::seconds(2));
}

inline constexpr Duration heartbeat_interval_default =
    heartbeat_interval_beside(heartbeat_timeout_default);

}  // namespace rtrs
