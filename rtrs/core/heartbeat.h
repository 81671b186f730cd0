// Liveness of one path: sends a heartbeat per interval, and declares the peer dead after silence.
//
// Pure: time is an argument. Any received traffic proves life, as in the kernel since 6.1.113.
// While a heartbeat is unanswered no further one is sent.
//
// With Asks::in_silence this end leaves the asking to its peer: as long as the peer's heartbeats
// come, it only answers them. So an idle path has two messages per interval instead of four. The
// peer must not rely on being asked.
//
// A probe is a heartbeat out of turn, for a path under suspicion. It is sent at once (or the one
// that is still unanswered serves), and the peer is dead if nothing is received within
// probe_timeout after it. Any received traffic ends the probe, except a heartbeat of the peer: the
// peer asks because it hears nothing from us, which is just what is suspected.
//
// A busy peer (is_busy()) answers nothing for a while and is not suspected for that: only a longer
// silence is death.
#pragma once

#include <algorithm>
#include <optional>

#include "rtrs/base/instant.h"
#include "rtrs/base/planted.h"
#include "rtrs/base/rare.h"

namespace rtrs {

class Heartbeat {
  public:
    enum class Action { none, send, dead };
    enum class Asks : std::uint8_t { always, in_silence };

    // probe_timeout: at most timeout, which is also its default.
    Heartbeat(Duration interval, Duration timeout,
              std::optional<Duration> probe_timeout = std::nullopt,
              Asks asks = Asks::always) noexcept
        : interval_(interval),
          timeout_(timeout),
          probe_timeout_(probe_timeout.value_or(timeout)),
          asks_(asks) {}

    void start(Instant now) noexcept {
        last_received_ = now;
        next_send_ = now + interval_;
        sent_.reset();
        unanswered_ = false;
        probe_ = Probe::none;
        busy_timeout_ = {};
        running_ = true;
    }
    void stop() noexcept { running_ = false; }

    void received(Instant now) noexcept {
        last_received_ = now;
        unanswered_ = false;
        probe_ = Probe::none;
    }
    // A heartbeat of the peer came: the peer lives, but perhaps does not hear us.
    void asked(Instant now) noexcept {
        if (planted(PlantedBug::question_ends_probe)) return received(now);
        last_received_ = now;
    }
    // The answer to our heartbeat. Returns the round trip.
    Duration acknowledged(Instant now) noexcept {
        if (!sent_) return latency_;  // an answer that nobody waits for is ignored
        latency_ = now - *sent_;
        sent_.reset();
        return latency_;
    }

    // Begins to probe whether the peer is alive. Call step() at once, and go by deadline()
    // afterwards. Does nothing if a probe is already under way.
    void probe(Instant now) noexcept {
        if (!running_ || probe_ != Probe::none || is_busy()) return;
        RTRS_RARE(probed);
        if (unanswered_) {
            // The peer has a question to answer already.
            probe_ = Probe::sent;
            probe_end_ = now + probe_timeout_;
        } else {
            probe_ = Probe::wanted;
            next_send_ = now;
        }
    }
    // From now on the peer may be silent for `timeout`, if that is longer than the ordinary
    // timeout, and no probe begins or continues. Zero: as before; set it after traffic of the peer.
    // deadline() changes.
    void is_busy(Duration timeout) noexcept {
        busy_timeout_ = timeout;
        if (is_busy()) probe_ = Probe::none;
    }
    bool is_busy() const noexcept { return busy_timeout_ > Duration::zero(); }
    // True between probe() and the next traffic. Still true after Action::dead if the probe is why.
    bool probing() const noexcept { return probe_ != Probe::none; }

    // What has to be done at `now`.
    Action step(Instant now) noexcept {
        if (!running_) return Action::none;
        if (now >= end()) {
            if (probe_ == Probe::sent && now >= probe_end_) {
                RTRS_RARE(probe_failed);
            } else {
                probe_ = Probe::none;
            }
            running_ = false;
            return Action::dead;
        }
        if (now < next_send_) return Action::none;
        if (asks_ == Asks::in_silence && now < silence_begins()) {
            next_send_ = silence_begins();
            return Action::none;
        }
        next_send_ = now + interval_;
        // An acknowledgement may have been overtaken by other traffic that proved life; then the
        // old heartbeat is forgotten.
        if (unanswered_) return Action::none;
        if (probe_ == Probe::wanted) {
            probe_ = Probe::sent;
            probe_end_ = now + probe_timeout_;
        }
        sent_ = now;
        unanswered_ = true;
        return Action::send;
    }

    std::optional<Instant> deadline() const noexcept {
        if (!running_) return std::nullopt;
        return std::min(next_send_, end());
    }

    Duration latency() const noexcept { return latency_; }
    Instant last_received() const noexcept { return last_received_; }
    // When the peer will be dead if it stays silent.
    std::optional<Instant> dead_at() const noexcept {
        if (!running_) return std::nullopt;
        return end();
    }

  private:
    enum class Probe : std::uint8_t { none, wanted, sent };

    // When silence means death.
    Instant end() const noexcept {
        if (planted(PlantedBug::heartbeat_never_fires)) return Instant::max();
        const Instant silence = last_received_ + std::max(timeout_, busy_timeout_);
        return probe_ == Probe::sent ? std::min(silence, probe_end_) : silence;
    }

    // A peer with the same interval is a little late at times, because of its timer, its turn or
    // the network.
    Instant silence_begins() const noexcept { return last_received_ + interval_ + interval_ / 8; }

    Duration interval_;
    Duration timeout_;
    Duration probe_timeout_;
    Asks asks_;
    Duration busy_timeout_{};
    Instant last_received_{};
    Instant next_send_{};
    std::optional<Instant> sent_;  // the heartbeat whose acknowledgement is awaited
    bool unanswered_ = false;      // nothing but questions was received since it was sent
    Probe probe_ = Probe::none;
    Instant probe_end_{};
    Duration latency_{};
    bool running_ = false;
};

}  // namespace rtrs
