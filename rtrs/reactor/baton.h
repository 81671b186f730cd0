// Which thread of a ReactorGroup may run handlers: the one that has it.
//
// It is given away for as long as the kernel works for its holder, and taken back after that, so
// whoever waits gets it within the microseconds of somebody's handlers.
//
// Who comes by while it is free takes it, also before one that sleeps: it would lie idle until that
// one is awake. But one that has waited for long is handed it, so nobody goes without.
//
// THREAD: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "rtrs/base/intrusive_list.h"
#include "rtrs/reactor/relax_processor.h"

namespace rtrs {

class Baton {
  public:
    // How long others may come before one that waits.
    static constexpr std::chrono::milliseconds patience{1};

    void take() noexcept {
        // Looking is cheaper than sleeping for so short a time.
        constexpr int looks = 100;
        for (int i = 0; i < looks; ++i) {
            if (try_take()) return;
            relax_processor();
        }
        wait();
    }
    void give() noexcept {
        if (waiting_ > 0) return give_to_waiting();
        held_ = false;
        // One that has come meanwhile has seen that it is free, or is seen here.
        if (waiting_ > 0) wake_one();
    }

  private:
    struct Waiter : ListLink {
        std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
        bool handed = false;
        std::condition_variable woken;
    };

    bool try_take() noexcept { return !held_ && !held_.exchange(true); }
    void wait() noexcept;
    void give_to_waiting() noexcept;
    void wake_one() noexcept;

    std::atomic<bool> held_ = false;
    std::atomic<std::uint32_t> waiting_ = 0;
    std::mutex mutex_;
    IntrusiveList<Waiter> waiters_;  // guarded by mutex_, and what is in them; first come first
};

}  // namespace rtrs
