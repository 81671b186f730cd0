// Liveness of one path: sends a heartbeat per interval, declares the peer dead after silence.
//
// Pure: time is an argument. Any received traffic proves life, as in the kernel since 6.1.113.
// While a heartbeat is unanswered no further one is sent.
#pragma once

#include <optional>

#include "rtrs/base/instant.h"

namespace rtrs {

class Heartbeat {
  public:
    enum class Action { none, send, dead };

    Heartbeat(Duration interval, Duration timeout) noexcept
        : interval_(interval), timeout_(timeout) {}

    void start(Instant now) noexcept {
        last_received_ = now;
        next_send_ = now + interval_;
        sent_.reset();
        running_ = true;
    }
    void stop() noexcept { running_ = false; }

    void received(Instant now) noexcept { last_received_ = now; }
    // The answer to our heartbeat. Returns the round trip.
    Duration acknowledged(Instant now) noexcept {
        if (!sent_) return latency_;  // an answer that nobody waits for is ignored
        latency_ = now - *sent_;
        sent_.reset();
        return latency_;
    }

    // What is due at now.
    Action step(Instant now) noexcept {
        if (!running_) return Action::none;
        if (now >= last_received_ + timeout_) {
            running_ = false;
            return Action::dead;
        }
        if (now < next_send_) return Action::none;
        next_send_ = now + interval_;
        // An acknowledgement may have been overtaken by other traffic that proved life; then the
        // old heartbeat is forgotten.
        if (sent_ && last_received_ < *sent_) return Action::none;
        sent_ = now;
        return Action::send;
    }

    std::optional<Instant> deadline() const noexcept {
        if (!running_) return std::nullopt;
        return std::min(next_send_, last_received_ + timeout_);
    }

    Duration latency() const noexcept { return latency_; }
    Instant last_received() const noexcept { return last_received_; }

  private:
    Duration interval_;
    Duration timeout_;
    Instant last_received_{};
    Instant next_send_{};
    std::optional<Instant> sent_;
    Duration latency_{};
    bool running_ = false;
};

}  // namespace rtrs
