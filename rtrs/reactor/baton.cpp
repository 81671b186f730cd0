#include "rtrs/reactor/baton.h"

namespace rtrs {

void Baton::wait() noexcept {
    Waiter self;
    std::unique_lock lock(mutex_);
    waiters_.push_back(self);
    ++waiting_;
    while (!self.handed && !try_take()) self.woken.wait(lock);
    --waiting_;
    if (!self.handed) IntrusiveList<Waiter>::remove(self);
}

void Baton::give_to_waiting() noexcept {
    const std::scoped_lock lock(mutex_);
    if (waiters_.empty()) {
        held_ = false;
        return;
    }
    Waiter& first = waiters_.front();
    if (std::chrono::steady_clock::now() - first.since >= wait_max) {
        first.handed = true;
        IntrusiveList<Waiter>::remove(first);
    } else {
        held_ = false;
    }
    // Under the lock: it ends when it is through.
    first.woken.notify_one();
}

void Baton::wake_one() noexcept {
    const std::scoped_lock lock(mutex_);
    if (!waiters_.empty()) waiters_.front().woken.notify_one();
}

}  // namespace rtrs
