// Whether to look for completions for a while before sleeping, from what looking has brought.
//
// A look that finds something saves a sleep and a wake-up; one that finds nothing has taken the
// processor from somebody else, maybe from the very process that would have answered. So fruitless
// looking is rationed: it may take a tenth of the time, beyond what was saved up. Pure: told the
// time, it never asks.
#pragma once

#include <algorithm>

#include "rtrs/base/instant.h"

namespace rtrs {

class BusyPoll {
  public:
    static constexpr int fruitless_share = 10;  // one part in so many
    static constexpr int savings_windows = 4;   // at most so many fruitless looks in a row

    // window: the longest look; zero: never.
    explicit BusyPoll(Duration window, Instant now) noexcept
        : window_(window), savings_(window * savings_windows), at_(now) {}

    // How long to look now; zero: sleep at once.
    Duration begin(Instant now) noexcept {
        savings_ = std::min(savings_ + (now - at_) / fruitless_share, window_ * savings_windows);
        at_ = now;
        return savings_ >= window_ ? window_ : Duration::zero();
    }
    // The look has ended without a find.
    void fruitless(Instant now) noexcept {
        savings_ -= now - at_;
        at_ = now;
    }

  private:
    Duration window_;
    Duration savings_;  // of fruitless looking
    Instant at_;
};

}  // namespace rtrs
