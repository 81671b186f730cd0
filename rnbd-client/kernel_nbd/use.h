// Who uses a block device of the kernel, and its partitions, as far as files of proc and sysfs
// tell. Reading them waits for no I/O of the device, so the reactor's thread may, which has to
// answer that I/O.
//
// It is for plans and words: a mount in another namespace is not seen. Whether a device is in use
// is decided when it is opened exclusively (KernelNbd::detach).
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

// "/dev/nbd0 is mounted on /srv", "... is swapped to", "... is part of dm-0"; of its partitions,
// too. Empty: nobody is known.
std::string kernel_device_use(std::uint32_t index, const KernelFiles& files = {});

// "/dev/nbd0p1", and so on, in the order of their names.
std::vector<std::string> kernel_device_partitions(std::uint32_t index,
                                                  const KernelFiles& files = {});

}  // namespace rnbd
