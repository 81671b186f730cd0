#include "rnbd-server/storage/file_medium.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "rnbd-server/storage/cache_epoch.h"
#include "rnbd-server/storage/mapping.h"
#include "rnbd-server/storage/medium_identity.h"
#include "rnbd-server/storage/synchronize_folder.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

// One request's limit; the kernel splits by what the medium can do at once.
constexpr std::uint64_t range_bytes_max = 1u << 30;
constexpr std::uint32_t page_bytes = 4096;
constexpr std::uint64_t physical_block_bytes_max = 64u << 10;
constexpr mode_t created_mode = 0600;
constexpr std::string_view unwanted = "not wanted any more";

// First word of an attribute of a block device's queue; for a partition, of the disk's.
std::optional<std::string> queue_attribute(dev_t device, std::string_view name) {
    for (const char* place : {"queue", "../queue"}) {
        std::ifstream file(
            fmt::format("/sys/dev/block/{}:{}/{}/{}", major(device), minor(device), place, name));
        std::string text;
        if (std::getline(file, text)) return text;
    }
    return std::nullopt;
}

std::uint64_t queue_number(dev_t device, std::string_view name) {
    const std::optional<std::string> text = queue_attribute(device, name);
    return text ? std::strtoull(text->c_str(), nullptr, 10) : 0;
}

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

bool machine_swaps() {
    struct sysinfo machine{};
    return ::sysinfo(&machine) != 0 || machine.totalswap > 0;
}

bool is_writable(const StorageOptions& options) {
    return options.use == StorageOptions::Use::read_write;
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

bool is_read_only_device(int fd) {
    int read_only = 0;
    return ::ioctl(fd, BLKROGET, &read_only) == 0 && read_only != 0;
}

// Some kernels and drivers refuse a writable open of a read-only device with EACCES, as if it were
// for lack of permission; others let it pass and fail each write.
bool is_read_only_device(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool read_only = is_read_only_device(fd);
    ::close(fd);
    return read_only;
}

// Nothing is there beyond the end, so nothing changes; but a file system that cannot says so.
bool can_punch_holes(int fd, std::uint64_t size_bytes) {
    return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(size_bytes), page_bytes) == 0;
}

}  // namespace

