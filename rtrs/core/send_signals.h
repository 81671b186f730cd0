// Decides which work requests ask for a completion, so that a send queue never fills up with
// finished ones.
//
// A fabric may keep the slot of an unsignalled request until a later signalled one completes (all
// hardware does). Asking for a completion of every request would cost more than the request itself.
#pragma once

#include <cstdint>

#include "rtrs/fabric.h"

namespace rtrs {

class SendSignals {
  public:
    // Slots that finished work may still hold: a send queue needs this many in addition to its
    // outstanding work.
    static constexpr std::uint32_t slots_held_max = 36;

    // For the last work request of a chain of `works`.
    Signal next(std::uint32_t works) noexcept {
        unsignalled_ += works;
        if (unsignalled_ < 32) return Signal::none;
        unsignalled_ = 0;
        return Signal::completion;
    }

    // A request was signalled for another reason.
    void signalled() noexcept { unsignalled_ = 0; }
    // The chain could not be posted: the next chain asks for the completion instead.
    void not_posted() noexcept { unsignalled_ = 32; }

  private:
    std::uint32_t unsignalled_ = 0;
};

}  // namespace rtrs
