#include "rtrs/reactor/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rtrs {

std::error_code Mailbox::open() {
    // Blocking on purpose: the ring answers a read of a non-blocking descriptor with EAGAIN
    // instead of waiting.
    bell_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
    return bell_ ? std::error_code{} : from_errno(errno);
}

void Mailbox::ring_bell_locked() noexcept {
    if (rung_) return;
    rung_ = true;
    const std::uint64_t one = 1;
    RTRS_ASSERT(::write(bell_.get(), &one, sizeof one) == sizeof one);
}

void Mailbox::post(std::function<void()> function) {
    const std::scoped_lock lock(mutex_);
    posted_.push_back(std::move(function));
    ring_bell_locked();
}

void Mailbox::ring_bell() noexcept {
    const std::scoped_lock lock(mutex_);
    ring_bell_locked();
}

void Mailbox::deliver() {
    {
        const std::scoped_lock lock(mutex_);
        rung_ = false;
        std::swap(posted_, delivering_);
    }
    for (std::function<void()>& function : delivering_) {
        function();
        function = nullptr;  // what it holds goes now, not when the last one has run
    }
    delivering_.clear();
}

}  // namespace rtrs
