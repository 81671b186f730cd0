// How long a stream socket that has announced its end is kept open for a peer that still takes what
// was sent before. Closing a TCP socket that has unread bytes, or receives some later, causes a
// reset, and all that the peer has not taken yet is lost.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <chrono>
#include <utility>

#include "rtrs/base/instant.h"

namespace rtrs {

class LastBytes {
  public:
    static constexpr Duration interval = std::chrono::milliseconds(500);
    // The limit for a peer that keeps taking a little.
    static constexpr Duration time_max = std::chrono::seconds(5);

    // fd: the socket's. After each `interval`, goes_on() is to be asked.
    LastBytes(int fd, Instant now) noexcept
        : fd_(fd), bytes_(unacknowledged()), end_(now + time_max) {}
    // False: the peer has everything, or takes nothing any more, or has had its time.
    bool goes_on(Instant now) noexcept {
        const int before = std::exchange(bytes_, unacknowledged());
        return bytes_ > 0 && bytes_ < before && now < end_;
    }

  private:
    // How many sent bytes the peer's side of the network has not acknowledged; 0 if that is not
    // known.
    int unacknowledged() const noexcept {
        int bytes = 0;
        return ::ioctl(fd_, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
    }

    int fd_;
    int bytes_;
    Instant end_;
};

}  // namespace rtrs
