// A budget for the time that the thread of the reactor, and so all exports, may wait for others. It
// is one slice at most, and grows back by 1/share of the time that passes.
//
// THREAD: one at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace rnbd {

class WaitBudget {
  public:
    using Clock = std::chrono::steady_clock;

    WaitBudget(Clock::duration slice, int share) noexcept
        : slice_(slice), share_(share), left_(slice) {}
    // The time that is left. Below zero if more than the budget was spent. With a deadline in the
    // past a wait returns at once, whereas a wait for a time of zero can let the thread sleep.
    Clock::duration left() noexcept {
        const Clock::time_point now = Clock::now();
        left_ = std::min(slice_, left_ + (now - seen_) / share_);
        seen_ = now;
        return left_;
    }
    void spend(Clock::duration waited) noexcept { left_ -= waited; }

  private:
    const Clock::duration slice_;
    const int share_;
    Clock::duration left_;
    Clock::time_point seen_ = Clock::now();
};

}  // namespace rnbd
