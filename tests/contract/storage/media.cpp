// Media that are full, read only, or without an ability; block devices' own rules. Needs root.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <deque>
#include <vector>

#include "rnbd-server/storage/file_medium.h"
#include "tests/contract/storage/root.h"
#include "tests/contract/storage/support.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

TEST_CASE("media: a full file system is ENOSPC, and goes on when there is room again") {
    if (::geteuid() != 0) skip_program("needs root");
    const std::string folder = mount_private("tmpfs", "size=1m");
    Bench bench;
    REQUIRE(!bench.open({.path = folder + "/image", .size_bytes = 4u << 20}));
    Pages pages(2u << 20);
    pages.fill(0x33);
    REQUIRE(bench.write(0, pages.bytes()) == ENOSPC);
    REQUIRE(bench.write(3u << 20, pages.bytes().first(4096), Flag::fua) == ENOSPC);
    REQUIRE(bench.write_zeroes(0, 2u << 20, Flag::no_unmap) == ENOSPC);
    REQUIRE(bench.discard(0, 2u << 20) == 0);
    REQUIRE(bench.write(3u << 20, pages.bytes().first(4096)) == 0);
}

TEST_CASE("media: small reads and writes of a file in memory are done at once") {
    if (::geteuid() != 0) skip_program("needs root");
    struct sysinfo machine{};
    if (::sysinfo(&machine) != 0 || machine.totalswap > 0) {
        skip("this machine has swap, which those might wait for");
        return;
    }
    const std::string folder = mount_private("tmpfs", "size=1m");
    Bench bench;
    REQUIRE(!bench.open({.path = folder + "/image", .size_bytes = 4u << 20}));
    const auto done = [&] { return bench.reactor->statistics().early_writes; };
    Pages pages(2u << 20);
    pages.fill(0x44);
    REQUIRE(bench.write(4096, pages.bytes().first(16384)) == 0);
    REQUIRE(bench.write(0, pages.bytes().first(4096), Flag::fua) == 0);
    CHECK(done() == 2);
    // By the ring's threads, beside the loop.
    REQUIRE(bench.write(0, pages.bytes().first(32768)) == 0);
    CHECK(done() == 2);
    Pages found(32768);
    REQUIRE(bench.read(0, found.bytes()) == 0);
    CHECK(found.all(0x44, 0, 32768));
    CHECK(bench.reactor->statistics().early_reads == 0);
    Pages little(4096);
    REQUIRE(bench.read(8192, little.bytes()) == 0);
    CHECK(little.all(0x44, 0, 4096));
    REQUIRE(bench.read(1u << 20, little.bytes()) == 0);  // a hole
    CHECK(little.all(0, 0, 4096));
    CHECK(bench.reactor->statistics().early_reads == 2);
    // What could not be written is tried by the ring, which says why.
    REQUIRE(bench.write(1u << 20, pages.bytes()) == ENOSPC);
    REQUIRE(bench.write(3u << 20, pages.bytes().first(8192)) == ENOSPC);
    CHECK(done() == 3);
    // Not while the file's lock may be held for long: the loop would wait.
    TestRequest discard;
    discard.operation = BlockOperation::discard;
    discard.bytes = 2u << 20;
    bench.submit(discard);
    const auto before = done();
    REQUIRE(bench.write(2u << 20, pages.bytes().first(4096)) == 0);
    CHECK(done() == before);
    bench.finish(discard);
    REQUIRE(!discard.error);
    REQUIRE(bench.write(2u << 20, pages.bytes().first(4096)) == 0);
    CHECK(done() == before + 1);
    bench.reactor->set_prompt_storage(false);
    REQUIRE(bench.write(0, pages.bytes().first(4096)) == 0);
    CHECK(done() == before + 1);
}

