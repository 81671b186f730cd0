// The life of a client path. Pure: event and time in, actions out.
//
//   State                   On                      Goes to     Does
//   idle                    open                    connecting  dial
//   connecting              all_established         exchanging  send_info_request
//   connecting, exchanging  failed, deadline        draining    disconnect
//   exchanging              info_accepted           connected   path_up
//   connected               failed                  draining    path_down, disconnect
//   draining                drained                 backoff     hand_back
//                           ... attempts used up    closed      hand_back, report_closed
//   backoff                 deadline, open          connecting  dial
//   idle, backoff           close                   closed      report_closed
//   connecting, exchanging  close                   closing     disconnect
//   connected               close                   closing     path_down, disconnect
//   draining                close                   closing     (the disconnect is under way)
//   closing                 drained                 closed      hand_back, report_closed
//   closed                  open                    connecting  dial
//
// Ignored, with reasons: failed in draining and closing (several connections of a path report one
// loss each), failed in idle, backoff and closed (nothing is connected), close in closing and
// closed, open elsewhere (already under way), a deadline that is not due. all_established outside
// of connecting, info_accepted outside of exchanging and drained outside of draining and closing
// cannot happen and are asserted.
#pragma once

#include <cstdint>
#include <optional>
#include <system_error>

#include "rtrs/base/instant.h"
#include "rtrs/base/random.h"
#include "rtrs/client.h"

namespace rtrs {

class PathMachine {
  public:
    enum class Event : std::uint8_t {
        open,
        all_established,
        info_accepted,
        failed,
        drained,
        deadline,
        close
    };

    // Set of things to do, in the order of the bits.
    enum Actions : std::uint32_t {
        nothing = 0,
        dial = 1,
        send_info_request = 2,
        path_up = 4,
        path_down = 8,
        disconnect = 16,
        hand_back = 32,  // unanswered requests of the path go back to the session
        report_closed = 64,
    };

    struct Settings {
        Duration connect_timeout;
        Duration delay_min;
        Duration delay_max;
        std::optional<std::uint32_t> attempts_max;
    };

    PathMachine(Settings settings, Random& random) noexcept
        : settings_(settings), random_(random) {}

    Actions step(Event event, Instant now);
    std::optional<Instant> deadline() const noexcept { return deadline_; }
    PathState state() const noexcept { return state_; }
    Instant since() const noexcept { return since_; }
    // Failed attempts since the path was last connected.
    std::uint32_t failures() const noexcept { return failures_; }
    // Times it became connected.
    std::uint64_t connects() const noexcept { return connects_; }

  private:
    Actions go(PathState state, Instant now, std::uint32_t actions);
    Actions fail(Instant now);
    Actions drained(Instant now);
    Actions close(Instant now);
    Duration backoff_delay();

    Settings settings_;
    Random& random_;
    PathState state_ = PathState::idle;
    Instant since_{};
    std::optional<Instant> deadline_;
    std::uint32_t failures_ = 0;
    std::uint64_t connects_ = 0;
};

}  // namespace rtrs
