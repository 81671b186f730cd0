// Limits how many lines a subsystem may log, separately for warnings and for other lines. Lines
// that peers can cause as often as they like, such as clients that come and go, must not fill the
// disk of the log. A burst is written completely. When the budget is used up, nothing is written
// until there is room for resume_from lines again. Pure: the caller gives the time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rtrs/base/instant.h"

namespace rnbd {

class LineBudget {
  public:
    static constexpr std::uint64_t burst = 20000;
    static constexpr std::uint64_t per_second = 50;
    static constexpr std::uint64_t resume_from = 1000;

    // Whether one more line is written. If not, it is counted as left out.
    bool spend(rtrs::Instant now) noexcept {
        const auto earned = static_cast<std::uint64_t>((now - at_) / line_time);
        at_ += line_time * static_cast<std::int64_t>(earned);
        left_ = std::min(burst, left_ + earned);
        if (left_ == burst) at_ = now;
        if (left_ == 0) resting_ = true;
        if (left_ >= resume_from) resting_ = false;
        if (resting_) {
            ++left_out_;
            return false;
        }
        --left_;
        return true;
    }
    // How many lines were left out since told() was called last.
    std::uint64_t left_out() const noexcept { return left_out_; }
    void told() noexcept { left_out_ = 0; }

  private:
    static constexpr rtrs::Duration line_time =
        rtrs::Duration(std::chrono::seconds(1)) / per_second;

    std::uint64_t left_ = burst;
    std::uint64_t left_out_ = 0;
    bool resting_ = false;
    rtrs::Instant at_{};  // lines earned up to this time are counted in left_
};

}  // namespace rnbd