TEST_CASE("media: of many direct requests under way none is forgotten") {
    const bool on_disk = GENERATE(true, false);
    TemporaryFolder disk;
    if (!on_disk && ::geteuid() != 0) skip_program("needs root");
    const std::string path =
        on_disk ? disk.file("image") : mount_private("tmpfs", "size=4m") + "/image";
    StorageOptions options{.path = path, .size_bytes = 1u << 20};
    options.io = StorageOptions::Io::direct;
    options.logical_block_bytes = 4096;
    Bench bench;
    const std::error_code refused = bench.open(options);
    if (!on_disk && refused) {
        skip_part("direct I/O on tmpfs, which Linux before 6.6 refuses");
        return;
    }
    REQUIRE(!refused);
    constexpr std::size_t many = 80;
    Pages pages(many * 4096);
    for (std::size_t i = 0; i < many * 4096; ++i) {
        pages.bytes()[i] = static_cast<std::byte>(i / 4096 + i);
    }
    const std::vector<std::byte> content(pages.bytes().begin(), pages.bytes().end());
    for (const auto operation :
         {BlockOperation::write, BlockOperation::read, BlockOperation::read}) {
        if (operation == BlockOperation::read) std::ranges::fill(pages.bytes(), std::byte{});
        std::deque<TestRequest> requests(many);
        for (std::size_t i = 0; i < many; ++i) {
            requests[i].operation = operation;
            requests[i].offset = i * 4096;
            requests[i].bytes = 4096;
            requests[i].data = pages.bytes().subspan(i * 4096, 4096);
            bench.submit_in_a_turn(requests[i]);
        }
        for (TestRequest& request : requests) {
            bench.finish(request);
            REQUIRE(!request.error);
        }
        REQUIRE(std::ranges::equal(pages.bytes(), content));
    }
}

TEST_CASE("media: a write with FUA that has no room, while others make some, loses nothing") {
    if (::geteuid() != 0) skip_program("needs root");
    const std::string folder = mount_private("tmpfs", "size=1m");
    Bench bench;
    REQUIRE(!bench.open({.path = folder + "/image", .size_bytes = 4u << 20}));
    Pages pages(2u << 20);
    int without_room = 0;
    for (int round = 0; round < 300; ++round) {
        REQUIRE(bench.write(0, pages.bytes()) == ENOSPC);
        TestRequest write;
        write.operation = BlockOperation::write;
        write.offset = 3u << 20;
        write.bytes = 4096;
        write.data = pages.bytes().first(4096);
        write.force_unit_access = true;
        TestRequest discard;
        discard.operation = BlockOperation::discard;
        discard.bytes = 2u << 20;
        bench.submit(write);
        bench.submit(discard);
        bench.finish(write);
        bench.finish(discard);
        if (write.error.value() == ENOSPC) ++without_room;
        REQUIRE(write.failed_alone == (write.error.value() == ENOSPC));
        REQUIRE((!write.error || write.error.value() == ENOSPC));
        REQUIRE(bench.flush() == 0);
        REQUIRE(bench.discard(0, 4u << 20) == 0);
    }
    REQUIRE(without_room > 0);
}

TEST_CASE("media: zeroes that have no room bring nothing to light that was overwritten") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(16u << 20, 512);
    const std::string folder = mount_ext("ext4", device);
    if (folder.empty()) {
        skip("no ext4 here");
        return;
    }
    constexpr std::uint64_t hole_bytes = 32u << 20;
    Bench bench;
    REQUIRE(!bench.open({.path = folder + "/image", .size_bytes = 2 * hole_bytes}));
    Pages pages(256u << 10);
    pages.fill(0x11);
    REQUIRE(bench.write(hole_bytes, pages.bytes()) == 0);
    REQUIRE(bench.flush() == 0);
    pages.fill(0x22);
    REQUIRE(bench.write(hole_bytes, pages.bytes()) == 0);  // acknowledged, in the page cache
    REQUIRE(bench.write_zeroes(0, hole_bytes + pages.bytes().size(), Flag::no_unmap) == ENOSPC);
    REQUIRE(bench.read(hole_bytes, pages.bytes()) == 0);
    for (std::size_t i = 0; i < pages.bytes().size(); i += 512) {
        REQUIRE((pages.all(0x22, i, 512) || pages.all(0, i, 512)));
    }
}

TEST_CASE("media: a file that was removed and made anew is another one") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(16u << 20, 512);
    const std::string folder = mount_ext("ext4", device);  // it takes the freed inode again
    if (folder.empty()) {
        skip("no ext4 here");
        return;
    }
    const StorageOptions options{.path = folder + "/image", .size_bytes = 1u << 20};
    Bench bench;
    REQUIRE(!bench.open(options));
    const std::uint64_t epoch = bench.storage->geometry().cache_epoch;
    bench.close();
    REQUIRE(!bench.open(options));
    REQUIRE(bench.storage->geometry().cache_epoch == epoch);
    bench.close();
    REQUIRE(::unlink(options.path.c_str()) == 0);
    REQUIRE(!bench.open(options));
    REQUIRE(bench.storage->geometry().cache_epoch != epoch);
}

