#include "rnbd-server/storage/file_medium.h"

#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rnbd-server/storage/file_medium_inside.h"
#include "rtrs/base/error.h"

namespace rnbd {

FileMedium::~FileMedium() {
    // The kernel's workers may hold the file for a moment after the last completion.
    if (fd_) ::flock(fd(), LOCK_UN);
}

// With the last of them the lock goes.
std::vector<int> FileMedium::let_go_of_slow() noexcept {
    std::vector<int> open;
    if (answers_at_once_) return open;
    for (rtrs::Descriptor* one : {&witness_, &fd_}) {
        if (*one) open.push_back(one->release());
    }
    return open;
}

std::unexpected<StorageError> FileMedium::failure(int error, std::string_view what) const {
    const std::error_code code = rtrs::from_errno(error);
    return std::unexpected(StorageError{code, fmt::format("{}: {}", path_, what)});
}

std::expected<std::uint64_t, StorageError> FileMedium::measure() const {
    if (kind_ == Kind::block_device) {
        std::uint64_t bytes = 0;
        if (::ioctl(fd(), BLKGETSIZE64, &bytes) != 0)
            return failure(errno, "does not tell its size");
        return bytes;
    }
    struct stat status{};
    if (::fstat(fd(), &status) != 0) return failure(errno, "cannot be examined");
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
    stat_.reset();
    seen_bytes_.reset();
    const auto now = measure();
    if (!now) return std::unexpected(now.error());
    if (*now != bytes && ::ftruncate(fd(), static_cast<off_t>(bytes)) != 0) {
        const int error = errno;
        return failure(
            error, fmt::format("cannot be given its size: {}", rtrs::from_errno(error).message()));
    }
    geometry_.size_bytes = bytes;
    cut_at_ = not_cut;
    return {};
}

std::error_code FileMedium::check() noexcept {
    // A device says it without being looked at by name.
    if (kind_ == Kind::block_device) {
        std::uint64_t bytes = 0;
        const bool told = ::ioctl(fd(), BLKGETSIZE64, &bytes) == 0;
        note_size(told ? std::optional(bytes) : std::nullopt);
    }
    // Not the whole way to it need be of that file system, or be known.
    if (answers_at_once_) {
        if (const auto seen = StatThread::stat_cached(path_)) {
            stat_.reset();
            unheard_checks_ = 0;
            found(*seen);
            return verdict_;
        }
    }
    if (stat_ && !stat_->over.load(std::memory_order_acquire)) {
        ++unheard_checks_;
        return verdict_;
    }
    unheard_checks_ = 0;
    if (stat_) found(stat_->result);
    stat_ = stat_thread_->stat(path_);
    return verdict_;
}

void FileMedium::found(const StatThread::Result& seen) noexcept {
    if (kind_ == Kind::regular) seen_bytes_.reset();
    if (seen.error != 0) {
        // Whatever else keeps the path from being looked at, for a moment maybe, says nothing of
        // what is open.
        const bool vanished = seen.error == ENOENT || seen.error == ENOTDIR;
        verdict_ = vanished ? rtrs::from_errno(ENOENT) : std::error_code{};
        return;
    }
    const bool same = is_what_was_opened(seen);
    verdict_ = same ? std::error_code{} : rtrs::from_errno(ENOENT);
    if (same && kind_ == Kind::regular) note_size(seen.bytes);
}

// What was beyond the end is lost, also if the end is where it was when it is looked at next.
void FileMedium::note_size(std::optional<std::uint64_t> bytes) noexcept {
    seen_bytes_ = bytes;
    if (bytes && *bytes < geometry_.size_bytes) cut_at_ = std::min(cut_at_, *bytes);
}

void FileMedium::ended_at(std::uint64_t bytes) {
    // The end may be before what was read.
    const bool told_at_once = kind_ == Kind::block_device || answers_at_once_;
    const auto now = told_at_once ? measure() : bytes;
    note_size(std::min(bytes, now.value_or(bytes)));
}

bool FileMedium::is_what_was_opened(const StatThread::Result& seen) const noexcept {
    if (kind_ == Kind::regular) return seen.file_system == device_ && seen.inode == inode_;
    // An open device stays the same when it is given another disk.
    return S_ISBLK(seen.mode) && seen.device == device_ &&
           (!attachment_ || file_medium::attachment_number(fd()) == attachment_);
}

}  // namespace rnbd
