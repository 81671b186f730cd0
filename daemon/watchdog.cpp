#include "daemon/watchdog.h"

#include <systemd/sd-daemon.h>

#include <chrono>
#include <cstdint>

namespace rnbd {

namespace {

// Zero: nobody waits for keep-alives.
rtrs::Duration asked_for() {
    std::uint64_t microseconds = 0;
    if (::sd_watchdog_enabled(0, &microseconds) <= 0) return {};
    return std::chrono::microseconds(microseconds);
}

}  // namespace

Watchdog::Watchdog(rtrs::Clock& clock)
    : clock_(clock),
      interval_(asked_for() / 2),
      timer_(clock, this, [](void* self) { static_cast<Watchdog*>(self)->tell(); }) {}

void Watchdog::start() {
    if (interval_ > rtrs::Duration::zero()) tell();
}

void Watchdog::tell() {
    ::sd_notify(0, "WATCHDOG=1");
    timer_.arm(clock_.now() + interval_);
}

}  // namespace rnbd