TEST_CASE("media: a read-only file system is EROFS for writers, and readers are welcome") {
    if (::geteuid() != 0) skip_program("needs root");
    const std::string folder = mount_private("tmpfs", "size=1m");
    StorageOptions options{.path = folder + "/image", .size_bytes = 65536};
    Bench bench;
    REQUIRE(!bench.open(options));
    bench.close();
    REQUIRE(::mount(nullptr, folder.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0);
    REQUIRE(bench.open(options) == std::errc::read_only_file_system);
    // What to do about it is said as the configuration calls it.
    const auto refused = FileMedium::open(options);
    REQUIRE(!refused);
    REQUIRE(refused.error().text.find("set read_only: true") != std::string::npos);
    StorageOptions absent = options;
    absent.path += "-absent";
    REQUIRE(bench.open(absent) == std::errc::read_only_file_system);
    options.use = StorageOptions::Use::read_only;
    REQUIRE(!bench.open(options));
    Pages pages(4096);
    REQUIRE(bench.read(0, pages.bytes()) == 0);
}

TEST_CASE("media: without holes there is no discard and no fast zeroing, but zeroes get written") {
    if (::geteuid() != 0) skip_program("needs root");
    const std::string folder = mount_private("ramfs", "");
    Bench bench;
    REQUIRE(!bench.open({.path = folder + "/image", .size_bytes = 4u << 20}));
    REQUIRE(bench.storage->geometry().discard_bytes_max == 0);
    REQUIRE(!bench.storage->geometry().fast_zero);
    REQUIRE(bench.discard(0, 65536) == EOPNOTSUPP);
    // What the first one tries may have done something, what is not tried has not.
    REQUIRE(bench.write_zeroes(0, 65536, Flag::fast) == EOPNOTSUPP);
    REQUIRE(bench.write_zeroes(0, 65536, Flag::fast) == EOPNOTSUPP);
    REQUIRE(bench.failed_alone);
    Pages pages(3u << 20);
    pages.fill(0x44);
    REQUIRE(bench.write(0, pages.bytes()) == 0);
    REQUIRE(bench.write_zeroes(512, (3u << 20) - 1024, Flag::fua) == 0);  // several pieces
    REQUIRE(bench.read(0, pages.bytes()) == 0);
    REQUIRE(pages.all(0x44, 0, 512));
    REQUIRE(pages.all(0, 512, (3u << 20) - 1024));
    REQUIRE(pages.all(0x44, (3u << 20) - 512, 512));
}

TEST_CASE("media: a device that cannot zero quickly says so, and keeps what was written") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(4u << 20, 512, LoopDevice::Rights::all, LoopDevice::Backing::on_ramfs);
    Bench bench;
    REQUIRE(!bench.open({.path = device.path()}));
    REQUIRE(!bench.storage->geometry().fast_zero);
    Pages pages(65536);
    pages.fill(0x33);
    REQUIRE(bench.write(0, pages.bytes()) == 0);  // acknowledged, in the page cache
    REQUIRE(bench.write_zeroes(4096, 8192, Flag::fast) == EOPNOTSUPP);
    REQUIRE(bench.discard(16384, 8192) == EOPNOTSUPP);
    REQUIRE(bench.read(0, pages.bytes()) == 0);
    REQUIRE(pages.all(0x33, 0, 65536));
    REQUIRE(bench.write_zeroes(4096, 8192) == 0);
    REQUIRE(bench.read(0, pages.bytes()) == 0);
    REQUIRE(pages.all(0, 4096, 8192));
    REQUIRE(pages.all(0x33, 12288, 65536 - 12288));
}

TEST_CASE("media: a device's size and block size are its own") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(1u << 20, 4096);
    Bench bench;
    REQUIRE(bench.open({.path = device.path(), .logical_block_bytes = 512}) ==
            std::errc::invalid_argument);
    REQUIRE(
        bench.open({.path = device.path(), .size_bytes = 2u << 20, .logical_block_bytes = 4096}) ==
        std::errc::invalid_argument);
    REQUIRE(
        !bench.open({.path = device.path(), .size_bytes = 1u << 20, .logical_block_bytes = 4096}));
    REQUIRE(bench.storage->geometry().size_bytes == 1u << 20);
    REQUIRE(bench.storage->description() == "device " + device.path());
    REQUIRE(!bench.storage->check());
}

TEST_CASE("media: what a device itself fails may be more than the write that is told") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(8u << 20, 512);
    device.take_its_room();
    Bench bench;
    REQUIRE(!bench.open({.path = device.path(), .io = StorageOptions::Io::direct}));
    Pages pages(65536);
    REQUIRE(bench.write(1u << 20, pages.bytes(), Flag::fua) != 0);
    REQUIRE(!bench.failed_alone);
}

