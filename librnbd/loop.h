// The session's reactor, and who runs it: the program, turn by turn, or a thread of the session's.
//
// THREAD: start() and stop() by the owner; the rest anywhere. With a thread, mutex() guards what
// the program's threads and the loop share; without one nothing is locked.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "librnbd/settings.h"
#include "rtrs/reactor.h"

namespace rnbd::library {

class Loop {
  public:
    using Deadline = std::chrono::steady_clock::time_point;

    // ERRORS: as of the reactor, ENOMEM.
    static std::expected<std::unique_ptr<Loop>, std::error_code> create(Thread thread);
    // ASSUMES: stopped if it has a thread.
    ~Loop() = default;
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    // Makes the calling thread the loop's, or starts the loop's own, which waits.
    // ERRORS: EAGAIN (no more threads).
    std::error_code start();
    // From now on the reactor is used by that thread alone.
    void go();
    // Ends the own thread, and the reactor with it if it has gone. ASSUMES: not called on it.
    void stop();

    rtrs::Reactor& reactor() noexcept { return *reactor_; }
    bool threaded() const noexcept { return mode_ == Thread::own; }
    // Why the caller may not use what runs in the loop; null if it may. A child of fork(2) has
    // nothing of its parent's: no thread, and a ring that is not its own.
    const char* refuses_caller() const noexcept {
        if (forks_ != forks.load(std::memory_order_relaxed)) {
            return "the session belongs to another process";
        }
        return threaded() || here() ? nullptr : "the session belongs to another thread";
    }
    // Whether the caller is on the thread that runs the loop.
    bool here() const noexcept { return thread_number == owner_; }
    // Whether the caller is inside a callback.
    bool in_turn() const noexcept { return here() && (threaded() || in_turn_); }

    // One turn, at most max_wait long. What the program caused since the turn before leaves first;
    // if it is told something of that already, the turn does not wait.
    // ASSUMES: not threaded, here(), not in_turn().
    void turn(std::optional<rtrs::Duration> max_wait);
    // Runs call on the loop's thread and waits for it. What it throws is thrown here. ASSUMES:
    // threaded() or here().
    void call(const std::function<void()>& call);
    // Holds the mutex if there is a thread.
    std::unique_lock<std::mutex> lock() {
        return threaded() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
    }
    // Waits, or runs turns, until done() or the deadline; false then. done() is called with the
    // lock held; who changes what it looks at calls changed(). ASSUMES: not in_turn().
    bool wait_until(const std::function<bool()>& done, std::optional<Deadline> deadline);
    void changed() {
        if (threaded()) changed_.notify_all();
        told();
    }
    // The program was told something, or could see it, in this turn.
    void told() noexcept {
        if (!threaded()) told_ = true;
    }

  private:
    enum class Gate : std::uint8_t { shut, open, given_up };

    Loop(std::unique_ptr<rtrs::Reactor> reactor, Thread mode) noexcept
        : reactor_(std::move(reactor)), mode_(mode) {}
    void run();
    void set_gate(Gate gate);

    static std::atomic<std::uint32_t> forks;  // that led to this process
    // Of a thread that owns a loop, or has; 0: none yet. The system's own ids are used again.
    // initial-exec: each request asks for it, and a library's variable is a call otherwise. Its few
    // bytes fit what the system keeps for libraries that are loaded later.
    [[gnu::tls_model("initial-exec")]] static constinit thread_local std::uint64_t thread_number;
    static std::uint64_t number_thread() noexcept;

    std::unique_ptr<rtrs::Reactor> reactor_;
    const Thread mode_;
    const std::uint32_t forks_ = forks.load(std::memory_order_relaxed);
    std::thread thread_;
    std::uint64_t owner_ = 0;  // the number of the loop's thread
    bool in_turn_ = false;
    bool told_ = false;       // the program, in this turn; without a thread
    Gate gate_ = Gate::shut;  // of the own thread; guarded by the mutex
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace rnbd::library
