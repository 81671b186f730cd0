// Decides whether to look for completions for a while before sleeping, from what looking has
// brought so far.
//
// A look that finds something saves a sleep and a wake-up. One that finds nothing has taken the
// processor from somebody else, maybe from the very process that would have answered. So looking
// has to pay for itself: a find earns the time by which it came before the window's end, and a look
// that finds nothing costs the window. In addition to what was earned, a thousandth of the time is
// free, so that it is noticed when looking begins to pay. Pure: it is told the time and never reads
// a clock.
#pragma once

#include <algorithm>

#include "rtrs/base/instant.h"

namespace rtrs {

class BusyPoll {
  public:
    static constexpr int free_share = 1000;    // one part in this many
    static constexpr int savings_windows = 4;  // at most this many fruitless looks in a row

    // window: the longest look, ideally the time that a sleep and a wake-up take; zero: never look.
    explicit BusyPoll(Duration window, Instant now) noexcept
        : window_(window), savings_(window * savings_windows), at_(now) {}

    // Whether a look is allowed; if not, sleep at once. now: may be a little old, so that a caller
    // that sleeps need not read the clock.
    bool affords(Instant now) noexcept {
        if (now > at_) {
            save((now - at_) / free_share);
            at_ = now;
        }
        return window_ > Duration::zero() && savings_ >= window_;
    }
    // A look begins; returns how long it may take. ASSUMES: affords().
    Duration begin(Instant now) noexcept {
        at_ = now;
        return window_;
    }
    // The look has ended, with a find or without. A find that came later than the window's end came
    // because another process was let run: sleeping would have found it sooner.
    void found(Instant now) noexcept {
        save(std::max(window_ - (now - at_), -window_));
        at_ = now;
    }
    void fruitless(Instant now) noexcept {
        save(-std::min(now - at_, window_));
        at_ = now;
    }

  private:
    void save(Duration time) noexcept {
        savings_ = std::min(savings_ + time, window_ * savings_windows);
    }

    Duration window_;
    Duration savings_;  // what fruitless looking may spend
    Instant at_;
};

}  // namespace rtrs