TEST_CASE("media: a device has one writer; who mounts or claims it is told apart") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(1u << 20, 512);
    Bench first;
    Bench second;
    const StorageOptions options{.path = device.path()};
    StorageOptions read_only = options;
    read_only.use = StorageOptions::Use::read_only;
    REQUIRE(!first.open(options));
    REQUIRE(second.open(options));
    REQUIRE(second.open(read_only) == std::errc::operation_would_block);
    first.close();
    REQUIRE(!first.open(read_only));
    REQUIRE(!second.open(read_only));
    REQUIRE(first.write_zeroes(0, 4096) == EROFS);
    first.close();
    second.close();
    const int claimed = ::open(device.path().c_str(), O_RDONLY | O_EXCL | O_CLOEXEC);
    REQUIRE(claimed >= 0);
    REQUIRE(first.open(options) == std::errc::device_or_resource_busy);
    ::close(claimed);
    REQUIRE(!first.open(options));
}

TEST_CASE("media: a device that was set read only is EROFS for writers") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(1u << 20, 512);
    const int fd = ::open(device.path().c_str(), O_RDONLY | O_CLOEXEC);
    int on = 1;
    REQUIRE(::ioctl(fd, BLKROSET, &on) == 0);
    ::close(fd);
    Bench bench;
    StorageOptions options{.path = device.path()};
    REQUIRE(bench.open(options) == std::errc::read_only_file_system);
    options.use = StorageOptions::Use::read_only;
    REQUIRE(!bench.open(options));
}

TEST_CASE("media: a device that was given another disk is not what was opened") {
    if (::geteuid() != 0) skip_program("needs root");
    LoopDevice device(1u << 20, 512, LoopDevice::Rights::read_only);
    const StorageOptions options{.path = device.path(), .use = StorageOptions::Use::read_only};
    Bench bench;
    REQUIRE(!bench.open(options));
    const MediumId first = bench.storage->geometry().medium;
    CHECK(!bench.storage->check());
    REQUIRE(device.change_disk(1u << 20));
    CHECK(bench.storage->check() == std::errc::no_such_file_or_directory);
    bench.close();
    REQUIRE(!bench.open(options));
    CHECK(!bench.storage->check());
    CHECK(first.rules_out(bench.storage->geometry().medium));
}

TEST_CASE("media: what others have cut off a device is lost, also when it has grown again") {
    if (::geteuid() != 0) skip_program("needs root");
    const auto io = GENERATE(StorageOptions::Io::buffered, StorageOptions::Io::direct);
    LoopDevice device(4u << 20, 512);
    Bench bench;
    REQUIRE(!bench.open({.path = device.path(), .io = io}));
    Pages pages(65536);
    pages.fill(0x66);
    REQUIRE(bench.write(0, pages.bytes(), Flag::fua) == 0);
    REQUIRE(bench.write(3u << 20, pages.bytes(), Flag::fua) == 0);
    for (const std::uint64_t bytes : {2u << 20, 4u << 20}) {
        REQUIRE(device.resize(bytes));
        CHECK(!bench.storage->check());
        CHECK(bench.storage->last_measured() == bytes);
        CHECK(bench.read(3u << 20, pages.bytes()) == EIO);
        CHECK(bench.write(3u << 20, pages.bytes()) == EIO);
        CHECK(bench.discard(3u << 20, 65536) == EIO);
        CHECK(bench.flush() == 0);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        CHECK(pages.all(0x66, 0, 65536));
    }
    // Whoever gives it a size has been told.
    REQUIRE(bench.storage->resize(4u << 20));
    CHECK(!bench.storage->check());
    CHECK(bench.read(3u << 20, pages.bytes()) == 0);
}

TEST_CASE("media: once something could not be written back, no flush succeeds any more") {
    if (::geteuid() != 0) skip_program("needs root");
    const auto told_by = GENERATE(Flag::none, Flag::fua);
    LoopDevice device(8u << 20, 512);
    device.take_its_room();
    Bench bench;
    REQUIRE(!bench.open({.path = device.path()}));
    Pages pages(65536);
    pages.fill(0x55);
    REQUIRE(bench.write(1u << 20, pages.bytes()) == 0);  // acknowledged, in the page cache
    if (told_by == Flag::fua) {
        // The system tells the first who asks; here one who has not asked for this.
        REQUIRE(bench.write(2u << 20, pages.bytes(), Flag::fua) == EIO);
        REQUIRE(!bench.failed_alone);
    } else {
        REQUIRE(bench.flush() == EIO);
    }
    REQUIRE(bench.flush() == EIO);
    REQUIRE(bench.discard(0, 65536, Flag::fua) == EIO);
}

namespace {

constexpr std::uint64_t image_bytes = 128u << 10;

// An image on a file system whose device fails to write back what another descriptor has written to
// it; its own descriptors have not been told yet. The device has its room again then.
struct FileWithFailure {
    LoopDevice device{16u << 20, 512};
    std::string folder = mount_ext("ext2", device);
    std::string image = folder + "/image";

