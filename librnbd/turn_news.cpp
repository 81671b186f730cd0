#include "librnbd/turn_news.h"

namespace rnbd::library {

void TurnNews::set(rnbd_turn_fn turn, void* context) noexcept {
    turn_ = turn;
    context_ = context;
}

void TurnNews::begin(rtrs::Reactor& reactor, LoopOf loop) noexcept {
    reactor_ = &reactor;
    loop_ = loop;
    if (turn_ != nullptr && loop == LoopOf::session) reactor.add_lookout(*this);
}

void TurnNews::end() noexcept {
    rtrs::Reactor::remove_lookout(*this);
    rtrs::Reactor::cancel_turn_end(told_);
    rtrs::Reactor::cancel_turn_end(rests_);
    somebody_waits_ = false;
}

void TurnNews::tell_now() {
    if (!told_.linked() && !somebody_waits_) return;
    rtrs::Reactor::cancel_turn_end(told_);
    somebody_waits_ = false;
    turn_(context_, 1);
}

void TurnNews::tell() {
    const bool rests = loop_ == LoopOf::program;
    somebody_waits_ = turn_(context_, rests ? 1 : 0) != 0 && !rests;
}

// Before a turn, which does not wait then.
bool TurnNews::look() noexcept {
    if (!somebody_waits_) return false;
    reactor_->at_turn_end(rests_);
    return true;
}

void TurnNews::tell_if_all_rests() {
    if (!told_.linked()) tell_now();
}

}  // namespace rnbd::library
