// What the files of FileStorage share: file_storage.cpp (its life, and each request's beginning and
// end), file_storage_transfers.cpp (reads and writes), file_storage_ranges.cpp (what empties a
// range), file_storage_durability.cpp (what is on the medium, and what was lost) and
// file_storage_extents.cpp (where there is data).
#pragma once

#include <cerrno>
#include <cstdint>

#include "rnbd-server/storage.h"

namespace rnbd::file_storage {

// What is copied to or from a file in memory by a system call, in less time than it takes to wake
// one of the ring's threads, which would do it otherwise. What is larger they may copy beside the
// loop.
constexpr std::uint64_t move_now_bytes_max = 16u << 10;

// Of what wants a helper thread when there is none to be had.
constexpr int no_thread_error = ENOMEM;

// Whether it keeps other writers of the file waiting for as long as it takes to empty a range, or
// to copy much.
inline bool holds_long(const BlockRequest& request) noexcept {
    return request.operation == BlockOperation::discard ||
           request.operation == BlockOperation::write_zeroes ||
           (request.operation == BlockOperation::write && request.bytes > move_now_bytes_max);
}

// Both mean that nothing was done and that trying again is right.
inline bool interrupted(int result) noexcept { return result == -EINTR || result == -EAGAIN; }

}  // namespace rnbd::file_storage
