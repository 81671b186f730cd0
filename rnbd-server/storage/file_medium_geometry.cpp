#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "rnbd-server/storage/cache_epoch.h"
#include "rnbd-server/storage/device_queue.h"
#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage/file_medium_inside.h"
#include "rnbd-server/storage/medium_identity.h"

namespace rnbd {

using file_medium::is_on_fuse;
using file_medium::is_read_only_device;
using file_medium::is_writable;
using file_medium::page_bytes;

namespace {

// One request's limit; the kernel splits by what the medium can do at once.
constexpr std::uint64_t range_bytes_max = 1u << 30;
constexpr std::uint64_t physical_block_bytes_max = 64u << 10;

// Nothing is there beyond the end, so nothing changes; but a file system that cannot says so.
bool can_punch_holes(int fd, std::uint64_t size_bytes) {
    return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(size_bytes), page_bytes) == 0;
}

}  // namespace

FileMedium::Step FileMedium::measure_regular(const StorageOptions& options) {
    struct stat status{};
    if (::fstat(fd(), &status) != 0) return failure(errno, "cannot be examined");
    auto size = static_cast<std::uint64_t>(status.st_size);
    if (size == 0 && options.size_bytes && is_writable(options)) {
        // Created by a process that died before it came to give it a size, or by touch(1).
        if (::ftruncate(fd(), static_cast<off_t>(*options.size_bytes)) != 0) {
            return failure(errno, "is empty and cannot be given its size");
        }
        size = *options.size_bytes;
    }
    if (size == 0) return failure(EINVAL, "is empty; give it a size with truncate(1)");
    if (size % options.logical_block_bytes != 0) {
        return failure(EINVAL, fmt::format("its size of {} bytes is not a multiple of the block "
                                           "size {}",
                                           size, options.logical_block_bytes));
    }
    const bool punches = is_writable(options) && can_punch_holes(fd(), size);
    const auto preferred = static_cast<std::uint64_t>(status.st_blksize);
    const bool usable = std::has_single_bit(preferred) && preferred <= physical_block_bytes_max;
    geometry_ = {.size_bytes = size,
                 .logical_block_bytes = options.logical_block_bytes,
                 .physical_block_bytes =
                     std::max(usable ? static_cast<std::uint32_t>(preferred) : page_bytes,
                              options.logical_block_bytes),
                 .discard_bytes_max = punches ? range_bytes_max : 0,
                 .discard_granularity_bytes = punches ? page_bytes : 0,
                 .write_zeroes_bytes_max = is_writable(options) ? range_bytes_max : 0,
                 .fast_zero = punches,
                 .volatile_cache = true,
                 .force_unit_access = true,
                 // Its process may call a hole what was written and is in the kernel's cache yet.
                 .extents = !is_on_fuse(fd()),
                 .cache_epoch = file_epoch(fd(), status),
                 .medium = file_medium_id(fd(), status)};
    return {};
}

FileMedium::Step FileMedium::measure_device(const StorageOptions& options) {
    std::uint64_t size = 0;
    int logical = 0;
    unsigned physical = 0;
    if (::ioctl(fd(), BLKGETSIZE64, &size) != 0 || ::ioctl(fd(), BLKSSZGET, &logical) != 0 ||
        ::ioctl(fd(), BLKPBSZGET, &physical) != 0) {
        return failure(errno, "does not tell its size");
    }
    if (size == 0) return failure(EINVAL, "has no medium (size 0)");
    if (is_writable(options) && is_read_only_device(fd())) return read_only_device();
    if (options.size_bytes && *options.size_bytes != size) {
        return failure(EINVAL, fmt::format("the device has {} bytes, the configuration says {}; "
                                           "leave the size out",
                                           size, *options.size_bytes));
    }
    if (static_cast<std::uint32_t>(logical) > options.logical_block_bytes) {
        return failure(EINVAL, fmt::format("the device's blocks have {} bytes; set block_size: {}",
                                           logical, logical));
    }
    if (size % options.logical_block_bytes != 0) {
        return failure(EINVAL, fmt::format("its size of {} bytes is not a multiple of the block "
                                           "size {}",
                                           size, options.logical_block_bytes));
    }
    const bool writable = is_writable(options);
    const bool discards = writable && queue_number(device_, "discard_max_bytes") > 0;
    const auto granularity =
        static_cast<std::uint32_t>(queue_number(device_, "discard_granularity"));
    const bool written_through = options.io == StorageOptions::Io::direct &&
                                 queue_attribute(device_, "write_cache") == "write through";
    geometry_ = {.size_bytes = size,
                 .logical_block_bytes = options.logical_block_bytes,
                 .physical_block_bytes = std::max(physical, options.logical_block_bytes),
                 .discard_bytes_max = discards ? range_bytes_max : 0,
                 .discard_granularity_bytes =
                     discards ? std::max(granularity, options.logical_block_bytes) : 0,
                 .write_zeroes_bytes_max = writable ? range_bytes_max : 0,
                 .fast_zero = writable && queue_number(device_, "write_zeroes_max_bytes") > 0,
                 .volatile_cache = !written_through,
                 .force_unit_access = true,
                 .extents = false,
                 .cache_epoch = written_through ? epoch_without_cache : device_epoch(device_),
                 .medium = device_medium_id(device_)};
    return {};
}

}  // namespace rnbd
