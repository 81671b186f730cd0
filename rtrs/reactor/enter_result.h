// What io_uring_enter(2) says.
#pragma once

#include <cerrno>

namespace rtrs {

// Whether it is part of life: a signal, or a kernel that is short of memory and takes the entries
// the next time; ETIME also, where there was a timeout. All others are bugs of ours, among them
// EEXIST (a second thread) and EBADR (a completion was lost).
inline bool harmless(int result) noexcept {
    switch (-result) {
        case EINTR:
        case EAGAIN:
        case EBUSY:
        case ENOMEM:
            return true;
        default:
            return result >= 0;
    }
}

}  // namespace rtrs
