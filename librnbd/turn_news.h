// Who is told behind all answers of a turn: rnbd_session_on_turn().
//
// Whom the answers go to may leave some of its own waiting, for more answers to be woken by at
// once. So the loop does not sleep after that: there is one more turn, which brings more answers,
// or the word that there are none for now.
//
// OWNER: Session. THREAD: the loop's.
#pragma once

#include "librnbd/librnbd.h"
#include "rtrs/reactor.h"

namespace rnbd::library {

class TurnNews final : rtrs::Lookout {
  public:
    // NULL: nobody. Before begin().
    void set(rnbd_turn_fn turn, void* context) noexcept;
    // Nobody is left waiting in a loop that is the program's own: it is back in the program then.
    enum class LoopOf : bool { program, session };
    void begin(rtrs::Reactor& reactor, LoopOf loop) noexcept;
    // Tells no more.
    void end() noexcept;

    void answered() noexcept {
        if (turn_ != nullptr) reactor_->at_turn_end(told_);
    }
    // At once, of what was answered in this turn so far; nobody is left waiting.
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
