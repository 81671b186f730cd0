#include "rnbd-server/storage/medium_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "rnbd-server/storage/cache_epoch.h"

namespace rnbd {
namespace {

// When the file was made, which tells it from one that was removed and had the same inode; 0 where
// the file system does not say.
std::uint64_t birth(int fd) {
    struct statx status{};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) != 0) return 0;
    if ((status.stx_mask & STATX_BTIME) == 0) return 0;
    constexpr std::uint64_t nanoseconds_per_second = 1'000'000'000;
    return static_cast<std::uint64_t>(status.stx_btime.tv_sec) * nanoseconds_per_second +
           status.stx_btime.tv_nsec;
}

// First line of an attribute of a block device; empty if it has none.
std::string device_attribute(dev_t device, std::string_view name) {
    std::ifstream file(fmt::format("/sys/dev/block/{}:{}/{}", major(device), minor(device), name));
    std::string text;
    std::getline(file, text);
    return text;
}

// Tells what is attached from what was under the same name before; a partition has its disk's.
// Empty where the system does not say.
std::string attachment(dev_t device) {
    const std::string own = device_attribute(device, "diskseq");
    return own.empty() ? device_attribute(device, "../diskseq") : own;
}

std::uint64_t number_of(std::string_view text) { return std::hash<std::string_view>()(text) | 1; }

}  // namespace

std::uint64_t file_epoch(int fd, const struct stat& status) {
    return mix_epoch(mix_epoch(device_epoch(status.st_dev), status.st_ino), birth(fd));
}

// A copy of a whole file system, a snapshot, has the same file on another device.
std::uint64_t file_number(int fd, const struct stat& status) {
    return mix_epoch(mix_epoch(status.st_ino | std::uint64_t{1} << 63, birth(fd)), status.st_dev);
}

// What the cache had of the disk that was attached before is gone.
std::uint64_t device_epoch(dev_t device) {
    const std::uint64_t epoch = mix_epoch(machine_epoch(), device);
    const std::string sequence = attachment(device);
    return sequence.empty() ? epoch
                            : mix_epoch(epoch, std::strtoull(sequence.c_str(), nullptr, 10));
}

// What a disk says that it is, and which part of it. One that says nothing is another after it was
// attached anew, for all that is known.
std::uint64_t device_number(dev_t device) {
    for (const char* place :
         {"device/wwid", "wwid", "serial", "dm/uuid", "../device/wwid", "../wwid", "../serial"}) {
        const std::string name = device_attribute(device, place);
        if (!name.empty()) return number_of(name + " " + device_attribute(device, "start"));
    }
    return number_of(fmt::format("{}:{} {}", major(device), minor(device), attachment(device)));
}

}  // namespace rnbd
