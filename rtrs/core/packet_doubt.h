// Whether a path seems to lose its large packets while small ones pass: frames longer than a switch
// on the way takes, or a router that drops what is too long without a word. Such a path answers
// when it is dialled, and perhaps heartbeats, but is silent when it has data to carry: the list of
// the server's chunks, with which it would be connected, or that of requests, which wait each time
// until it is given up.
//
// Once is chance. A path that ended in silence, whose very next attempt was answered, and that ends
// in silence again soon after, is dialled for small packets from then on; until it ends so all the
// same (then it was something else), or the operator dials it.
//
// Pure: told the time, it never asks.
#pragma once

#include <utility>

#include "rtrs/base/instant.h"

namespace rtrs {

class PacketDoubt {
  public:
    static constexpr Duration soon = std::chrono::seconds(60);

    // silent: nothing came any more, or no answer that was long due.
    enum class End : std::uint8_t { told, silent };

    // An attempt has failed without an answer.
    void failed() noexcept { was_silent_ = false; }
    // An attempt was answered: small packets pass.
    void answered(Instant now) noexcept {
        suspected_ = std::exchange(was_silent_, false);
        since_ = now;
    }
    // What was answered is ended by this side, to be dialled anew: as if it had not been.
    void begins_anew() noexcept { was_silent_ = std::exchange(suspected_, false); }
    // What was answered has ended. True: from now on it is dialled for small packets.
    bool ended(End end, Instant now) noexcept {
        const bool again = std::exchange(suspected_, false) && now - since_ <= soon;
        was_silent_ = end == End::silent && !small_;
        if (end == End::silent) small_ = again && !small_;
        return end == End::silent && small_;
    }
    void forget() noexcept { *this = {}; }

    bool small() const noexcept { return small_; }

  private:
    bool was_silent_ = false;  // the newest end; no attempt has failed since
    bool suspected_ = false;   // answered at once after such an end
    bool small_ = false;
    Instant since_{};
};

}  // namespace rtrs
