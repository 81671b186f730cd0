#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "rnbd-server/storage/file_storage.h"
#include "rnbd-server/storage/file_storage_inside.h"
#include "rtrs/base/error.h"

namespace rnbd {

using file_storage::interrupted;
using rtrs::from_errno;

namespace {

bool is_no_room(std::error_code error) noexcept {
    return error == std::errc::no_space_on_device || error.value() == EDQUOT ||
           error == std::errc::file_too_large;
}

}  // namespace

// A write with FUA fails because it cannot be written, or because something cannot be written back:
// maybe what others wrote before, of which nobody else will hear then. Written again without FUA it
// shows which: if any of it can be written, writing back it was, whatever becomes of the rest.
void FileStorage::transfer_failed(BlockRequest& request, std::error_code error) {
    if (request.stage == static_cast<std::uint32_t>(Technique::rewrite_moved)) {
        return finish(request, cache_broken(from_errno(EIO)));
    }
    if (!uses_page_cache() || !writes_through(request)) return finish(request, error);
    if (is_no_room(error) && medium_.witness() >= 0) return ask_witness(request, error);
    request.stage = static_cast<std::uint32_t>(Technique::rewrite);
    transfer(request);
}

// Where there is no room, a second write says nothing: others may have made some by then. In its
// turn among flushes: one beside it could succeed over what only this one is told.
void FileStorage::ask_witness(BlockRequest& request, std::error_code error) {
    request.stage = static_cast<std::uint32_t>(Technique::ask_witness);
    request.done_bytes = static_cast<std::uint64_t>(error.value());
    synchronize(request);
}

bool FileStorage::is_rewrite(const BlockRequest& request) noexcept {
    return request.stage == static_cast<std::uint32_t>(Technique::rewrite) ||
           request.stage == static_cast<std::uint32_t>(Technique::rewrite_moved);
}

// Whether it is durable by its own writes. FUSE with direct I/O tells the file's process of them as
// of any others: there, and wherever another one has to answer, an fdatasync follows.
bool FileStorage::writes_through(const BlockRequest& request) const noexcept {
    return request.force_unit_access && request.operation != BlockOperation::read &&
           medium_.answers_at_once() && !is_rewrite(request);
}

bool FileStorage::uses_page_cache() const noexcept {
    return io_ == StorageOptions::Io::buffered || medium_.kind() == FileMedium::Kind::regular;
}

std::error_code FileStorage::cache_broken(std::error_code error) {
    if (!uses_page_cache() || broken_) return error;
    broken_ = error;
    if (lost_) lost_();
    return error;
}

// One fdatasync at a time: of two that overlap the system tells a failure to one, and the other's
// success could be answered first. Those that come meanwhile share the next.
void FileStorage::synchronize(BlockRequest& request) {
    request.next = std::exchange(waiting_for_sync_, &request);
    if (syncing_ == nullptr) sync_those_that_wait();
}

void FileStorage::sync_those_that_wait() {
    syncing_ = std::exchange(waiting_for_sync_, nullptr);
    syncing_->work.completed = &on_synchronized;
    reactor_.here().fdatasync(syncing_->work, medium_.sync_fd());
}

void FileStorage::on_synchronized(Operation& operation, const Result& result) {
    FileStorage& self = storage_of(request_of(operation));
    const bool again = interrupted(result.value);
    const bool failed = result.value < 0 && !again;
    const std::error_code error =
        failed ? self.cache_broken(from_errno(result.value)) : self.broken_;
    BlockRequest* done = std::exchange(self.syncing_, nullptr);
    if (again) {
        BlockRequest** last = &self.waiting_for_sync_;
        while (*last != nullptr) last = &(*last)->next;
        *last = std::exchange(done, nullptr);
    }
    if (self.waiting_for_sync_ != nullptr) self.sync_those_that_wait();
    // The last may be the storage's end.
    while (done != nullptr) {
        BlockRequest& request = *std::exchange(done, done->next);
        const bool asked = request.stage == static_cast<std::uint32_t>(Technique::ask_witness);
        // What it had failed with, if that was all.
        const int its_own = failed ? EIO : static_cast<int>(request.done_bytes);
        request.failed_alone = asked && !failed;
        self.finish(request, asked ? from_errno(its_own) : error);
    }
}

std::function<std::error_code()> FileStorage::flush_aside() {
    if (use_ == StorageOptions::Use::read_only) return {};
    // Of the same open file: the system tells it what could not be written back since it was asked;
    // what it has told before is known.
    const int fd = ::fcntl(medium_.sync_fd(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return [error = rtrs::from_errno(errno)] { return error; };
    const std::shared_ptr<const int> open(new int(fd), [](const int* number) {
        ::close(*number);
        delete number;
    });
    return
        [open, before = broken_] { return ::fsync(*open) == 0 ? before : rtrs::from_errno(errno); };
}

}  // namespace rnbd
