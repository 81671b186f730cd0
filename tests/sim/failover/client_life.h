// One process of a client: its session, and the users of its volumes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rnbd/remote_volume.h"
#include "tests/sim/failover/volume_user.h"

namespace failover {

// What is to be counted of all users.
struct Counters {
    std::uint64_t requests = 0;
    std::uint64_t failed = 0;
    std::uint64_t flushes = 0;
    std::uint64_t losses_told = 0;
};

class ClientLife final : public rnbd::RemoteSessionHandler {
  public:
    ClientLife(const Surroundings& surroundings, rtrs::SimHost& its_host,
               const rtrs::ClientSessionOptions& options, Counters& its_counters,
               const std::vector<ServerVolume*>& volumes);
    void on_session_closed() override { session_closed = true; }

    void begin_close();
    // Volumes first, then the session. True when all is closed.
    bool continue_close();
    bool idle() const;
    bool ready() const;
    std::string complaint() const;
    Instant oldest() const;

    // Of a request that was answered, or is not yet.
    struct Wait {
        Instant began{};
        Instant until{};
        Duration duration() const noexcept { return until - began; }
    };
    void note_wait(const Wait& wait) {
        if (wait.duration() > patience_) long_waits_.push_back(wait);
    }
    // Since they were taken last: those that were longer than failover may take.
    std::vector<Wait> take_long_waits(Instant now);

    rtrs::SimHost& host;
    Counters& counters;
    const std::uint32_t number;  // of its life, from 1
    bool superseded = false;     // another process of the same name was started
    bool closing = false;
    bool session_closed = false;
    rnbd::RemoteSession session;
    std::vector<std::unique_ptr<VolumeUser>> users;

  private:
    const Duration patience_;
    std::vector<Wait> long_waits_;
};

}  // namespace failover
