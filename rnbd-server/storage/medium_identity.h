// Which medium something is, and which life of the cache in front of it.
//
//   epoch    of the page cache in front of it: another one, and what was not flushed may be lost
//   number   of the medium itself, as far as it can be told from others (StorageGeometry::medium)
//
// By what the system tells of it (stat, /sys). Waits for the file system of the file.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>

namespace rnbd {

// status: of the open file.
std::uint64_t file_epoch(int fd, const struct stat& status);
std::uint64_t file_number(int fd, const struct stat& status);

std::uint64_t device_epoch(dev_t device);
std::uint64_t device_number(dev_t device);

}  // namespace rnbd
