// A clock that stands still until a test moves it.
#pragma once

#include "rtrs/base/clock.h"
#include "rtrs/base/timer_queue.h"

namespace rtrs::testing {

class TestClock final : public Clock {
  public:
    Instant now() const noexcept override { return time; }
    void arm(Timer& timer, Instant deadline) override { queue.arm(timer, deadline); }
    void disarm(Timer& timer) noexcept override { queue.disarm(timer); }
    // What is due then expires at the new time.
    void advance(Duration by) {
        time += by;
        queue.expire(time);
    }
    Instant time{};
    TimerQueue queue;
};

}  // namespace rtrs::testing