FileMedium::FileMedium(FileMedium&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      witness_(std::exchange(other.witness_, -1)),
      kind_(other.kind_),
      device_(other.device_),
      inode_(other.inode_),
      in_memory_(other.in_memory_),
      can_be_polled_(other.can_be_polled_),
      geometry_(other.geometry_),
      answers_at_once_(other.answers_at_once_),
      looker_(std::move(other.looker_)),
      look_(std::move(other.look_)),
      unheard_checks_(other.unheard_checks_),
      verdict_(other.verdict_),
      seen_bytes_(other.seen_bytes_),
      cut_at_(other.cut_at_) {}

FileMedium::~FileMedium() {
    if (witness_ >= 0) ::close(witness_);
    if (fd_ < 0) return;
    // The kernel's workers may hold the file for a moment after the last completion.
    ::flock(fd_, LOCK_UN);
    ::close(fd_);
}

// With the last of them the lock goes.
std::vector<int> FileMedium::let_go_of_slow() noexcept {
    std::vector<int> open;
    if (answers_at_once_) return open;
    for (int* fd : {&witness_, &fd_}) {
        if (*fd >= 0) open.push_back(std::exchange(*fd, -1));
    }
    return open;
}

std::unexpected<StorageError> FileMedium::failure(int error, std::string_view what) const {
    const std::error_code code = rtrs::from_errno(error);
    return std::unexpected(StorageError{code, fmt::format("{}: {}", path_, what)});
}

std::unexpected<StorageError> FileMedium::read_only_device() const {
    return failure(EROFS, "a read-only device; set read_only: true to export it for reading");
}

std::expected<FileMedium, StorageError> FileMedium::open(const StorageOptions& options,
                                                         const std::stop_token& not_wanted) {
    FileMedium medium(options.path);
    Step step = medium.open_file(options, not_wanted);
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

    fd_ = ::open(path_.c_str(), flags);
    if (fd_ < 0 && errno == ENOENT && options.size_bytes) {
        return create_file(options, flags, not_wanted);
    }
    if (fd_ >= 0) return {};
    switch (const int error = errno; error) {
        case ENOENT:
            if (const std::string target = link_target(path_); !target.empty())
                return failure(error, dangling(target));
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
            if (device && is_read_only_device(path_)) {
                return read_only_device();
            }
            return failure(error, "permission denied; check owner and mode");
        default:
            return failure(error,
                           fmt::format("cannot be opened: {}", rtrs::from_errno(error).message()));
    }
}

FileMedium::Step FileMedium::create_file(const StorageOptions& options, int flags,
                                         const std::stop_token& not_wanted) {
    if (not_wanted.stop_requested()) return failure(ECANCELED, unwanted);
    // Written to even if the storage is read only: an empty volume is still a volume.
    const int creating = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, created_mode);
    if (creating < 0) {
        const int error = errno;
        // Nothing was there a moment ago: the name is taken by a link.
        if (const std::string target = link_target(path_); error == EEXIST && !target.empty()) {
            return failure(ENOENT, dangling(target));
        }
        return failure(error,
                       fmt::format("cannot be created: {}", rtrs::from_errno(error).message()));
    }
    const Step given = give_new_size(creating, *options.size_bytes);
    ::close(creating);
    if (!given) return given;
    // As good as it goes: not every file system has it for folders.
    static_cast<void>(synchronize_folder(path_));
    fd_ = ::open(path_.c_str(), flags);
    if (fd_ < 0) {
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
    if (::flock(creating, LOCK_EX | LOCK_NB) != 0) return lock_failure(errno);
    if (::ftruncate(creating, static_cast<off_t>(bytes)) == 0 && ::fsync(creating) == 0) return {};
    const std::error_code error = rtrs::from_errno(errno);
    ::unlink(path_.c_str());
    return failure(error.value(), fmt::format("cannot be given its size: {}", error.message()));
}

FileMedium::Step FileMedium::identify(const StorageOptions&) {
    struct stat status{};
    if (::fstat(fd_, &status) != 0) return failure(errno, "cannot be examined");
    if (S_ISREG(status.st_mode)) {
        kind_ = Kind::regular;
        device_ = status.st_dev;
        inode_ = status.st_ino;
        in_memory_ = is_of_tmpfs(fd_) && !machine_swaps();
    } else if (S_ISBLK(status.st_mode)) {
        kind_ = Kind::block_device;
        device_ = status.st_rdev;
    } else {
        return failure(EINVAL, "neither a regular file nor a block device");
    }
    answers_at_once_ = kind_ == Kind::block_device || is_of_this_machine(fd_);
    looker_ = Looker::of(status.st_dev);
    // The ring answers EAGAIN where it should wait if this stays set.
    const int flags = ::fcntl(fd_, F_GETFL);
    if (flags < 0 || ::fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        return failure(errno, "cannot be made blocking");
    }
    return {};
}

// flock(2) belongs to the open file, which operations of a killed process keep until they end.
FileMedium::Step FileMedium::lock(const StorageOptions& options) {
    const int kind = is_writable(options) ? LOCK_EX : LOCK_SH;
    if (::flock(fd_, kind | LOCK_NB) == 0) return {};
    return lock_failure(errno);
}

std::unexpected<StorageError> FileMedium::lock_failure(int error) const {
    if (error != EWOULDBLOCK) return failure(error, "cannot be locked");
    return failure(error,
                   "locked: by another program, a second server, or another export of this one "
                   "through a link");
}

// Who had the lock until now may have removed it.
FileMedium::Step FileMedium::still_there() {
    struct stat ours{};
    struct stat found{};
    if (::fstat(fd_, &ours) != 0) return failure(errno, "cannot be examined");
    if (::stat(path_.c_str(), &found) == 0 && found.st_dev == ours.st_dev &&
        found.st_ino == ours.st_ino) {
        return {};
    }
    return failure(EAGAIN, "another file has come in its place while it was opened");
}

FileMedium::Step FileMedium::measure_regular(const StorageOptions& options) {
    struct stat status{};
    if (::fstat(fd_, &status) != 0) return failure(errno, "cannot be examined");
    auto size = static_cast<std::uint64_t>(status.st_size);
    if (size == 0 && options.size_bytes && is_writable(options)) {
        // Created by a process that died before it came to give it a size, or by touch(1).
        if (::ftruncate(fd_, static_cast<off_t>(*options.size_bytes)) != 0) {
            return failure(errno, "is empty and cannot be given its size");
        }
        size = *options.size_bytes;
    }
    if (size == 0) return failure(EINVAL, "is empty; give it a size with truncate(1)");
    if (size % options.logical_block_bytes != 0) {
        return failure(EINVAL, fmt::format("its size of {} bytes is not a multiple of the block "
                                           "size {}",
                                           size, options.logical_block_bytes));
    }
    const bool punches = is_writable(options) && can_punch_holes(fd_, size);
    const auto preferred = static_cast<std::uint64_t>(status.st_blksize);
    const bool usable = std::has_single_bit(preferred) && preferred <= physical_block_bytes_max;
    geometry_ = {.size_bytes = size,
                 .logical_block_bytes = options.logical_block_bytes,
                 .physical_block_bytes =
                     std::max(usable ? static_cast<std::uint32_t>(preferred) : page_bytes,
                              options.logical_block_bytes),
                 .discard_bytes_max = punches ? range_bytes_max : 0,
                 .discard_granularity_bytes = punches ? page_bytes : 0,
                 .write_zeroes_bytes_max = is_writable(options) ? range_bytes_max : 0,
                 .fast_zero = punches,
                 .volatile_cache = true,
                 .force_unit_access = true,
                 .rotational = queue_number(device_, "rotational") != 0,
                 .extents = true,
                 .cache_epoch = file_epoch(fd_, status),
                 .medium = file_medium_id(fd_, status)};
    return {};
}

FileMedium::Step FileMedium::measure_device(const StorageOptions& options) {
    std::uint64_t size = 0;
    int logical = 0;
    unsigned physical = 0;
    if (::ioctl(fd_, BLKGETSIZE64, &size) != 0 || ::ioctl(fd_, BLKSSZGET, &logical) != 0 ||
        ::ioctl(fd_, BLKPBSZGET, &physical) != 0) {
        return failure(errno, "does not tell its size");
    }
    if (size == 0) return failure(EINVAL, "has no medium (size 0)");
    if (is_writable(options) && is_read_only_device(fd_)) return read_only_device();
    if (options.size_bytes && *options.size_bytes != size) {
        return failure(EINVAL, fmt::format("the device has {} bytes, the configuration says {}; "
                                           "leave the size out",
                                           size, *options.size_bytes));
    }
    if (static_cast<std::uint32_t>(logical) > options.logical_block_bytes) {
        return failure(EINVAL, fmt::format("the device's blocks have {} bytes; set block_size: {}",
                                           logical, logical));
    }
    if (size % options.logical_block_bytes != 0) {
        return failure(EINVAL, fmt::format("its size of {} bytes is not a multiple of the block "
                                           "size {}",
                                           size, options.logical_block_bytes));
    }
    const bool writable = is_writable(options);
    const bool discards = writable && queue_number(device_, "discard_max_bytes") > 0;
    const auto granularity =
        static_cast<std::uint32_t>(queue_number(device_, "discard_granularity"));
    const bool written_through = options.io == StorageOptions::Io::direct &&
                                 queue_attribute(device_, "write_cache") == "write through";
    geometry_ = {.size_bytes = size,
                 .logical_block_bytes = options.logical_block_bytes,
                 .physical_block_bytes = std::max(physical, options.logical_block_bytes),
                 .discard_bytes_max = discards ? range_bytes_max : 0,
                 .discard_granularity_bytes =
                     discards ? std::max(granularity, options.logical_block_bytes) : 0,
                 .write_zeroes_bytes_max = writable ? range_bytes_max : 0,
                 .fast_zero = writable && queue_number(device_, "write_zeroes_max_bytes") > 0,
                 .volatile_cache = !written_through,
                 .force_unit_access = true,
                 .rotational = queue_number(device_, "rotational") != 0,
                 .extents = false,
                 .cache_epoch = written_through ? epoch_without_cache : device_epoch(device_),
                 .medium = device_medium_id(device_)};
    return {};
}

// By its path again: of a copy of the descriptor the open file would be the same.
void FileMedium::open_witness(const StorageOptions& options) {
    if (!is_writable(options)) return;
    witness_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat ours{};
    struct stat found{};
    const bool same = witness_ >= 0 && ::fstat(fd_, &ours) == 0 && ::fstat(witness_, &found) == 0 &&
                      found.st_dev == ours.st_dev && found.st_ino == ours.st_ino;
    if (!same && witness_ >= 0) ::close(std::exchange(witness_, -1));
}

// O_DIRECT at open promises nothing about block sizes; a read does.
FileMedium::Step FileMedium::try_direct(const StorageOptions& options) {
    auto memory = Mapping::make(page_bytes, Mapping::Access::read_write);
    if (!memory) return failure(memory.error().value(), "no memory");
    // The second block: the first is aligned to everything.
    const bool two_blocks = geometry_.size_bytes >= 2ull * options.logical_block_bytes;
    const off_t offset = two_blocks ? static_cast<off_t>(options.logical_block_bytes) : 0;
    if (::pread(fd_, memory->bytes().data(), options.logical_block_bytes, offset) >= 0) return {};
    const int error = errno;
    if (error != EINVAL) {
        return failure(error, fmt::format("cannot be read: {}", rtrs::from_errno(error).message()));
    }
    return failure(EINVAL, fmt::format("no direct I/O in blocks of {} bytes here; use a larger "
                                       "block_size, or io: buffered",
                                       options.logical_block_bytes));
}

std::expected<std::uint64_t, StorageError> FileMedium::measure() const {
    if (kind_ == Kind::block_device) {
        std::uint64_t bytes = 0;
        if (::ioctl(fd_, BLKGETSIZE64, &bytes) != 0)
            return failure(errno, "does not tell its size");
        return bytes;
    }
    struct stat status{};
    if (::fstat(fd_, &status) != 0) return failure(errno, "cannot be examined");
    return static_cast<std::uint64_t>(status.st_size);
}

std::expected<void, StorageError> FileMedium::may_resize(std::uint64_t bytes,
                                                         StorageOptions::Use use) const {
    const auto now = measure();
    if (!now) return std::unexpected(now.error());
    if (*now != bytes && kind_ == Kind::block_device) {
        return failure(EINVAL, fmt::format("the device has {} bytes; change its own size first, "
                                           "then leave the size out",
                                           *now));
    }
    if (*now != bytes && use == StorageOptions::Use::read_only) {
        return failure(EROFS,
                       "the export is read_only; change the file's size by other means, then "
                       "leave the size out");
    }
    return {};
}

std::expected<void, StorageError> FileMedium::resize(std::uint64_t bytes, StorageOptions::Use use) {
    if (auto may = may_resize(bytes, use); !may) return may;
    // What a look finds that has begun before is old.
    look_.reset();
    seen_bytes_.reset();
    const auto now = measure();
    if (!now) return std::unexpected(now.error());
    if (*now != bytes && ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
        const int error = errno;
        return failure(
            error, fmt::format("cannot be given its size: {}", rtrs::from_errno(error).message()));
    }
    geometry_.size_bytes = bytes;
    cut_at_ = not_cut;
    return {};
}

std::error_code FileMedium::check() noexcept {
    // Not the whole way to it need be of that file system, or be known.
    if (answers_at_once_) {
        if (const auto seen = Looker::glance(path_)) {
            look_.reset();
            unheard_checks_ = 0;
            found(*seen);
            return verdict_;
        }
    }
    if (look_ && !look_->over.load(std::memory_order_acquire)) {
        ++unheard_checks_;
        return verdict_;
    }
    unheard_checks_ = 0;
    if (look_) found(look_->seen);
    look_ = looker_->look(path_);
    return verdict_;
}

void FileMedium::found(const Looker::Seen& seen) noexcept {
    seen_bytes_.reset();
    if (seen.error != 0) {
        // Whatever else keeps the path from being looked at, for a moment maybe, says nothing of
        // what is open.
        const bool vanished = seen.error == ENOENT || seen.error == ENOTDIR;
        verdict_ = vanished ? rtrs::from_errno(ENOENT) : std::error_code{};
        return;
    }
    const bool same = kind_ == Kind::regular ? seen.file_system == device_ && seen.inode == inode_
                                             : S_ISBLK(seen.mode) && seen.device == device_;
    verdict_ = same ? std::error_code{} : rtrs::from_errno(ENOENT);
    if (!same) return;
    seen_bytes_ = seen.bytes;
    if (kind_ == Kind::regular && seen.bytes < geometry_.size_bytes) {
        cut_at_ = std::min(cut_at_, seen.bytes);
    }
}

// A device says it without being looked at by name.
std::optional<std::uint64_t> FileMedium::last_measured() const noexcept {
    if (kind_ == Kind::regular) return seen_bytes_;
    std::uint64_t bytes = 0;
    return ::ioctl(fd_, BLKGETSIZE64, &bytes) == 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace rnbd
