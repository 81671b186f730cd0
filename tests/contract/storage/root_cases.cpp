// The storages that need root: block devices, and file systems with less ability.
#include "tests/contract/storage/root.h"
#include "tests/contract/storage/support.h"

namespace rnbd::testing {
namespace {

Case device_case(StorageOptions::Io io, std::uint32_t block) {
    const bool direct = io == StorageOptions::Io::direct;
    const std::string name = std::string("loop device, ") + (direct ? "direct" : "buffered") +
                             ", blocks of " + std::to_string(block);
    auto current = std::make_shared<std::unique_ptr<LoopDevice>>();
    return {name, [io, block, current] {
                current->reset();
                *current = std::make_unique<LoopDevice>(case_size_bytes, block);
                return StorageOptions{
                    .path = (*current)->path(), .io = io, .logical_block_bytes = block};
            }};
}

// ramfs has neither holes nor ranges to zero: the plain ways.
Case ramfs_case() {
    return {.name = "file on ramfs", .make = [] {
                static const std::string folder = mount_private("ramfs", "");
                const std::string path = folder + "/image";
                std::filesystem::remove(path);
                return StorageOptions{
                    .path = path, .size_bytes = case_size_bytes, .logical_block_bytes = 512};
            }};
}

Case tmpfs_case() {
    return {.name = "file on tmpfs", .make = [] {
                static const std::string folder = mount_private("tmpfs", "size=8m");
                const std::string path = folder + "/image";
                std::filesystem::remove(path);
                return StorageOptions{
                    .path = path, .size_bytes = case_size_bytes, .logical_block_bytes = 512};
            }};
}

}  // namespace

const std::vector<Case>& cases() {
    if (::geteuid() != 0) skip_program("needs root");
    static const std::vector<Case> all = {
        device_case(StorageOptions::Io::buffered, 512),
        device_case(StorageOptions::Io::direct, 512),
        device_case(StorageOptions::Io::buffered, 4096),
        device_case(StorageOptions::Io::direct, 4096),
        ramfs_case(),
        tmpfs_case(),
    };
    return all;
}

}  // namespace rnbd::testing
