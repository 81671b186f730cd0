#include "rtrs/core/path_selector.h"

#include <algorithm>
#include <limits>

#include "rtrs/base/assert.h"

namespace rtrs {
namespace {

using namespace std::chrono_literals;

// What a request costs in addition to its payload, in bytes.
constexpr std::uint64_t request_work = 4096;
// The next measurement keeps 7/8 of the sums.
constexpr std::uint64_t forget_divisor = 8;
// An idle path is measured anew after this time.
constexpr Duration trial_interval = 1s;
// Silence that a disk or a processor may well have at times.
constexpr Duration silence_allowed = 10ms;
// A turn's requests are split only if another path would answer sooner by more than this, in
// nanoseconds.
constexpr double worth_splitting = 500e3;

std::uint64_t work_of(std::uint32_t payload_bytes) noexcept { return request_work + payload_bytes; }

PathSet eligible_of(std::span<const PathLoad> paths, const PathSet& tried) noexcept {
    PathSet preferred;
    PathSet standby;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (!paths[i].usable || tried[i]) continue;
        (paths[i].priority == PathPriority::prefer ? preferred : standby).set(i);
    }
    return preferred.any() ? preferred : standby;
}

// The first eligible path such that no other one is better.
template <typename Better>
std::optional<std::size_t> best(std::span<const PathLoad> paths, const PathSet& eligible,
                                Better better) noexcept {
    std::optional<std::size_t> chosen;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (eligible[i] && (!chosen || better(paths[i], paths[*chosen]))) chosen = i;
    }
    return chosen;
}

}  // namespace

void PathLoad::sent(std::uint32_t payload_bytes, Instant now) noexcept {
    // The time without requests does not count as service time.
    if (in_flight_ == 0) busy_until_ = now;
    ++in_flight_;
    work_in_flight_ += work_of(payload_bytes);
}

void PathLoad::remove(std::uint32_t payload_bytes) noexcept {
    RTRS_ASSERT(in_flight_ > 0 && work_in_flight_ >= work_of(payload_bytes));
    --in_flight_;
    work_in_flight_ -= work_of(payload_bytes);
}

void PathLoad::answered(std::uint32_t payload_bytes, Instant now) noexcept {
    remove(payload_bytes);
    // All answers of one turn have the same time: they are one measurement.
    if (now > busy_until_ || !measured()) {
        busy_nanoseconds_ -= busy_nanoseconds_ / forget_divisor;
        work_done_ -= work_done_ / forget_divisor;
        busy_nanoseconds_ += static_cast<std::uint64_t>((now - busy_until_).count());
        busy_until_ = now;
    }
    work_done_ += work_of(payload_bytes);
    measured_at_ = now;
}

void PathLoad::left(std::uint32_t payload_bytes) noexcept { remove(payload_bytes); }

double PathLoad::expected(std::uint32_t payload_bytes, Instant now) const noexcept {
    if (!measured()) return std::numeric_limits<double>::infinity();
    const double by_measure = static_cast<double>(work_in_flight_ + work_of(payload_bytes)) *
                              static_cast<double>(busy_nanoseconds_) /
                              static_cast<double>(work_done_);
    // A path that has fallen silent yields no measurements any more.
    const Duration silence = in_flight_ > 0 ? now - busy_until_ : Duration::zero();
    return std::max(by_measure, static_cast<double>((silence - silence_allowed).count()));
}

bool PathLoad::wants_trial(Instant now) const noexcept {
    return in_flight_ == 0 && (!measured_at_ || now >= *measured_at_ + trial_interval);
}

Duration PathLoad::service_time(std::uint32_t payload_bytes) const noexcept {
    if (!measured()) return {};
    return Duration(static_cast<Duration::rep>(static_cast<double>(work_of(payload_bytes)) *
                                               static_cast<double>(busy_nanoseconds_) /
                                               static_cast<double>(work_done_)));
}

std::optional<std::size_t> PathSelector::next_in_turn(std::span<const PathLoad> paths,
                                                      const PathSet& eligible) noexcept {
    for (std::size_t step = 0; step < paths.size(); ++step) {
        const std::size_t index = (next_ + step) % paths.size();
        if (!eligible[index]) continue;
        next_ = index + 1;
        return index;
    }
    return std::nullopt;
}

std::optional<std::size_t> PathSelector::soonest(std::span<const PathLoad> paths,
                                                 const PathSet& eligible,
                                                 std::uint32_t payload_bytes,
                                                 Instant now) noexcept {
    const auto expected = [&](const PathLoad& path) {
        return path.wants_trial(now) ? 0 : path.expected(payload_bytes, now);
    };
    const std::optional<std::size_t> chosen =
        best(paths, eligible, [&](const PathLoad& one, const PathLoad& other) {
            const double a = expected(one);
            const double b = expected(other);
            return a < b || (a == b && one.work_in_flight_ < other.work_in_flight_);
        });
    const bool same_turn = now == chosen_at_ && kept_ && *kept_ < paths.size() && eligible[*kept_];
    chosen_at_ = now;
    if (chosen && same_turn && !paths[*chosen].wants_trial(now) &&
        expected(paths[*kept_]) < expected(paths[*chosen]) + worth_splitting) {
        return kept_;
    }
    kept_ = chosen;
    return chosen;
}

std::optional<std::size_t> PathSelector::select(std::span<const PathLoad> paths,
                                                std::uint32_t payload_bytes, Instant now,
                                                const PathSet& tried) noexcept {
    RTRS_ASSERT(paths.size() <= limits::paths_max);
    const PathSet eligible = eligible_of(paths, tried);
    switch (policy_) {
        case PathPolicy::round_robin:
            return next_in_turn(paths, eligible);
        case PathPolicy::min_inflight:
            return best(paths, eligible, [](const PathLoad& one, const PathLoad& other) {
                return one.in_flight_ < other.in_flight_;
            });
        case PathPolicy::min_latency:
            return best(paths, eligible, [](const PathLoad& one, const PathLoad& other) {
                return one.latency < other.latency;
            });
        case PathPolicy::service_time:
            return soonest(paths, eligible, payload_bytes, now);
    }
    return std::nullopt;
}

}  // namespace rtrs
