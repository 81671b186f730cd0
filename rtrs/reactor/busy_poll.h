// Whether to look for completions for a while before sleeping, from what looking has brought.
//
// A look that finds something saves a sleep and a wake-up; one that finds nothing has taken the
// processor from somebody else, maybe from the very process that would have answered. So looking
// has to earn its living: a find earns what it came earlier than the window's end, and a look that
// finds nothing costs the window. Beyond what was earned, a thousandth of the time is free: it
// finds out when looking begins to pay. Pure: told the time, it never asks.
#pragma once

#include <algorithm>

#include "rtrs/base/instant.h"

namespace rtrs {

class BusyPoll {
  public:
    static constexpr int free_share = 1000;    // one part in so many
    static constexpr int savings_windows = 4;  // at most so many fruitless looks in a row

    // window: the longest look, best what a sleep and a wake-up take; zero: never.
    explicit BusyPoll(Duration window, Instant now) noexcept
        : window_(window), savings_(window * savings_windows), at_(now) {}

    // Whether there may be a look; if not, sleep at once. now: may be of a little earlier, so that
    // who sleeps need not ask for the time.
    bool affords(Instant now) noexcept {
        if (now > at_) {
            save((now - at_) / free_share);
            at_ = now;
        }
        return window_ > Duration::zero() && savings_ >= window_;
    }
    // A look begins; how long it may take. ASSUMES: affords().
    Duration begin(Instant now) noexcept {
        at_ = now;
        return window_;
    }
    // The look has ended, with a find or without. A find that comes later than the window's end
    // came because another process was let run: sleeping would have done that sooner.
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
    Duration savings_;  // for fruitless looking
    Instant at_;
};

}  // namespace rtrs