    bool usable() const {
        if (folder.empty()) skip("no ext2 here");
        return !folder.empty();
    }
    // ASSUMES: the image is there, durable.
    bool fail_to_write_back() {
        const int other = ::open(image.c_str(), O_RDWR | O_CLOEXEC);
        const std::string all(image_bytes, 'x');
        const auto write = [&] {
            return ::pwrite(other, all.data(), all.size(), 0) == ssize_t{image_bytes};
        };
        // Its blocks are the file system's, with nothing behind them on the device.
        const bool placed = write() && ::fdatasync(other) == 0;
        const int disk = ::open(device.path().c_str(), O_RDWR | O_CLOEXEC);
        bool emptied = true;
        for (std::uint64_t i = 0; i < image_bytes / ext_block_bytes; ++i) {
            int block = static_cast<int>(i);
            emptied &= ::ioctl(other, FIBMAP, &block) == 0 && block != 0;
            std::array<std::uint64_t, 2> range{block * ext_block_bytes, ext_block_bytes};
            emptied &= ::ioctl(disk, BLKDISCARD, range.data()) == 0;
        }
        ::close(disk);
        device.take_its_room();
        const bool failed = write() && ::fdatasync(other) != 0;
        device.give_its_room_back();
        ::close(other);
        return placed && emptied && failed;
    }
};

}  // namespace

TEST_CASE("media: direct I/O to a file: once a flush has failed, none succeeds any more") {
    if (::geteuid() != 0) skip_program("needs root");
    FileWithFailure file;
    if (!file.usable()) return;
    Bench bench;
    REQUIRE(!bench.open({.path = file.image,
                         .size_bytes = image_bytes,
                         .io = StorageOptions::Io::direct,
                         .logical_block_bytes = 4096}));
    int losses = 0;
    bench.storage->when_writes_are_lost([&] { ++losses; });
    REQUIRE(bench.flush() == 0);
    REQUIRE(file.fail_to_write_back());
    REQUIRE(bench.flush() != 0);
    REQUIRE(losses == 1);
    REQUIRE(bench.flush() != 0);
    REQUIRE(losses == 1);
}

TEST_CASE("media: a flush beside a write that is told of a failure is told of it, too") {
    if (::geteuid() != 0) skip_program("needs root");
    FileWithFailure file;
    if (!file.usable()) return;
    Pages pages(4096);
    for (int round = 0; round < 20; ++round) {
        Bench bench;
        REQUIRE(!bench.open({.path = file.image, .size_bytes = image_bytes}));
        REQUIRE(bench.flush() == 0);
        REQUIRE(file.fail_to_write_back());
        TestRequest write;
        write.operation = BlockOperation::write;
        write.bytes = pages.bytes().size();
        write.data = pages.bytes();
        write.force_unit_access = true;
        std::array<TestRequest, 3> flushes;
        bench.submit(write);
        for (TestRequest& flush : flushes) {
            flush.operation = BlockOperation::flush;
            bench.submit(flush);
        }
        for (TestRequest& flush : flushes) bench.finish(flush);
        bench.finish(write);
        for (const TestRequest& flush : flushes) CHECK(flush.error);
    }
}

TEST_CASE("media: a failure is not forgotten by a write that has no room for all of it") {
    if (::geteuid() != 0) skip_program("needs root");
    const bool with_flush = GENERATE(false, true);
    FileWithFailure file;
    if (!file.usable()) return;
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        Bench bench;
        if (bench.open({.path = file.image, .size_bytes = image_bytes})) ::_exit(1);
        if (bench.flush() != 0) ::_exit(2);
        if (!file.fail_to_write_back()) ::_exit(3);
        const rlimit limit{image_bytes / 2, image_bytes / 2};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(4);
        Pages pages(image_bytes / 2);
        TestRequest write;
        write.operation = BlockOperation::write;
        write.offset = image_bytes / 4;
        write.bytes = pages.bytes().size();
        write.data = pages.bytes();
        write.force_unit_access = true;
        TestRequest beside;
        beside.operation = BlockOperation::flush;
        bench.submit(write);
        if (with_flush) bench.submit(beside);
        bench.finish(write);
        if (with_flush) bench.finish(beside);
        // The system tells who asks first; of those two, the flush is to be told in any case.
        if (with_flush ? !write.error : write.error.value() != EIO) ::_exit(5);
        if (with_flush && !beside.error) ::_exit(6);
        if (!bench.flush()) ::_exit(7);
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
