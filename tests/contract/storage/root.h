// A private mount namespace with small file systems, and loop devices. What is not possible here
// ends the program as skipped.
#pragma once

#include <cstdint>
#include <string>

namespace rnbd::testing {

// Prints why and exits with the code that CTest takes for "skipped".
[[noreturn]] void skip_program(const std::string& reason);

// A new mount of its own, gone with the process (options: as mount(8) -o takes them).
std::string mount_private(const std::string& type, const std::string& options);

class LoopDevice;
// The same for an "ext2" or "ext4" that is made on the device; empty if that is not possible here.
constexpr std::uint64_t ext_block_bytes = 4096;
std::string mount_ext(const std::string& type, const LoopDevice& device);

class LoopDevice {
  public:
    enum class Rights : std::uint8_t { all, read_only };
    // on_ramfs: it can neither discard nor zero a range by itself.
    enum class Backing : std::uint8_t { on_tmpfs, on_ramfs };
    // Over an unnamed file of that size.
    LoopDevice(std::uint64_t bytes, std::uint32_t block_bytes, Rights rights = Rights::all,
               Backing backing = Backing::on_tmpfs);
    ~LoopDevice();
    LoopDevice(const LoopDevice&) = delete;
    LoopDevice& operator=(const LoopDevice&) = delete;
    const std::string& path() const { return path_; }
    // Another file of that size, under those who have it open. ASSUMES: it is read only.
    bool change_disk(std::uint64_t bytes);
    // Its file is cut or grows, and the device with it.
    bool resize(std::uint64_t bytes);
    // From now on writing to blocks that were never written fails.
    void take_its_room();
    void give_its_room_back();

  private:
    std::string path_;
    int holder_ = -1;  // keeps it set up
    int file_ = -1;
    int filler_ = -1;
};

}  // namespace rnbd::testing
