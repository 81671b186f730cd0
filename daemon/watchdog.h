// Tells the service manager that the loop still turns (systemd.service(5), WatchdogSec=).
//
// A keep-alive is sent by a timer of the loop itself, twice in the time that the manager allows: a
// loop that hangs sends none, and the manager ends the process.
#pragma once

#include "rtrs/base/clock.h"

namespace rnbd {

// OWNER: the frame of a daemon. THREAD: the reactor's (rtrs/reactor.h).
class Watchdog {
  public:
    // Nothing is sent if the manager did not ask for it (WATCHDOG_USEC, WATCHDOG_PID).
    explicit Watchdog(rtrs::Clock& clock);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // The first keep-alive, and all later ones by themselves.
    void start();

  private:
    void tell();

    rtrs::Clock& clock_;
    rtrs::Duration interval_{};
    rtrs::Timer timer_;
};

}  // namespace rnbd
