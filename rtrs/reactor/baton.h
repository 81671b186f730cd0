// Decides which thread of a ReactorGroup may run handlers: the one that holds the baton.
//
// The holder gives the baton away for as long as the kernel works for it, and takes it back
// afterwards. So whoever waits gets it within the microseconds that somebody's handlers take.
//
// A thread that comes by while the baton is free takes it, even before one that sleeps, because the
// baton would be unused until that one is awake. But a thread that has waited for long is handed
// it, so that none starves.
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
    // How long others may take it before one that waits.
    static constexpr std::chrono::milliseconds wait_max{1};

    void take() noexcept {
        // Polling is cheaper than sleeping for so short a time.
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
        // A thread that has come meanwhile has either seen that it is free, or is seen here.
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
    IntrusiveList<Waiter> waiters_;  // they and their content are guarded by mutex_; FIFO
};

}  // namespace rtrs
