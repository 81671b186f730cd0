// What the devices of one session may hold of its permits, so that one whose requests hang does not
// stop the others.
//
// A device alone may hold all. Of several, each may hold, beyond one request, no more than what
// stays free with it: of N that hang, each has one part of N + 1, and one is left.
//
// OWNER: the daemon, one per session; outlives its devices. THREAD: the session's.
#pragma once

#include <cstdint>

#include "rtrs/base/assert.h"
#include "rtrs/base/intrusive_list.h"

namespace rnbd {

class PermitShares {
  public:
    // Who waits for some to come back, once. Called from the middle of somebody's release.
    struct Waiter : rtrs::ListLink {
        using Freed = void (*)(Waiter& waiter);
        explicit Waiter(Freed handler) noexcept : freed(handler) {}
        Freed freed;
    };

    void join() noexcept { ++devices_; }
    void leave() noexcept {
        RTRS_ASSERT(devices_ > 0);
        --devices_;
    }

    // held: by the device; of: all that the session has.
    bool allows(std::uint32_t held, std::uint32_t more, std::uint32_t of) const noexcept {
        if (held == 0 || devices_ < 2) return true;
        return std::uint64_t{all_held_} + more + held + more <= of;
    }
    void took(std::uint32_t permits) noexcept { all_held_ += permits; }
    void gave_back(std::uint32_t permits) noexcept {
        RTRS_ASSERT(all_held_ >= permits);
        all_held_ -= permits;
        while (!waiters_.empty()) {
            Waiter& waiter = waiters_.pop_front();
            waiter.freed(waiter);
        }
    }

    void wait(Waiter& waiter) noexcept { waiters_.push_back(waiter); }
    static void forget(Waiter& waiter) noexcept {
        if (waiter.linked()) rtrs::IntrusiveList<Waiter>::remove(waiter);
    }
    bool waited_for() const noexcept { return !waiters_.empty(); }

  private:
    std::uint32_t devices_ = 0;
    std::uint32_t all_held_ = 0;
    rtrs::IntrusiveList<Waiter> waiters_;
};

}  // namespace rnbd
