// Which medium something is, and which life of the cache in front of it.
//
//   epoch    of the page cache in front of it: another one, and what was not flushed may be lost
//   medium   itself, as far as it can be told from others. A file has a uuid by its inode, a device
//            by what it says that it is, where that lasts; else there is a number, by what the
//            system says of it now.
//
// By what the system tells of it (stat, /sys). Waits for the file system of the file.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "rnbd/medium_id.h"

namespace rnbd {

// status: of the open file.
std::uint64_t file_epoch(int fd, const struct stat& status);
MediumId file_medium_id(int fd, const struct stat& status);

std::uint64_t device_epoch(dev_t device);
MediumId device_medium_id(dev_t device);

// Of what is known by its place alone, as an NBD server: what is there cannot be asked.
MediumId place_medium_id(std::string_view place);
// Of one that nobody has known before.
MediumId new_medium_id();

}  // namespace rnbd
