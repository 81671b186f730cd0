// How long the thread of the reactor, and with it all exports, may still wait for others: a slice
// at most, which grows back by one part in `share` of the time that passes.
//
// THREAD: one at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace rnbd {

class Patience {
  public:
    using Clock = std::chrono::steady_clock;

    Patience(Clock::duration slice, int share) noexcept
        : slice_(slice), share_(share), left_(slice) {}
    // Below zero: more than that was spent. To wait until then is not to wait; to wait for no time
    // lets the thread sleep.
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
