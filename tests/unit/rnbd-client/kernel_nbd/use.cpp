#include "rnbd-client/kernel_nbd/use.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace rnbd;
namespace fs = std::filesystem;

namespace {

// Files as the kernel has them, in a folder.
struct Machine {
    Machine() {
        std::string name = (fs::temp_directory_path() / "rnbd-use-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        folder = name;
        disk("nbd0", "43:0");
        disk("nbd1", "43:32");
        write("swaps", "Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n");
        mounts("");
    }
    ~Machine() { fs::remove_all(folder); }

    void write(const fs::path& name, const std::string& text) const {
        fs::create_directories((folder / name).parent_path());
        std::ofstream(folder / name) << text;
    }
    void disk(const fs::path& name, const std::string& number) const {
        write("block" / name / "dev", number + "\n");
        fs::create_directories(folder / "block" / name / "holders");
    }
    void mounts(const std::string& lines) const {
        write("mountinfo", "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n" + lines +
                               "30 21 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw\n");
    }
    KernelFiles files() const {
        return {(folder / "mountinfo").string(), (folder / "swaps").string(),
                (folder / "block").string()};
    }
    std::string use(std::uint32_t index) const { return kernel_device_use(index, files()); }
    std::vector<std::string> partitions(std::uint32_t index) const {
        return kernel_device_partitions(index, files());
    }

    fs::path folder;
};

}  // namespace

TEST_CASE("kernel device use: nobody") {
    const Machine machine;
    CHECK(machine.use(0).empty());
    CHECK(machine.use(7).empty());
}

TEST_CASE("kernel device use: what cannot be read is no use") {
    CHECK(kernel_device_partitions(0, {"/nowhere/a", "/nowhere/b", "/nowhere/c"}).empty());
    CHECK(kernel_device_use(0, {"/nowhere/a", "/nowhere/b", "/nowhere/c"}).empty());
}

TEST_CASE("kernel device use: a mount, whatever name it was mounted by") {
    const Machine machine;
    machine.mounts("50 21 43:0 / /srv/data rw shared:7 master:1 - ext4 /dev/rnbd/host-a/vol1 rw\n");
    CHECK(machine.use(0) == "/dev/nbd0 is mounted on /srv/data");
    CHECK(machine.use(1).empty());
}

TEST_CASE("kernel device use: a mount that has another number") {
    const Machine machine;
    machine.mounts("50 21 0:44 /@ /srv rw - btrfs /dev/nbd1 rw,subvol=/@\n");
    CHECK(machine.use(1) == "/dev/nbd1 is mounted on /srv");
    CHECK(machine.use(0).empty());
}

TEST_CASE("kernel device use: lines that are none") {
    const Machine machine;
    machine.mounts(
        "\n-\n50 21 43:0\n50 21 43:0 / /srv rw\n50 21 43:0 / /srv rw -\n50 21 43:0 / /srv rw - "
        "ext4\n");
    CHECK(machine.use(0).empty());
}

TEST_CASE("kernel device use: a partition") {
    const Machine machine;
    machine.disk("nbd0/nbd0p2", "43:2");
    CHECK(machine.use(0).empty());
    machine.mounts("50 21 43:2 / /srv rw - xfs /dev/nbd0p2 rw\n");
    CHECK(machine.use(0) == "/dev/nbd0p2 is mounted on /srv");
    CHECK(machine.use(1).empty());
    machine.disk("nbd0/nbd0p1", "43:1");
    CHECK(machine.partitions(0) == std::vector<std::string>{"/dev/nbd0p1", "/dev/nbd0p2"});
    CHECK(machine.partitions(1).empty());
}

TEST_CASE("kernel device use: swap") {
    const Machine machine;
    machine.write("swaps",
                  "Filename\t\t\t\tType\t\tSize\tUsed\tPriority\n"
                  "/dev/nbd10                              partition\t65532\t\t0\t\t-2\n");
    CHECK(machine.use(1).empty());
    CHECK(machine.use(10) == "/dev/nbd10 is swapped to");
}

TEST_CASE("kernel device use: another device is made of it") {
    const Machine machine;
    machine.write("block/nbd1/holders/dm-3", "");
    CHECK(machine.use(1) == "/dev/nbd1 is part of dm-3");
}
