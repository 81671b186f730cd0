#include "tests/contract/storage/root.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace rnbd::testing {

void skip_program(const std::string& reason) {
    std::fprintf(stderr, "SKIPPED: %s\n", reason.c_str());
    std::_Exit(77);
}

namespace {

void need(bool condition, const std::string& what) {
    if (!condition) skip_program(what + ": " + std::strerror(errno));
}

std::string new_folder() {
    std::string name = "/tmp/storage-root-XXXXXX";
    need(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    return name;
}

// All mounts of this program are made on one folder, in a namespace that ends with it.
const std::string& private_root() {
    static const std::string root = [] {
        need(::unshare(CLONE_NEWNS) == 0, "no private mount namespace");
        need(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
             "mounts stay shared");
        const std::string folder = new_folder();
        need(::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64m") == 0, "no tmpfs");
        // Gone with the namespace; the empty folder below it goes at the end.
        static std::string outside = folder;
        std::atexit([] {
            ::umount2(outside.c_str(), MNT_DETACH);
            ::rmdir(outside.c_str());
        });
        return folder;
    }();
    return root;
}

int unnamed_file(std::uint64_t bytes, const std::string& folder = private_root()) {
    std::string name = folder + "/loop-XXXXXX";
    const int file = ::mkostemp(name.data(), O_CLOEXEC);
    need(file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0, "no backing file");
    ::unlink(name.c_str());
    return file;
}

}  // namespace

std::string mount_private(const std::string& type, const std::string& options) {
    std::string folder = private_root() + "/mount-XXXXXX";
    need(::mkdtemp(folder.data()) != nullptr, "no folder");
    need(::mount(type.c_str(), folder.c_str(), type.c_str(), 0, options.c_str()) == 0,
         "no " + type);
    return folder;
}

std::string mount_ext(const std::string& type, const LoopDevice& device) {
    const std::string make =
        "PATH=$PATH:/usr/sbin:/sbin mkfs." + type + " -q -F -b 4096 " + device.path();
    if (std::system(make.c_str()) != 0) return {};
    std::string folder = private_root() + "/ext-XXXXXX";
    need(::mkdtemp(folder.data()) != nullptr, "no folder");
    if (::mount(device.path().c_str(), folder.c_str(), type.c_str(), 0, nullptr) != 0) return {};
    return folder;
}

LoopDevice::LoopDevice(std::uint64_t bytes, std::uint32_t block_bytes, Rights rights,
                       Backing backing) {
    file_ = unnamed_file(
        bytes, backing == Backing::on_ramfs ? mount_private("ramfs", "") : private_root());
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    need(control >= 0, "no loop devices");
    for (int attempt = 0; attempt < 20; ++attempt) {  // others take free ones too
        const int number = ::ioctl(control, LOOP_CTL_GET_FREE);
        need(number >= 0, "no free loop device");
        path_ = "/dev/loop" + std::to_string(number);
        const int device = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
        need(device >= 0, "cannot open " + path_);
        loop_config config{};
        config.fd = static_cast<__u32>(file_);
        config.block_size = block_bytes;
        config.info.lo_flags = LO_FLAGS_AUTOCLEAR;  // however this program ends
        if (rights == Rights::read_only) config.info.lo_flags |= LO_FLAGS_READ_ONLY;
        const bool configured = ::ioctl(device, LOOP_CONFIGURE, &config) == 0;
        const int error = errno;
        if (configured) {
            holder_ = device;
            ::close(control);
            return;
        }
        ::close(device);
        errno = error;
        need(error == EBUSY, "cannot set up a loop device");
    }
    skip_program("all loop devices are taken");
}

LoopDevice::~LoopDevice() {
    int off = 0;
    ::ioctl(holder_, BLKROSET, &off);  // it would stay so for the device's next user
    ::close(holder_);
    ::close(file_);
    if (filler_ >= 0) ::close(filler_);
}

bool LoopDevice::change_disk(std::uint64_t bytes) {
    const int file = unnamed_file(bytes);
    const bool changed = ::ioctl(holder_, LOOP_CHANGE_FD, file) == 0;
    ::close(file);
    return changed;
}

bool LoopDevice::resize(std::uint64_t bytes) {
    return ::ftruncate(file_, static_cast<off_t>(bytes)) == 0 &&
           ::ioctl(holder_, LOOP_SET_CAPACITY, 0) == 0;
}

void LoopDevice::take_its_room() {
    std::string name = private_root() + "/filler-XXXXXX";
    filler_ = ::mkostemp(name.data(), O_CLOEXEC);
    need(filler_ >= 0, "no file");
    ::unlink(name.c_str());
    const std::string piece(64 << 10, 'x');
    while (::write(filler_, piece.data(), piece.size()) > 0) continue;
    need(errno == ENOSPC, "the file system does not fill up");
}

void LoopDevice::give_its_room_back() {
    need(::ftruncate(filler_, 0) == 0, "the room cannot be given back");
}

}  // namespace rnbd::testing
