#include "rnbd-server/storage/medium_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <uuid/uuid.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "rnbd-server/storage/cache_epoch.h"
#include "rtrs/base/random.h"

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

// What a disk says that it is, and which part of it. Empty if it says nothing.
std::string device_name(dev_t device) {
    for (const char* place :
         {"device/wwid", "wwid", "serial", "dm/uuid", "../device/wwid", "../wwid", "../serial"}) {
        const std::string name = device_attribute(device, place);
        if (!name.empty()) return name + " " + device_attribute(device, "start");
    }
    return {};
}

// Of this process: what is numbered means nothing to another one.
std::uint64_t process_life() {
    static const std::uint64_t life = rtrs::Random::from_entropy().next() | 1;
    return life;
}

MediumId numbered(std::uint64_t number) { return {.life = process_life(), .number = number | 1}; }

MediumId numbered(std::string_view text) { return numbered(std::hash<std::string_view>()(text)); }

// Names that are made of names (RFC 4122, version 5), within a name space of our own.
Uuid uuid_of(std::string_view name) {
    constexpr uuid_t name_space{0x3f, 0x52, 0x0d, 0x7e, 0x9c, 0x1b, 0x4e, 0x5a,
                                0x8d, 0x26, 0x71, 0x0b, 0xc4, 0x93, 0xe8, 0x5f};
    Uuid uuid;
    ::uuid_generate_sha1(reinterpret_cast<unsigned char*>(uuid.bytes.data()), name_space,
                         name.data(), name.size());
    return uuid;
}

// By which its file system finds it again, on whatever machine and under whatever name: an inode,
// and how often that was used anew. Empty where that is not so for ever, as on FUSE and overlays,
// or depends on another machine.
std::string handle_of(int fd) {
    struct statfs status{};
    if (::fstatfs(fd, &status) != 0) return {};
    constexpr std::uint32_t zfs_magic = 0x2fc12fc1;
    constexpr std::array lasting{std::uint32_t{EXT4_SUPER_MAGIC},  std::uint32_t{XFS_SUPER_MAGIC},
                                 std::uint32_t{BTRFS_SUPER_MAGIC}, std::uint32_t{F2FS_SUPER_MAGIC},
                                 std::uint32_t{TMPFS_MAGIC},       zfs_magic};
    if (std::ranges::find(lasting, static_cast<std::uint32_t>(status.f_type)) == lasting.end()) {
        return {};
    }
    constexpr std::size_t room = MAX_HANDLE_SZ;
    alignas(struct ::file_handle) std::array<char, sizeof(struct ::file_handle) + room> memory{};
    auto* const handle = reinterpret_cast<struct ::file_handle*>(memory.data());
    handle->handle_bytes = room;
    int mount = 0;
    if (::name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) != 0) return {};
    return fmt::format("{:x} {:x} ", status.f_type, handle->handle_type) +
           std::string(reinterpret_cast<const char*>(handle->f_handle), handle->handle_bytes);
}

}  // namespace

std::uint64_t file_epoch(int fd, const struct stat& status) {
    return mix_epoch(mix_epoch(device_epoch(status.st_dev), status.st_ino), birth(fd));
}

// A copy of a whole file system, a snapshot, has the same file on another device. Not told by
// st_dev, which may be another one when it is mounted again, but by the device mapper's name.
MediumId file_medium_id(int fd, const struct stat& status) {
    const std::string handle = handle_of(fd);
    if (handle.empty()) {
        return numbered(
            fmt::format("file {} {} {}", status.st_ino, birth(fd), std::uint64_t{status.st_dev}));
    }
    const std::string file =
        fmt::format("file {} {} {}", birth(fd), device_attribute(status.st_dev, "dm/uuid"), handle);
    MediumId id = numbered(file);
    id.uuid = uuid_of(file);
    return id;
}

// What the cache had of the disk that was attached before is gone.
std::uint64_t device_epoch(dev_t device) {
    const std::uint64_t epoch = mix_epoch(machine_epoch(), device);
    const std::string sequence = attachment(device);
    return sequence.empty() ? epoch
                            : mix_epoch(epoch, std::strtoull(sequence.c_str(), nullptr, 10));
}

// One that says nothing of itself is another after it was attached anew, for all that is known.
MediumId device_medium_id(dev_t device) {
    if (const std::string name = device_name(device); !name.empty()) {
        MediumId id = numbered(name);
        id.uuid = uuid_of("device " + name);
        return id;
    }
    return numbered(fmt::format("{}:{} {}", major(device), minor(device), attachment(device)));
}

MediumId place_medium_id(std::string_view place) { return numbered(place); }

MediumId new_medium_id() { return numbered(rtrs::Random::from_entropy().next()); }

}  // namespace rnbd
