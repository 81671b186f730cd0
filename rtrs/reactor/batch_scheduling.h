// Decides whether a thread should be of the kernel's scheduling policy SCHED_BATCH.
//
// A thread of the usual policy that is woken takes the processor from who woke it: from an NBD
// client that sends its requests one by one, or from the ring's thread that writes to a file. Both
// sides then change places for each request. One of SCHED_BATCH runs when the other sleeps, and
// finds all its requests at once. But it also waits for programs that compute and never sleep, for
// milliseconds each time it is woken. So it is of that policy while it is often woken and does not
// wait long. When it has waited long for some time it leaves it, and tries again after a pause,
// which doubles as long as the tries are short. Pure: it is told everything.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rtrs/base/instant.h"

namespace rtrs {

class BatchScheduling {
  public:
    // Since the thread began: how often it was given a processor, how long it has waited for that,
    // being runnable, and how many requests it has begun to work on.
    struct Figures {
        std::uint64_t runs = 0;
        Duration waited{};
        std::uint64_t requests = 0;
    };

    // It begins with a run in so long a time, and ends with less than an eighth of that.
    static constexpr Duration busy_run_interval = std::chrono::microseconds(500);
    // A program that computes is interrupted after 3 ms, or at the next tick. An NBD client that
    // sends 32 requests one by one takes 0.2 to 0.5 ms, 6 to 16 us for each.
    static constexpr Duration wait_per_run_max = std::chrono::milliseconds(1);
    static constexpr Duration wait_per_request_max = std::chrono::microseconds(64);
    // So many times in a row: what runs for a moment only is no reason.
    static constexpr int long_waits_max = 3;
    static constexpr Duration pause_min = std::chrono::seconds(1);
    static constexpr Duration pause_max = std::chrono::seconds(64);

    bool is_batch() const noexcept { return batch_; }
    // Whether judge() has to be called. Not each time: it takes figures that cost a system call.
    bool is_due(Instant now) const noexcept { return now >= due_; }
    // Sets is_batch() by what has happened since the last call.
    void judge(Instant now, const Figures& figures) noexcept {
        const Figures lapse{.runs = figures.runs - last_.runs,
                            .waited = figures.waited - last_.waited,
                            .requests = figures.requests - last_.requests};
        const Duration time = now - judged_;
        if (!batch_) {
            if (now >= pause_end_ && is_busy(lapse, time)) enter(now);
        } else if (has_waited_long(lapse)) {
            if (++long_waits_ == long_waits_max) leave(now);
        } else {
            long_waits_ = 0;
            batch_ = is_busy({.runs = lapse.runs * 8}, time);
        }
        last_ = figures;
        judged_ = now;
        due_ = now + (batch_ ? batch_interval : interval);
    }

  private:
    static constexpr Duration interval = std::chrono::milliseconds(10);
    static constexpr Duration batch_interval = std::chrono::milliseconds(4);

    static bool is_busy(const Figures& lapse, Duration time) noexcept {
        return lapse.runs * busy_run_interval >= time;
    }
    static bool has_waited_long(const Figures& lapse) noexcept {
        return lapse.requests > 0 && (lapse.waited > lapse.runs * wait_per_run_max ||
                                      lapse.waited > lapse.requests * wait_per_request_max);
    }
    void enter(Instant now) noexcept {
        batch_ = true;
        entered_ = now;
        long_waits_ = 0;
    }
    void leave(Instant now) noexcept {
        batch_ = false;
        if (now - entered_ > pause_max) pause_ = pause_min;
        pause_end_ = now + pause_;
        pause_ = std::min(pause_ * 2, pause_max);
    }

    bool batch_ = false;
    Figures last_;
    Instant judged_{};  // when last_ was taken
    Instant due_{};
    Instant entered_{};
    int long_waits_ = 0;  // in a row
    Instant pause_end_{};
    Duration pause_ = pause_min;
};

}  // namespace rtrs
