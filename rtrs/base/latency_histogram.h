// A histogram of how long requests took, in powers of two. Pure; a fixed array.
//
// Bucket 0 counts durations of at most 1 us, bucket i those of more than 2^(i-1) us and at most 2^i
// us, the last one all above 2^26 us (67 s).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rtrs/base/instant.h"

namespace rtrs {

class LatencyHistogram {
  public:
    static constexpr std::size_t bucket_count = 28;

    // The greatest duration of a bucket; Duration::max() for the last, which has no bound.
    static constexpr Duration upper_bound(std::size_t bucket) noexcept {
        if (bucket + 1 >= bucket_count) return Duration::max();
        return std::chrono::microseconds(std::int64_t{1} << bucket);
    }

    void add(Duration duration) noexcept {
        ++buckets_[bucket_of(duration)];
        ++count_;
        add_to_sum(duration);
        max_ = std::max(max_, duration);
    }

    // A duration that `percent` of the entries did not exceed: the upper bound of the bucket in
    // which that entry lies, or the greatest entry if that is less. 0 if there are no entries. 0 <
    // percent <= 100.
    Duration percentile(double percent) const noexcept {
        const double wanted = static_cast<double>(count_) * percent / 100;
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < bucket_count; ++i) {
            seen += buckets_[i];
            if (seen > 0 && static_cast<double>(seen) >= wanted)
                return std::min(upper_bound(i), max_);
        }
        return max_;
    }

    std::uint64_t count() const noexcept { return count_; }
    // Saturates at Duration::max(), 292 years: half a year of 512 requests in flight.
    Duration sum() const noexcept { return sum_; }
    Duration max() const noexcept { return max_; }
    const std::array<std::uint64_t, bucket_count>& buckets() const noexcept { return buckets_; }

  private:
    void add_to_sum(Duration duration) noexcept {
        Duration::rep sum;
        const bool too_much = __builtin_add_overflow(sum_.count(), duration.count(), &sum);
        sum_ = too_much ? Duration::max() : Duration(sum);
    }
    static constexpr std::size_t bucket_of(Duration duration) noexcept {
        if (duration <= std::chrono::microseconds(1)) return 0;
        // Rounded up, so that 2^i us plus a nanosecond is in bucket i + 1.
        const auto microseconds = static_cast<std::uint64_t>((duration.count() + 999) / 1000);
        return std::min<std::size_t>(bucket_count - 1,
                                     static_cast<std::size_t>(std::bit_width(microseconds - 1)));
    }

    // Placed before the buckets, so that they are next to the owner's own counters in the cache.
    std::uint64_t count_ = 0;
    Duration sum_{};
    Duration max_{};
    std::array<std::uint64_t, bucket_count> buckets_{};
};

}  // namespace rtrs
