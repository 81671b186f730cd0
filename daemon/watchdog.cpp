#include "daemon/watchdog.h"

#include <systemd/sd-daemon.h>

#include <chrono>
#include <utility>

#include "rtrs/base/member_call.h"

namespace rnbd {

namespace {

// Zero: nobody waits for keep-alives.
rtrs::Duration asked_for() {
    std::uint64_t microseconds = 0;
    if (::sd_watchdog_enabled(0, &microseconds) <= 0) return {};
    return std::chrono::microseconds(microseconds);
}

}  // namespace

Watchdog::Watchdog(rtrs::Reactor& reactor)
    : reactor_(reactor),
      interval_(asked_for() / 2),
      timer_(reactor, this, rtrs::member_call<&Watchdog::is_due>) {}

void Watchdog::start() {
    if (interval_ > rtrs::Duration::zero()) tell();
}

void Watchdog::tell() {
    ::sd_notify(0, "WATCHDOG=1");
    timer_.arm(reactor_.now() + interval_);
    for (std::uint32_t i = 1; i < reactor_.members(); ++i) {
        ++unanswered_;
        reactor_.member(i).post([this] { answered(); });
    }
}

void Watchdog::is_due() {
    overdue_ = unanswered_ > 0;
    if (!overdue_) tell();
}

void Watchdog::answered() {
    if (--unanswered_ == 0 && std::exchange(overdue_, false)) tell();
}

}  // namespace rnbd
