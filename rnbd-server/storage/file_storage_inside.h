// Shared by the files of FileStorage: file_storage.cpp (its life, and the beginning and end of each
// request), file_storage_transfers.cpp (reads and writes), file_storage_ranges.cpp (requests that
// empty a range), file_storage_durability.cpp (what is on the medium, and what was lost) and
// file_storage_extents.cpp (where there is data).
#pragma once

#include <cerrno>
#include <cstdint>

#include "rnbd-server/storage.h"

namespace rnbd::file_storage {

// Up to this length, data is copied to or from a file in memory by a system call. That takes less
// time than waking one of the ring's threads, which would do it otherwise. Those threads copy
// longer data, beside the loop.
constexpr std::uint64_t move_now_bytes_max = 16u << 10;

// The error of a request that needs a helper thread when there is none to be had.
constexpr int no_thread_error = ENOMEM;

// Whether the request keeps other writers of the file waiting for long, because it empties a range
// or copies much.
inline bool holds_long(const BlockRequest& request) noexcept {
    return request.operation == BlockOperation::discard ||
           request.operation == BlockOperation::write_zeroes ||
           (request.operation == BlockOperation::write && request.bytes > move_now_bytes_max);
}

// Both errors mean that nothing was done, and that the call has to be repeated.
inline bool interrupted(int result) noexcept { return result == -EINTR || result == -EAGAIN; }

}  // namespace rnbd::file_storage
