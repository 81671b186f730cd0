// Tells the service manager that the loop still turns (systemd.service(5), WatchdogSec=).
//
// A keep-alive is sent by a timer of the loop itself, twice in the time that the manager allows: a
// loop that hangs sends none, and the manager ends the process. With several workers each of them
// has had a turn since the last one: one that hangs keeps the next from being sent.
#pragma once

#include <cstdint>

#include "rtrs/reactor.h"

namespace rnbd {

// OWNER: the frame of a daemon. THREAD: the reactor's (rtrs/reactor.h).
class Watchdog {
  public:
    // reactor: the first of its group; the group ends before this does. Nothing is sent if the
    // manager did not ask for it (WATCHDOG_USEC, WATCHDOG_PID).
    explicit Watchdog(rtrs::Reactor& reactor);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // The first keep-alive, and all later ones by themselves.
    void start();

  private:
    void tell();
    void is_due();
    void answered();

    rtrs::Reactor& reactor_;
    rtrs::Duration interval_{};
    rtrs::Timer timer_;
    std::uint32_t unanswered_ = 0;  // of the other workers, which were asked with the last one
    bool overdue_ = false;          // they are waited for
};

}  // namespace rnbd
