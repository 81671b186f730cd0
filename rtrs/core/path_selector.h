// Chooses the path that takes a request. Pure: the paths' loads in, an index out; no allocation.
//
// A path is eligible if it is usable and has not been tried for this request. Standby paths count
// only while no preferred one is eligible. Among those that are left:
//
//   round-robin    the next one in list order behind the one chosen last, wrapping; the first one
//                  to begin with.
//   min-inflight   the smallest number of unanswered requests; ties: first in list.
//   min-latency    the smallest newest heartbeat round trip; one that was never measured counts as
//                  0 and is preferred; ties: first in list.
//   service-time   the smallest expected time to the answer,
//
//                      (work in flight + work of this request) * busy time per work,
//
//                  where a request's work is its payload bytes + 4096 (so that requests without
//                  payload have weight too), and the busy time is the time during which the path
//                  had anything unanswered. Busy time and work of each turn that brought answers
//                  are added to sums that first lose an eighth (EWMA); their ratio is the time per
//                  work. By Little's law the product is the time to the answer both for a path that
//                  serves one request after the other and for one that serves many at a time. A
//                  path that has answered nothing for longer than that plus 10 ms is expected to
//                  take as long once more, so that a path that falls silent gets no more requests.
//                  A path without requests in flight that was never measured, or not within the
//                  last second, is tried at once, so that a path that was slow is found to be
//                  quick again. An unmeasured path whose first answer is awaited is the last
//                  choice. Ties: less work in flight, then first in list. Requests of one turn (the
//                  same time) stay together unless another path would answer 500 us sooner: they
//                  share system calls, packets and wake-ups, on both sides.
//
// In-flight counts are kept for every request whatever the policy, and decrease when a request is
// answered or leaves a lost path. So a policy that is set while requests run finds correct counts.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rtrs/base/instant.h"
#include "rtrs/limits.h"
#include "rtrs/path_policy.h"

namespace rtrs {

// What the selector knows of one path. OWNER: the session, which keeps one per path in a contiguous
// array, in the order of creation. It survives reconnects of its path.
class PathLoad {
  public:
    // Kept current by the owner.
    bool usable = false;  // connected, and its server is not ending: may be chosen
    PathPriority priority = PathPriority::prefer;
    Duration latency{};  // newest heartbeat round trip; 0: unmeasured

    // Each sent request is later reported once, either as answered or as left, with the same bytes.
    void sent(std::uint32_t payload_bytes, Instant now) noexcept;
    void answered(std::uint32_t payload_bytes, Instant now) noexcept;
    // The path was lost and the request was given back to the session.
    void left(std::uint32_t payload_bytes) noexcept;

    std::uint32_t in_flight() const noexcept { return in_flight_; }
    // Smoothed busy time for a request of this size; 0: unmeasured.
    Duration service_time(std::uint32_t payload_bytes) const noexcept;

  private:
    friend class PathSelector;
    bool measured() const noexcept { return work_done_ > 0; }
    bool wants_trial(Instant now) const noexcept;
    double expected(std::uint32_t payload_bytes, Instant now) const noexcept;
    void remove(std::uint32_t payload_bytes) noexcept;

    std::uint32_t in_flight_ = 0;
    std::uint64_t work_in_flight_ = 0;
    // Smoothed sums, and the end of the period that they cover.
    std::uint64_t busy_nanoseconds_ = 0;
    std::uint64_t work_done_ = 0;
    Instant busy_until_{};
    std::optional<Instant> measured_at_;
};

// Paths that have been tried for a request, by index.
using PathSet = std::bitset<limits::paths_max>;

class PathSelector {
  public:
    explicit PathSelector(PathPolicy policy) noexcept : policy_(policy) {}

    PathPolicy policy() const noexcept { return policy_; }
    // Takes effect for the next request.
    void set_policy(PathPolicy policy) noexcept { policy_ = policy; }

    // The index of the path that takes a request of payload_bytes; none: no path is eligible.
    // ASSUMES: paths.size() <= limits::paths_max.
    std::optional<std::size_t> select(std::span<const PathLoad> paths, std::uint32_t payload_bytes,
                                      Instant now, const PathSet& tried = {}) noexcept;

  private:
    std::optional<std::size_t> next_in_turn(std::span<const PathLoad> paths,
                                            const PathSet& eligible) noexcept;
    std::optional<std::size_t> soonest(std::span<const PathLoad> paths, const PathSet& eligible,
                                       std::uint32_t payload_bytes, Instant now) noexcept;

    PathPolicy policy_;
    std::size_t next_ = 0;  // round-robin: where the search begins
    // service-time: the path chosen last, and when.
    std::optional<std::size_t> kept_;
    Instant chosen_at_{};
};

}  // namespace rtrs
