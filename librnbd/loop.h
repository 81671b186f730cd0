// The session's reactor, and who runs it: the program, turn by turn, or a thread of the session.
//
// OWNER: Session.
// THREAD: start() and stop(): the owner's; the rest: any. With a thread of the session, lock()
// guards what the program's threads and the loop share; without one nothing is locked.
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

    // ERRORS: those of Reactor::create(), ENOMEM.
    static std::expected<std::unique_ptr<Loop>, std::error_code> create(Thread thread);
    // ASSUMES: stopped if it has a thread.
    ~Loop() = default;
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    // Makes the calling thread the loop's thread, or starts a thread for the loop, which waits for
    // go().
    // ERRORS: EAGAIN (no more threads).
    std::error_code start();
    // From now on only the loop's thread uses the reactor.
    void go();
    // Ends the loop's own thread, if there is one; if go() was called, the reactor ends with it.
    // ASSUMES: not called on that thread.
    void stop();

    rtrs::Reactor& reactor() noexcept { return *reactor_; }
    bool threaded() const noexcept { return mode_ == Thread::own; }
    // Why the caller may not use what runs in the loop; null if it may. A child of fork(2) may not
    // use the loop of its parent: it has no thread, and the ring is not its own.
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

    // Runs one turn, which waits at most max_wait. Sends first what the program has caused since
    // the last turn; if the program is told something by that already, the turn does not wait.
    // ASSUMES: not threaded, here(), not in_turn().
    void turn(std::optional<rtrs::Duration> max_wait);
    // Runs call on the loop's thread and waits for it. An exception that it throws is thrown here.
    // ASSUMES: threaded() or here().
    void call(const std::function<void()>& call);
    // Holds the mutex if the session has a thread.
    std::unique_lock<std::mutex> lock() {
        return threaded() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
    }
    // Waits, or runs turns, until done() returns true; returns false if the deadline comes before.
    // done() is called with the lock held. Code that changes what done() looks at calls changed().
    // ASSUMES: not in_turn().
    bool wait_until(const std::function<bool()>& done, std::optional<Deadline> deadline);
    void changed() {
        if (threaded()) changed_.notify_all();
        told();
    }
    // In this turn the program was told something, or something has changed that it can see.
    void told() noexcept {
        if (!threaded()) told_ = true;
    }

  private:
    enum class Gate : std::uint8_t { shut, open, given_up };

    Loop(std::unique_ptr<rtrs::Reactor> reactor, Thread mode) noexcept
        : reactor_(std::move(reactor)), mode_(mode) {}
    void run();
    void set_gate(Gate gate);

    static std::atomic<std::uint32_t> forks;  // how many forks led to this process
    // The number of a thread that owns a loop, or has owned one; 0: it has no number yet. The
    // system's own thread ids are not used because they are reused. initial-exec: each request
    // reads the variable, and access to a library's variable is a call otherwise. Its few bytes fit
    // into what the system reserves for libraries that are loaded later.
    [[gnu::tls_model("initial-exec")]] static constinit thread_local std::uint64_t thread_number;
    static std::uint64_t number_thread() noexcept;

    std::unique_ptr<rtrs::Reactor> reactor_;
    const Thread mode_;
    const std::uint32_t forks_ = forks.load(std::memory_order_relaxed);
    std::thread thread_;
    std::uint64_t owner_ = 0;  // the number of the loop's thread
    bool in_turn_ = false;
    bool told_ = false;       // told() was called in this turn; without a thread
    Gate gate_ = Gate::shut;  // what the loop's own thread may do; guarded by the mutex
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace rnbd::library
