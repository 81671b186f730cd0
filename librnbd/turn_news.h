// Calls the program's function after all answers of a turn: rnbd_session_on_turn().
//
// The function may leave some of the program's threads waiting, so that more answers can be handed
// to them with one wake-up. The loop does not sleep after that: there is one more turn, which
// brings more answers, or tells the function that there are none for now.
//
// OWNER: Session. THREAD: the loop's.
#pragma once

#include "librnbd/librnbd.h"
#include "rtrs/reactor.h"

namespace rnbd::library {

class TurnNews final : rtrs::Lookout {
  public:
    // turn: NULL for none. Called before begin().
    void set(rnbd_turn_fn turn, void* context) noexcept;
    // program: the program runs the loop. Then no thread is left waiting, because after each turn
    // control returns to the program.
    enum class LoopOf : bool { program, session };
    void begin(rtrs::Reactor& reactor, LoopOf loop) noexcept;
    // Tells no more.
    void end() noexcept;

    void answered() noexcept {
        if (turn_ != nullptr) reactor_->at_turn_end(told_);
    }
    // Calls the function at once for what was answered in this turn so far; no thread is left
    // waiting.
    void tell_now();

  private:
    bool look() noexcept override;
    bool before_sleep() noexcept override { return false; }
    void tell();
    void tell_if_all_rests();

    rnbd_turn_fn turn_ = nullptr;
    void* context_ = nullptr;
    rtrs::Reactor* reactor_ = nullptr;
    LoopOf loop_ = LoopOf::program;
    bool somebody_waits_ = false;
    rtrs::MemberTask<&TurnNews::tell> told_{*this};
    rtrs::MemberTask<&TurnNews::tell_if_all_rests> rests_{*this};
};

}  // namespace rnbd::library
