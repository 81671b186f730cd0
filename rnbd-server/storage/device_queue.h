// What the kernel says about the queue of a block device (SOURCE: the kernel's
// Documentation/ABI/stable/sysfs-block).
//
// THREAD: any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rnbd {

// The first word of an attribute of a block device's queue; for a partition, of its disk's queue.
std::optional<std::string> queue_attribute(dev_t device, std::string_view name);
// The same as a number; 0 if there is none.
std::uint64_t queue_number(dev_t device, std::string_view name);

}  // namespace rnbd
