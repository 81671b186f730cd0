// Decides whether a path seems to lose its large packets while small ones pass: because frames are
// longer than a switch on the way takes, or a router silently drops what is too long. Such a path
// answers when it is dialled, and perhaps answers heartbeats, but is silent when it has data to
// carry. That may be the list of the server's chunks, without which it is not connected, or the
// data of requests, which wait each time until the path is given up.
//
// Once is chance. But if a path ended in silence, its very next attempt was answered, and it soon
// ends in silence again, it is dialled for small packets from then on. That lasts until it ends in
// silence even so (then the cause was another), or until the operator dials it.
//
// Pure: it is told the time and never reads a clock.
#pragma once

#include <utility>

#include "rtrs/base/instant.h"

namespace rtrs {

class PacketDoubt {
  public:
    static constexpr Duration soon = std::chrono::seconds(60);

    // silent: nothing came any more, or an answer that was long due did not come.
    enum class End : std::uint8_t { told, silent };

    // An attempt has failed without an answer.
    void failed() noexcept { was_silent_ = false; }
    // An attempt was answered: small packets pass.
    void answered(Instant now) noexcept {
        suspected_ = std::exchange(was_silent_, false);
        since_ = now;
    }
    // The answered attempt is ended by this side, to be dialled anew: as if it had not been made.
    void begins_anew() noexcept { was_silent_ = std::exchange(suspected_, false); }
    // The answered connection has ended. True: from now on the path is dialled for small packets.
    bool ended(End end, Instant now) noexcept {
        const bool again = std::exchange(suspected_, false) && now - since_ <= soon;
        was_silent_ = end == End::silent && !small_;
        if (end == End::silent) small_ = again && !small_;
        return end == End::silent && small_;
    }
    void forget() noexcept { *this = {}; }

    bool small() const noexcept { return small_; }

  private:
    bool was_silent_ = false;  // the newest end was; no attempt has failed since
    bool suspected_ = false;   // the first attempt after such an end was answered
    bool small_ = false;
    Instant since_{};
};

}  // namespace rtrs
