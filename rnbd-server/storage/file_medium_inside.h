// Shared by the files of FileMedium: file_medium.cpp (its life and its changes),
// file_medium_opening.cpp (the steps of its opening) and file_medium_geometry.cpp (its geometry).
#pragma once

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

#include <cstdint>
#include <optional>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage_options.h"
#include "rtrs/base/pages.h"

namespace rnbd::file_medium {

// The page size in the type that a geometry uses.
constexpr std::uint32_t page_bytes = rtrs::page_bytes;

inline bool is_writable(const StorageOptions& options) {
    return options.use == StorageOptions::Use::read_write;
}

inline bool is_read_only_device(int fd) {
    int read_only = 0;
    return ::ioctl(fd, BLKROGET, &read_only) == 0 && read_only != 0;
}

// The number of the disk that is attached to a block device. It changes whenever another disk is
// attached. None: the system does not say.
inline std::optional<std::uint64_t> attachment_number(int fd) {
    std::uint64_t number = 0;
    return ::ioctl(fd, BLKGETDISKSEQ, &number) == 0 ? std::optional(number) : std::nullopt;
}

// True if the file is on FUSE: another process serves it. That process does not know of data in the
// kernel's cache before a flush. It may also keep track of data, and of failed writes, per open
// handle only.
inline bool is_on_fuse(int fd) {
    struct statfs status{};
    return ::fstatfs(fd, &status) == 0 &&
           static_cast<std::uint32_t>(status.f_type) == FUSE_SUPER_MAGIC;
}

}  // namespace rnbd::file_medium
