// Decides whether to log an event that others can cause as often as they like: the first time, then
// once per interval. Pure: it is told the time and never reads a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "rtrs/base/instant.h"

namespace rtrs {

class LogRateLimit {
  public:
    static constexpr Duration usual_interval = std::chrono::seconds(10);

    explicit LogRateLimit(Duration interval = usual_interval) noexcept : interval_(interval) {}

    // The event happened. Returns how often it did since the last line, including this time; none:
    // no line is due.
    std::optional<std::uint64_t> happened(Instant now) noexcept {
        ++count_;
        if (last_ && now < *last_ + interval_) return std::nullopt;
        last_ = now;
        return std::exchange(count_, 0);
    }

  private:
    Duration interval_;
    std::optional<Instant> last_;  // line logged
    std::uint64_t count_ = 0;
};

// The end of a line that stands for several events.
inline std::string how_often(std::uint64_t count) {
    return count > 1 ? " (" + std::to_string(count) + " of these since the last such line)" : "";
}

}  // namespace rtrs
