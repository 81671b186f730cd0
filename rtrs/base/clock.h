// The interface to time: all that the core knows of clocks. The reactor implements it with one ring
// timeout, the simulator with virtual time.
//
// THREAD: the Clock's: the reactor's (rtrs/reactor.h), or the simulator's.
#pragma once

#include "rtrs/base/instant.h"

namespace rtrs {

class Clock;

// A one-shot alarm, owned by whoever waits for it. Disarms itself when destroyed.
class Timer {
  public:
    // expired is called with context in the clock's turn, at or after the deadline, once per arm.
    // It may re-arm or destroy this timer.
    using Expired = void (*)(void* context);

    Timer(Clock& clock, void* context, Expired expired) noexcept
        : clock_(clock), context_(context), expired_(expired) {}
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    // Replaces an earlier deadline.
    void arm(Instant deadline);
    void disarm() noexcept;
    bool armed() const noexcept { return position_ != not_armed; }
    // Meaningful while armed. The clock may call expired later by a small part of the delay.
    Instant deadline() const noexcept { return deadline_; }

  private:
    friend class TimerQueue;
    static constexpr std::size_t not_armed = static_cast<std::size_t>(-1);
    Clock& clock_;
    void* context_;
    Expired expired_;
    Instant deadline_{};
    std::size_t position_ = not_armed;
};

class Clock {
  public:
    virtual ~Clock() = default;
    // The time of the current turn; constant while one turn's handlers run.
    virtual Instant now() const noexcept = 0;

  protected:
    friend class Timer;
    virtual void arm(Timer& timer, Instant deadline) = 0;
    virtual void disarm(Timer& timer) noexcept = 0;
};

inline Timer::~Timer() { disarm(); }
inline void Timer::arm(Instant deadline) { clock_.arm(*this, deadline); }
inline void Timer::disarm() noexcept {
    if (armed()) clock_.disarm(*this);
}

}  // namespace rtrs
