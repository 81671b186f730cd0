// The life of a client path. Pure: event and time in, actions out.
//
//   State                   On                      Goes to     Does
//   idle                    open, reconnect         connecting  dial
//   connecting              all_established         exchanging  send_info_request
//   connecting, exchanging  failed, deadline        draining    disconnect
//   exchanging              info_accepted           connected   path_up
//   exchanging              join                    draining    disconnect; see below
//   connected               failed                  draining    path_down, disconnect
//   connected               reconnect               draining    path_down, disconnect; see below
//   draining                drained                 backoff     hand_back
//                           ... attempts used up    closed      hand_back, report_closed
//   draining                reconnect               draining    nothing; see below
//   backoff                 deadline, open,         connecting  dial
//                           reconnect
//   backoff, held back      needed                  connecting  dial
//   idle, backoff           close, disconnect       closed      report_closed
//   connecting, exchanging  close, disconnect       closing     disconnect
//   connected               close, disconnect       closing     path_down, disconnect
//   draining                close, disconnect       closing     (the disconnect is under way)
//   closing                 drained                 closed      hand_back, report_closed
//   closing                 close                   closing     (the operator's disconnect becomes
//                                                               the session's close)
//   closed                  open, reconnect         connecting  dial
//
// Operators: `reconnect` closes the connection and dials at once: after connected and draining the
// back-off is zero, whatever attempts_max says. It forgets failures and losses, and so does open in
// closed. `disconnect` is a close after which the path stays down until it is told to open or to
// reconnect. close_cause() tells why a closed path is closed.
// `join`: another path has created the session meanwhile. The attempt does not count as failed. The
// path is dialled again as a path of that session, after the server has had a moment to forget the
// attempt.
//
// Ignored, with reasons: failed in draining and closing (several connections of a path report one
// loss each), failed in idle, backoff and closed (nothing is connected), close in closed,
// disconnect in closing and closed, open elsewhere (already under way), reconnect in connecting and
// exchanging (an attempt is under way) and in closing (its end must be awaited: EBUSY for the
// operator in all three), needed elsewhere (not held back), a deadline that is not due.
// all_established outside of connecting, info_accepted and join outside of exchanging and drained
// outside of draining and closing cannot happen and are asserted.
//
// Shaky paths: a loss makes the path shaky if it was connected for less than stable_time, or if the
// loss is one of shaky_losses within shaky_window. If another path can do its work meanwhile (the
// caller says so with `drained`), a shaky path is held back: it waits for shaky_delay_min, doubled
// with each further such loss in a row up to shaky_delay_max; half of the delay is random. Without
// another usable path it is dialled as quickly as any, and also when the last other one is lost
// (`needed`): a path that fails often is better than none. After a loss of another kind the delays
// start from the shortest again.
// Hasty losses: a server that accepts a path and ends it within hasty_time, several times in a row,
// is of no use. Each hasty loss beyond hasty_losses doubles the delay as a failed attempt does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
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
        join,
        failed,
        drained,
        deadline,
        close,
        reconnect,   // the operator: close and dial at once
        disconnect,  // the operator: stay down until open or reconnect
        needed,      // no other path is usable any more
    };

    // Whether another path of the session can carry requests now. Matters with Event::drained only.
    enum class OtherPaths : std::uint8_t { none, usable };

    // A set of things to do, in the order of the bits.
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
        // Delay before an attempt: delay_min, doubled per failed attempt up to delay_max; half of
        // it is random.
        Duration delay_min;
        Duration delay_max;
        std::optional<std::uint32_t> attempts_max;
        // See "Shaky paths" above.
        Duration stable_time = std::chrono::seconds(10);
        Duration shaky_window = std::chrono::seconds(60);
        std::uint32_t shaky_losses = 3;  // 1..losses_kept
        Duration shaky_delay_min = std::chrono::seconds(1);
        Duration shaky_delay_max = std::chrono::seconds(30);
        // See "Hasty losses" above.
        Duration hasty_time = std::chrono::milliseconds(100);
        std::uint32_t hasty_losses = 3;
    };

    // Why the path is closing or closed.
    enum class CloseCause : std::uint8_t { none, asked, disconnected, gave_up };

    // How many losses are remembered.
    static constexpr std::size_t losses_kept = 16;

    PathMachine(Settings settings, Random& random) noexcept;

    // Applies to failures to come.
    void set_attempts_max(std::optional<std::uint32_t> attempts) noexcept {
        settings_.attempts_max = attempts;
    }

    Actions step(Event event, Instant now, OtherPaths others = OtherPaths::none);
    std::optional<Instant> deadline() const noexcept { return deadline_; }
    PathState state() const noexcept { return state_; }
    Instant since() const noexcept { return since_; }
    // Failed attempts since the path was last connected.
    std::uint32_t failures() const noexcept { return failures_; }
    // All failed attempts.
    std::uint64_t failures_total() const noexcept { return failures_total_; }
    // How often the path became connected.
    std::uint64_t connects() const noexcept { return connects_; }
    CloseCause close_cause() const noexcept { return close_cause_; }
    // Whether the path is shaky and is kept waiting in backoff.
    bool held_back() const noexcept { return held_back_; }
    // "held back: 4 failures in 60 s"; empty if the path is not held back.
    std::string hold_reason() const;

  private:
    Actions go(PathState state, Instant now, std::uint32_t actions);
    Actions open(Instant now);
    Actions fail(Instant now);
    Actions drained(Instant now, OtherPaths others);
    Actions close(Instant now, CloseCause cause);
    Actions reconnect(Instant now);
    void note_loss(Instant now);
    void forget_losses() noexcept;
    Duration backoff_delay();
    Duration shaky_delay();
    Duration jittered(Duration delay);

    Settings settings_;
    Random& random_;
    PathState state_ = PathState::idle;
    Instant since_{};
    std::optional<Instant> deadline_;
    std::uint32_t failures_ = 0;
    std::uint64_t failures_total_ = 0;
    std::uint64_t connects_ = 0;
    CloseCause close_cause_ = CloseCause::none;
    bool dial_at_once_ = false;  // draining: because of the operator's reconnect
    bool joins_ = false;         // draining: because of `join`
    bool lost_ = false;          // draining: it was connected, and nobody asked for the loss
    bool held_back_ = false;

    // When the connected path was lost, newest at (count - 1) % losses_kept.
    std::array<Instant, losses_kept> losses_{};
    std::uint64_t loss_count_ = 0;
    // About the newest loss: how long the path had been connected, and the losses in the window.
    Duration lived_{};
    std::uint32_t losses_in_window_ = 0;
    std::uint32_t shaky_in_a_row_ = 0;
    std::uint32_t hasty_in_a_row_ = 0;
};

}  // namespace rtrs
