// Functions that other threads leave for the reactor, with an eventfd as the door bell.
//
// OWNER: Reactor. THREAD: post() and ring_bell() on any thread; the rest on the reactor's.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <system_error>
#include <vector>

#include "rtrs/base/descriptor.h"

namespace rtrs {

class Mailbox {
  public:
    Mailbox() = default;
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    std::error_code open();
    // Becomes readable when the bell has rung; eight bytes must be read from it.
    int bell() const noexcept { return bell_.get(); }

    void post(std::function<void()> function);
    void ring_bell() noexcept;
    // To be called when the bell was read: runs what was posted until now, in order.
    void deliver();

  private:
    void ring_bell_locked() noexcept;

    Descriptor bell_;
    std::mutex mutex_;
    bool rung_ = false;                              // guarded by mutex_
    std::vector<std::function<void()>> posted_;      // guarded by mutex_
    std::vector<std::function<void()>> delivering_;  // the reactor's; kept for its capacity
};

}  // namespace rtrs
