// How long a stream socket that has said its end is kept open, for a peer that still takes what was
// sent before. To close a TCP socket that has unread bytes, or gets some later, is a reset, with
// which all that the peer has not taken yet is gone.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <chrono>
#include <utility>

#include "rtrs/base/instant.h"

namespace rtrs {

class LastBytes {
  public:
    static constexpr Duration patience = std::chrono::milliseconds(500);
    // For a peer that takes a little again and again.
    static constexpr Duration patience_max = std::chrono::seconds(5);

    // fd: of the socket. Each patience it is to be asked whether the peer goes on.
    LastBytes(int fd, Instant now) noexcept
        : fd_(fd), bytes_(unacknowledged()), end_(now + patience_max) {}
    // False: it has all, or takes nothing any more, or has had its time.
    bool goes_on(Instant now) noexcept {
        const int before = std::exchange(bytes_, unacknowledged());
        return bytes_ > 0 && bytes_ < before && now < end_;
    }

  private:
    // By the peer's side of the network, of what was sent; 0 if that is not known.
    int unacknowledged() const noexcept {
        int bytes = 0;
        return ::ioctl(fd_, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
    }

    int fd_;
    int bytes_;
    Instant end_;
};

}  // namespace rtrs
