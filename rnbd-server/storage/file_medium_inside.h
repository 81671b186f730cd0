// What the files of FileMedium share: file_medium.cpp (its life, and what becomes of it),
// file_medium_opening.cpp (the steps of its opening) and file_medium_geometry.cpp (what it is).
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

// Another process serves it. What the kernel's cache has for that one, it does not know of before a
// flush; and what it keeps or has failed to write itself, it may know of a handle alone.
inline bool is_on_fuse(int fd) {
    struct statfs status{};
    return ::fstatfs(fd, &status) == 0 &&
           static_cast<std::uint32_t>(status.f_type) == FUSE_SUPER_MAGIC;
}

}  // namespace rnbd::file_medium
