// What the files of FileMedium share: file_medium.cpp (its life, and what becomes of it),
// file_medium_opening.cpp (the steps of its opening) and file_medium_geometry.cpp (what it is).
#pragma once

#include <linux/fs.h>
#include <sys/ioctl.h>

#include <cstdint>
#include <optional>

#include "rnbd-server/storage.h"
#include "rtrs/base/pages.h"

namespace rnbd::file_medium {

// As a geometry counts.
constexpr std::uint32_t page_bytes = rtrs::page_bytes;

inline bool is_writable(const StorageOptions& options) {
    return options.use == StorageOptions::Use::read_write;
}

inline bool is_read_only_device(int fd) {
    int read_only = 0;
    return ::ioctl(fd, BLKROGET, &read_only) == 0 && read_only != 0;
}

// Of what is attached to a block device: another number whenever that is another. None: the system
// does not say.
inline std::optional<std::uint64_t> attachment_number(int fd) {
    std::uint64_t number = 0;
    return ::ioctl(fd, BLKGETDISKSEQ, &number) == 0 ? std::optional(number) : std::nullopt;
}

}  // namespace rnbd::file_medium
