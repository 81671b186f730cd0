// Who uses a block device of the kernel, and its partitions, as far as files in proc and sysfs
// show. Reading them waits for no I/O of the device, so the reactor's thread, which has to answer
// that I/O, may do it.
//
// The result is only for planning and for messages: a mount in another namespace is not visible.
// Whether a device is in use is decided by opening it exclusively (KernelNbd::detach()).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rnbd {

struct KernelFiles {
    std::string mountinfo = "/proc/self/mountinfo";
    std::string swaps = "/proc/swaps";
    std::string block = "/sys/block";
};

// "/dev/nbd0 is mounted on /srv", "... is swapped to", "... is part of dm-0"; also for its
// partitions. Empty: no user is known.
std::string kernel_device_use(std::uint32_t index, const KernelFiles& files = {});

// The partitions, as "/dev/nbd0p1", in the order of their names.
std::vector<std::string> kernel_device_partitions(std::uint32_t index,
                                                  const KernelFiles& files = {});

}  // namespace rnbd
