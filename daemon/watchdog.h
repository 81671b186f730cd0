// Tells the service manager that the loop still turns (systemd.service(5), WatchdogSec=).
//
// A timer of the loop itself sends keep-alives, two in the time that the manager allows. A loop
// that hangs sends none, and the manager ends the process. With several workers, a keep-alive is
// sent only if each worker has had a turn since the last one, so a worker that hangs prevents it.
#pragma once

#include <cstdint>

#include "rtrs/reactor.h"

namespace rnbd {

// OWNER: the frame of a daemon. THREAD: the reactor's (rtrs/reactor.h).
class Watchdog {
  public:
    // reactor: the first of its group, which ends before this is destroyed. Nothing is sent if the
    // manager has not asked for it (WATCHDOG_USEC, WATCHDOG_PID).
    explicit Watchdog(rtrs::Reactor& reactor);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // Sends the first keep-alive; later ones are sent automatically.
    void start();

  private:
    void tell();
    void is_due();
    void answered();

    rtrs::Reactor& reactor_;
    rtrs::Duration interval_{};
    rtrs::Timer timer_;
    std::uint32_t unanswered_ = 0;  // other workers that have not answered the last question
    bool overdue_ = false;          // the next keep-alive waits for them
};

}  // namespace rnbd
