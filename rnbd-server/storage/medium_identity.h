// The identity of a medium, and the life of the cache in front of it.
//
//   epoch    of the page cache in front of the medium: if it changes, unflushed data may be lost
//   medium   the medium itself, as far as it can be distinguished from others. A file gets a uuid
//            from its inode, a device from what it says about itself if that is permanent; else
//            there is a number, from what the system says about it now.
//
// Both come from what the system says about the medium (stat, /sys). The functions wait for the
// file system of the file.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "rnbd/medium_id.h"

namespace rnbd {

// status: the fstat(2) result of the open file.
std::uint64_t file_epoch(int fd, const struct stat& status);
MediumId file_medium_id(int fd, const struct stat& status);

std::uint64_t device_epoch(dev_t device);
MediumId device_medium_id(dev_t device);

// The id of a medium that is known only by its place, such as an export of an NBD server, which
// cannot be asked for its identity.
MediumId place_medium_id(std::string_view place);
// The id of a medium that nobody has known before.
MediumId new_medium_id();

}  // namespace rnbd
