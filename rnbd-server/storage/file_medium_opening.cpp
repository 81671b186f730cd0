#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "rnbd-server/storage/device_queue.h"
#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage/file_medium_inside.h"
#include "rnbd-server/storage/lock_holder.h"
#include "rnbd-server/storage/mapping.h"
#include "rnbd-server/storage/synchronize_folder.h"
#include "rtrs/base/error.h"

namespace rnbd {

using file_medium::attachment_number;
using file_medium::is_on_fuse;
using file_medium::is_read_only_device;
using file_medium::is_writable;
using file_medium::page_bytes;

namespace {

constexpr mode_t created_mode = 0600;
constexpr std::string_view unwanted = "not wanted any more";

// tmpfs, /dev/shm: what is written stays in memory, or goes to swap if there is some.
bool is_of_tmpfs(int fd) {
    struct statfs status{};
    return ::fstatfs(fd, &status) == 0 && status.f_type == TMPFS_MAGIC;
}

// Its files are this machine's own: nobody else has to answer for it. Others may, or are not known
// here.
bool is_of_this_machine(int fd) {
    constexpr std::array<std::uint32_t, 10> known{
        EXT4_SUPER_MAGIC,
        XFS_SUPER_MAGIC,
        BTRFS_SUPER_MAGIC,
        TMPFS_MAGIC,
        RAMFS_MAGIC,
        MSDOS_SUPER_MAGIC,
        F2FS_SUPER_MAGIC,
        OVERLAYFS_SUPER_MAGIC,  // a container's, over such
        0xca451a4e,             // bcachefs
        0x2fc12fc1,             // ZFS
    };
    struct statfs status{};
    return ::fstatfs(fd, &status) == 0 &&
           std::ranges::find(known, static_cast<std::uint32_t>(status.f_type)) != known.end();
}

// They say that they are regular files, and keep nothing.
bool is_of_the_kernel(int fd) {
    constexpr std::array<std::uint32_t, 6> known{PROC_SUPER_MAGIC, SYSFS_MAGIC,
                                                 DEBUGFS_MAGIC,    TRACEFS_MAGIC,
                                                 SECURITYFS_MAGIC, CGROUP2_SUPER_MAGIC};
    struct statfs status{};
    return ::fstatfs(fd, &status) == 0 &&
           std::ranges::find(known, static_cast<std::uint32_t>(status.f_type)) != known.end();
}

bool machine_swaps() {
    struct sysinfo machine{};
    return ::sysinfo(&machine) != 0 || machine.totalswap > 0;
}

// Empty if it is no symbolic link.
std::string link_target(const std::string& path) {
    std::error_code none;
    return std::filesystem::read_symlink(path, none).string();
}

std::string dangling(const std::string& target) {
    return fmt::format(
        "is a symbolic link to {}, which is not there; create that, or remove the link", target);
}

// Where only devices belong: a file that was made there is in memory, and keeps a device that comes
// later from its name. /dev/shm is another file system.
bool is_among_devices(const std::string& path) {
    std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
    if (!folder.native().starts_with("/dev/")) return false;
    struct stat there{};
    do folder = folder.parent_path();
    while (::stat(folder.c_str(), &there) != 0 && folder.has_relative_path());
    struct stat devices{};
    return ::stat("/dev", &devices) == 0 && devices.st_dev == there.st_dev;
}

// Some kernels and drivers refuse a writable open of a read-only device with EACCES, as if it were
// for lack of permission; others let it pass and fail each write.
bool leads_to_read_only_device(const std::string& path) {
    const rtrs::Descriptor device(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return device && is_read_only_device(device.get());
}

}  // namespace

std::expected<FileMedium, StorageError> FileMedium::open(const StorageOptions& options,
                                                         const std::stop_token& not_wanted) {
    FileMedium medium(options.path);
    Step step = medium.open_file(options, not_wanted);
    if (step) medium.read_without_trace();
    if (step) step = medium.identify(options);
    if (step) step = medium.lock(options);
    if (step) step = medium.still_there();
    if (step && not_wanted.stop_requested()) step = medium.failure(ECANCELED, unwanted);
    if (step) {
        step = medium.kind_ == Kind::regular ? medium.measure_regular(options)
                                             : medium.measure_device(options);
    }
    if (step && options.io == StorageOptions::Io::direct) step = medium.try_direct(options);
    medium.can_be_polled_ = medium.kind_ == Kind::block_device &&
                            options.io == StorageOptions::Io::direct &&
                            queue_number(medium.device_, "io_poll") == 1;
    if (step) medium.open_witness(options);
    if (!step) return std::unexpected(step.error());
    return medium;
}

FileMedium::Step FileMedium::open_file(const StorageOptions& options,
                                       const std::stop_token& not_wanted) {
    int flags = O_CLOEXEC | O_NONBLOCK;  // not to hang on a FIFO; of no effect on files and disks
    flags |= is_writable(options) ? O_RDWR : O_RDONLY;
    if (options.io == StorageOptions::Io::direct) flags |= O_DIRECT;
    // Without O_CREAT, O_EXCL claims a block device: no mount, no other claimant.
    struct stat found{};
    const bool device = ::stat(path_.c_str(), &found) == 0 && S_ISBLK(found.st_mode);
    if (device && is_writable(options)) flags |= O_EXCL;

    fd_ = rtrs::Descriptor(::open(path_.c_str(), flags));
    if (fd_) return {};
    const int error = errno;
    const bool device_awaited = error == ENOENT && is_among_devices(path_);
    if (error == ENOENT && options.size_bytes && !device_awaited)
        return create_file(options, flags, not_wanted);
    switch (error) {
        case ENOENT:
            if (const std::string target = link_target(path_); !target.empty())
                return failure(error, dangling(target));
            if (device_awaited) return failure(error, "not there; no file is created in /dev");
            return failure(error, "not there; create it, or give a size to have it created");
        case EROFS:
            return failure(
                error, "on a read-only file system; set read_only: true to export it for reading");
        case EISDIR:
            return failure(EINVAL, "is a directory; name a regular file or a block device");
        case EBUSY:
            return failure(error, "in use (mounted, or claimed by another program); free it first");
        case EINVAL:
            return failure(error, "its file system cannot do direct I/O; use io: buffered");
        case EACCES:
            if (device && leads_to_read_only_device(path_)) {
                return read_only_device();
            }
            return failure(error, "permission denied; check owner and mode");
        default:
            return failure(error,
                           fmt::format("cannot be opened: {}", rtrs::from_errno(error).message()));
    }
}

// Who read when is nobody's question here, and asked for each read. Only the file's owner, or root,
// may ask for that.
void FileMedium::read_without_trace() noexcept {
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    if (flags != -1) static_cast<void>(::fcntl(fd_.get(), F_SETFL, flags | O_NOATIME));
}

FileMedium::Step FileMedium::create_file(const StorageOptions& options, int flags,
                                         const std::stop_token& not_wanted) {
    if (not_wanted.stop_requested()) return failure(ECANCELED, unwanted);
    // Written to even if the storage is read only: an empty volume is still a volume.
    rtrs::Descriptor creating(
        ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, created_mode));
    if (!creating) {
        const int error = errno;
        // Nothing was there a moment ago: the name is taken by a link.
        if (const std::string target = link_target(path_); error == EEXIST && !target.empty()) {
            return failure(ENOENT, dangling(target));
        }
        return failure(error,
                       fmt::format("cannot be created: {}", rtrs::from_errno(error).message()));
    }
    const Step given = give_new_size(creating.get(), *options.size_bytes);
    creating.reset();
    if (!given) return given;
    was_created_ = true;
    // As good as it goes: not every file system has it for folders.
    static_cast<void>(synchronize_folder(path_));
    fd_ = rtrs::Descriptor(::open(path_.c_str(), flags));
    if (!fd_) {
        const int reopen_error = errno;
        return failure(reopen_error,
                       "created, but cannot be opened (io: direct needs a file "
                       "system that can; use io: buffered)");
    }
    return {};
}

// Durable before anybody writes to it: a flush of a volume does not make its name so. By its lock
// the file is known to be nobody else's yet, also where each of these calls took its time.
FileMedium::Step FileMedium::give_new_size(int creating, std::uint64_t bytes) {
    if (::flock(creating, LOCK_EX | LOCK_NB) != 0) return lock_failure(creating, errno);
    if (::ftruncate(creating, static_cast<off_t>(bytes)) == 0 && ::fsync(creating) == 0) return {};
    const std::error_code error = rtrs::from_errno(errno);
    ::unlink(path_.c_str());
    return failure(error.value(), fmt::format("cannot be given its size: {}", error.message()));
}

FileMedium::Step FileMedium::identify(const StorageOptions&) {
    struct stat status{};
    if (::fstat(fd(), &status) != 0) return failure(errno, "cannot be examined");
    if (S_ISREG(status.st_mode)) {
        if (is_of_the_kernel(fd())) {
            return failure(EINVAL,
                           "found a file by which the kernel talks, expected one that keeps data");
        }
        kind_ = Kind::regular;
        device_ = status.st_dev;
        inode_ = status.st_ino;
        in_memory_ = is_of_tmpfs(fd()) && !machine_swaps();
    } else if (S_ISBLK(status.st_mode)) {
        kind_ = Kind::block_device;
        device_ = status.st_rdev;
        attachment_ = attachment_number(fd());
    } else {
        return failure(EINVAL, "neither a regular file nor a block device");
    }
    answers_at_once_ = kind_ == Kind::block_device || is_of_this_machine(fd());
    stat_thread_ = StatThread::of(status.st_dev);
    // The ring answers EAGAIN where it should wait if this stays set.
    const int flags = ::fcntl(fd(), F_GETFL);
    if (flags < 0 || ::fcntl(fd(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return failure(errno, "cannot be made blocking");
    }
    return {};
}

// flock(2) belongs to the open file, which operations of a killed process keep until they end.
FileMedium::Step FileMedium::lock(const StorageOptions& options) {
    const int kind = is_writable(options) ? LOCK_EX : LOCK_SH;
    if (::flock(fd(), kind | LOCK_NB) == 0) return {};
    return lock_failure(fd(), errno);
}

std::unexpected<StorageError> FileMedium::lock_failure(int fd, int error) const {
    if (error != EWOULDBLOCK) return failure(error, "cannot be locked");
    if (const std::string holder = lock_holder(fd); !holder.empty())
        return failure(error, "locked: by " + holder);
    return failure(error,
                   "locked: by another program, a second server, or another export of this one "
                   "through a link");
}

// Who had the lock until now may have removed it.
FileMedium::Step FileMedium::still_there() {
    struct stat ours{};
    struct stat found{};
    if (::fstat(fd(), &ours) != 0) return failure(errno, "cannot be examined");
    if (::stat(path_.c_str(), &found) == 0 && found.st_dev == ours.st_dev &&
        found.st_ino == ours.st_ino) {
        return {};
    }
    return failure(EAGAIN, "another file has come in its place while it was opened");
}

// By its path again: of a copy of the descriptor the open file would be the same. On FUSE what
// flushes go through has to be what is written through. There nothing else is told of failures: no
// write asks for them (FileStorage::writes_through()).
void FileMedium::open_witness(const StorageOptions& options) {
    if (!is_writable(options) || is_on_fuse(fd())) return;
    witness_ = rtrs::Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat ours{};
    struct stat found{};
    const bool same = witness_ && ::fstat(fd(), &ours) == 0 && ::fstat(witness(), &found) == 0 &&
                      found.st_dev == ours.st_dev && found.st_ino == ours.st_ino;
    if (!same) witness_.reset();
}

// O_DIRECT at open promises nothing about block sizes; a read does.
FileMedium::Step FileMedium::try_direct(const StorageOptions& options) {
    auto memory = Mapping::make(page_bytes, Mapping::Access::read_write);
    if (!memory) return failure(memory.error().value(), "no memory");
    // The second block: the first is aligned to everything.
    const bool two_blocks = geometry_.size_bytes >= 2ull * options.logical_block_bytes;
    const off_t offset = two_blocks ? static_cast<off_t>(options.logical_block_bytes) : 0;
    if (::pread(fd(), memory->bytes().data(), options.logical_block_bytes, offset) >= 0) return {};
    const int error = errno;
    if (error != EINVAL) {
        return failure(error, fmt::format("cannot be read: {}", rtrs::from_errno(error).message()));
    }
    return failure(EINVAL, fmt::format("no direct I/O in blocks of {} bytes here; use a larger "
                                       "block_size, or io: buffered",
                                       options.logical_block_bytes));
}

std::unexpected<StorageError> FileMedium::read_only_device() const {
    return failure(EROFS, "a read-only device; set read_only: true to export it for reading");
}

}  // namespace rnbd
