#include "rnbd-server/storage/file_storage.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "rnbd-server/storage/file_opening.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

using rtrs::from_errno;

namespace {

// Written at once by write_zeroes in the plain way.
constexpr std::size_t zeroes_bytes = 1u << 20;
// A multiple of every block size, below what one read(2) or write(2) moves.
constexpr std::uint64_t transfer_bytes_max = 1u << 30;

// What is prepared when a disk is given its requests, so that it begins with them while the next
// are prepared; receives and sends of the turn count too.
constexpr std::uint32_t direct_group = 4;
// What is copied to or from a file in memory by a system call, in less time than it takes to wake
// one of the ring's threads, which would do it otherwise. What is larger they may copy beside the
// loop.
constexpr std::uint64_t move_now_bytes_max = 16u << 10;

// Of what wants a helper thread when there is none to be had.
constexpr int no_thread_error = ENOMEM;

// Whether it keeps other writers of the file waiting for as long as it takes to empty a range, or
// to copy much.
bool holds_long(const BlockRequest& request) noexcept {
    return request.operation == BlockOperation::discard ||
           request.operation == BlockOperation::write_zeroes ||
           (request.operation == BlockOperation::write && request.bytes > move_now_bytes_max);
}

// Both mean that nothing was done and that trying again is right.
bool interrupted(int result) noexcept { return result == -EINTR || result == -EAGAIN; }

bool is_no_room(std::error_code error) noexcept {
    return error == std::errc::no_space_on_device || error.value() == EDQUOT ||
           error == std::errc::file_too_large;
}

bool not_supported(int result) noexcept {
    return result == -EOPNOTSUPP || result == -ENOSYS || result == -ENOTTY;
}

}  // namespace

std::expected<std::unique_ptr<Storage>, StorageError> FileStorage::open(
    rtrs::Reactor& reactor, DeferredCompletions& deferred, const StorageOptions& options,
    StorageOpening& begun) {
    FileOpening::Opened medium = FileOpening::open(options, begun.file);
    if (!medium) return std::unexpected(medium.error());
    auto zeroes = Mapping::make(zeroes_bytes, Mapping::Access::read_only);
    if (!zeroes) return std::unexpected(StorageError{zeroes.error(), options.path + ": no memory"});
    return std::unique_ptr<Storage>(
        new FileStorage(reactor, deferred, std::move(*medium), std::move(*zeroes), options));
}

FileStorage::FileStorage(rtrs::Reactor& reactor, DeferredCompletions& deferred, FileMedium medium,
                         Mapping zeroes, const StorageOptions& options)
    : reactor_(reactor),
      medium_(std::move(medium)),
      slots_(reactor.members()),
      zeroes_(std::move(zeroes)),
      io_(options.io),
      use_(options.use),
      can_poll_(medium_.can_be_polled()),
      can_discard_call_(medium_.kind() == FileMedium::Kind::block_device),
      deferred_(deferred) {
    const bool disk = io_ == StorageOptions::Io::direct && !medium_.in_memory();
    if (disk && reactor.prompt_storage()) reserve_.emplace();
    if (medium_.answers_at_once()) return;
    for (std::uint32_t i = 0; i < reactor.members(); ++i) reactor.member(i).expect_slow_files();
}

FileStorage::~FileStorage() {
    RTRS_ASSERT(in_flight_ == 0);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].slot == rtrs::Reactor::FixedFile::none) continue;
        reactor_.member(i).unregister_file(slots_[i].slot);
    }
    for (const int fd : medium_.let_go_of_slow()) reactor_.close_fd(fd);
}

rtrs::Reactor::File FileStorage::file(rtrs::Reactor& here) {
    Slot& known = slots_[here.number()];
    if (!std::exchange(known.tried, true)) {
        if (const auto slot = here.register_file(medium_.fd())) known.slot = *slot;
    }
    return {medium_.fd(), known.slot, !medium_.answers_at_once()};
}

std::string FileStorage::description() const {
    const bool regular = medium_.kind() == FileMedium::Kind::regular;
    return (regular ? "file " : "device ") + medium_.path();
}

std::string FileStorage::trouble() const {
    // Less is a busy moment.
    constexpr std::uint32_t many = 3;
    if (medium_.unheard_checks() < many) return {};
    return description() + ": its file system does not answer";
}

BlockRequest& FileStorage::request_of(Operation& operation) noexcept {
    static_assert(std::is_standard_layout_v<BlockRequest>);
    auto* place = reinterpret_cast<std::byte*>(&operation) - offsetof(BlockRequest, work);
    return *reinterpret_cast<BlockRequest*>(place);
}

FileStorage& FileStorage::storage_of(BlockRequest& request) noexcept {
    return *static_cast<FileStorage*>(request.storage);
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

void FileStorage::submit(BlockRequest& request) {
    RTRS_ASSERT(request.offset + request.bytes <= geometry().size_bytes);
    request.storage = this;
    request.done_bytes = 0;
    request.stage = static_cast<std::uint32_t>(Technique::none);
    const bool changes =
        request.operation != BlockOperation::read && request.operation != BlockOperation::flush;
    if (changes && use_ == StorageOptions::Use::read_only) {
        deferred_.add(request, from_errno(EROFS));
        return;
    }
    // A write would bring back what was lost as zeroes.
    if (request.offset + request.bytes > medium_.cut_at()) {
        deferred_.add(request, from_errno(EIO));
        return;
    }
    ++in_flight_;
    if (holds_long(request)) ++long_holders_;
    switch (request.operation) {
        case BlockOperation::read:
        case BlockOperation::write:
            RTRS_ASSERT(request.data.size() >= request.bytes);
            if (reserve_ && reserve_->keeps(request)) return;
            return transfer(request);
        case BlockOperation::flush:
            return synchronize(request);
        case BlockOperation::discard:
        case BlockOperation::write_zeroes:
            return empty_range(request);
    }
}

void FileStorage::finish(BlockRequest& request, std::error_code error) {
    // First of all: the disk may have nothing to do.
    if (reserve_) give_to_disk(reserve_->ended(request));
    --in_flight_;
    if (holds_long(request)) --long_holders_;
    request.completed(request, error);
}

void FileStorage::give_to_disk(BlockRequest* list) {
    if (list == nullptr) return;
    while (list != nullptr) transfer(*std::exchange(list, list->next));
    reactor_.here().submit_early(1);
}

// One piece of what is left of a read, a write, or a write of zeroes.
void FileStorage::transfer(BlockRequest& request) {
    request.work.completed = &on_transferred;
    const std::uint64_t at = request.offset + request.done_bytes;
    const std::uint64_t left = std::min(request.bytes - request.done_bytes, transfer_bytes_max);
    // Pinned memory spares direct I/O the look-up of its pages, and the page cache a copy by way of
    // the process's addresses.
    rtrs::Reactor& here = reactor_.here();
    const auto buffer = request.fixed_buffer_of == here.number() ? request.fixed_buffer
                                                                 : rtrs::Reactor::FixedBuffer::none;
    const int flags = request.force_unit_access && !is_rewrite(request) ? RWF_DSYNC : 0;
    if (moved_at_once(request, flags)) return;
    if (begun_polled(request, left, flags)) {
        // It is on its way.
    } else if (request.operation == BlockOperation::read) {
        here.read(request.work, file(here), request.data.subspan(request.done_bytes, left), at,
                  buffer);
    } else if (request.operation == BlockOperation::write) {
        here.write(request.work, file(here), request.data.subspan(request.done_bytes, left), at,
                   flags, buffer);
    } else {
        const std::size_t piece = std::min(left, zeroes_bytes);
        here.write(request.work, file(here), zeroes_.bytes().first(piece), at, flags);
    }
    if (io_ == StorageOptions::Io::direct) here.submit_early(direct_group);
}

// What a call does not do whole and well is done by the ring once more, which tells why.
bool FileStorage::moved_at_once(BlockRequest& request, int flags) {
    if (!medium_.in_memory() || request.bytes > move_now_bytes_max) return false;
    if (request.operation == BlockOperation::write_zeroes) return false;
    if (request.done_bytes > 0 || is_rewrite(request)) return false;
    // A call would wait for them, and the loop with it.
    if (request.operation == BlockOperation::write && long_holders_ > 0) return false;
    rtrs::Reactor& here = reactor_.here();
    const rtrs::MutableBytes data = request.data.first(request.bytes);
    const auto moved = request.operation == BlockOperation::read
                           ? here.read_now(medium_.fd(), data, request.offset)
                           : here.write_now(medium_.fd(), data, request.offset, flags);
    if (!moved || *moved != static_cast<std::int64_t>(request.bytes)) return false;
    --in_flight_;
    deferred_.add(request, {});
    return true;
}

// What has to be durable when it ends is more than the device's one write.
bool FileStorage::begun_polled(BlockRequest& request, std::uint64_t bytes, int flags) {
    const bool plain = request.operation != BlockOperation::write_zeroes && flags == 0;
    if (!can_poll_ || !plain || is_rewrite(request)) return false;
    rtrs::Reactor& here = reactor_.here();
    if (!here.polls_storage()) return false;
    request.work.completed = &on_polled;
    const rtrs::MutableBytes data = request.data.subspan(request.done_bytes, bytes);
    const std::uint64_t at = request.offset + request.done_bytes;
    if (request.operation == BlockOperation::read) {
        here.read_polled(request.work, medium_.fd(), data, at);
    } else {
        here.write_polled(request.work, medium_.fd(), data, at);
    }
    return true;
}

void FileStorage::on_polled(Operation& operation, const Result& result) {
    if (result.value != -EOPNOTSUPP) return on_transferred(operation, result);
    BlockRequest& request = request_of(operation);
    FileStorage& self = storage_of(request);
    self.can_poll_ = false;  // it cannot, whatever it says of itself
    self.transfer(request);
}

void FileStorage::on_transferred(Operation& operation, const Result& result) {
    BlockRequest& request = request_of(operation);
    FileStorage& self = storage_of(request);
    if (interrupted(result.value)) return self.transfer(request);
    if (result.value < 0) return self.transfer_failed(request, from_errno(result.value));
    request.done_bytes += static_cast<std::uint64_t>(result.value);
    const bool rewrite = is_rewrite(request);
    if (rewrite && result.value > 0) {
        request.stage = static_cast<std::uint32_t>(Technique::rewrite_moved);
    }
    if (request.done_bytes == request.bytes) {
        return self.finish(request,
                           rewrite ? self.cache_broken(from_errno(EIO)) : std::error_code{});
    }
    // Nothing moved, or an end within a block that direct I/O cannot go on from: the medium has
    // become shorter than its volume.
    const bool stuck = self.io_ == StorageOptions::Io::direct &&
                       request.done_bytes % self.geometry().logical_block_bytes != 0;
    if (result.value == 0 || stuck) {
        return rewrite ? self.transfer_failed(request, from_errno(EIO))
                       : self.finish(request, from_errno(EIO));
    }
    self.transfer(request);
}

// A write with FUA fails because it cannot be written, or because something cannot be written back:
// maybe what others wrote before, of which nobody else will hear then. Written again without FUA it
// shows which: if any of it can be written, writing back it was, whatever becomes of the rest.
void FileStorage::transfer_failed(BlockRequest& request, std::error_code error) {
    const bool forced = request.force_unit_access && request.operation != BlockOperation::read;
    if (request.stage == static_cast<std::uint32_t>(Technique::rewrite_moved)) {
        return finish(request, cache_broken(from_errno(EIO)));
    }
    if (!uses_page_cache() || !forced || is_rewrite(request)) return finish(request, error);
    if (is_no_room(error) && medium_.witness() >= 0) return ask_witness(request, error);
    request.stage = static_cast<std::uint32_t>(Technique::rewrite);
    transfer(request);
}

// Where there is no room, a second write says nothing: others may have made some by then.
void FileStorage::ask_witness(BlockRequest& request, std::error_code error) {
    request.stage = static_cast<std::uint32_t>(Technique::ask_witness);
    request.done_bytes = static_cast<std::uint64_t>(error.value());
    request.work.completed = &on_witness;
    reactor_.here().fsync(request.work, medium_.witness(), rtrs::Reactor::SyncMode::data_only);
}

void FileStorage::on_witness(Operation& operation, const Result& result) {
    BlockRequest& request = request_of(operation);
    FileStorage& self = storage_of(request);
    const std::error_code error = from_errno(static_cast<int>(request.done_bytes));
    if (interrupted(result.value)) return self.ask_witness(request, error);
    self.finish(request, result.value < 0 ? self.cache_broken(from_errno(EIO)) : error);
}

bool FileStorage::is_rewrite(const BlockRequest& request) noexcept {
    return request.stage == static_cast<std::uint32_t>(Technique::rewrite) ||
           request.stage == static_cast<std::uint32_t>(Technique::rewrite_moved);
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

FileStorage::Technique FileStorage::choose_technique(const BlockRequest& request) const noexcept {
    const bool discard = request.operation == BlockOperation::discard;
    if (can_punch_hole_ && (discard || !request.no_unmap)) return Technique::punch_hole;
    if (discard) return can_discard_call_ ? Technique::discard_call : Technique::none;
    // A device that has no zeroing of its own gets them written by the kernel in zero_range.
    const bool zero_range_fast =
        medium_.kind() == FileMedium::Kind::regular || geometry().fast_zero;
    if (can_zero_range_ && (zero_range_fast || !request.fast_only)) return Technique::zero_range;
    return request.fast_only ? Technique::none : Technique::write_zeroes;
}

void FileStorage::forget(Technique technique) noexcept {
    if (technique == Technique::punch_hole) can_punch_hole_ = false;
    if (technique == Technique::zero_range) can_zero_range_ = false;
    if (technique == Technique::discard_call) can_discard_call_ = false;
}

// With no technique left the answer waits for its turn if this is still submit().
void FileStorage::empty_range(BlockRequest& request) {
    const Technique technique = choose_technique(request);
    request.stage = static_cast<std::uint32_t>(technique);
    switch (technique) {
        case Technique::punch_hole:
        case Technique::zero_range:
            return allocate(request, technique);
        case Technique::discard_call:
            return discard_elsewhere(request);
        case Technique::write_zeroes:
            return transfer(request);
        case Technique::rewrite:  // these are no choice
        case Technique::rewrite_moved:
        case Technique::ask_witness:
        case Technique::clear_up:
        case Technique::none:
            --in_flight_;
            if (holds_long(request)) --long_holders_;
            return deferred_.add(request, from_errno(EOPNOTSUPP));
    }
}

void FileStorage::allocate(BlockRequest& request, Technique technique) {
    request.work.completed = &on_allocated;
    const int kind =
        technique == Technique::punch_hole ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE;
    reactor_.here().fallocate(request.work, medium_.fd(), kind | FALLOC_FL_KEEP_SIZE,
                              request.offset, request.bytes);
}

void FileStorage::on_allocated(Operation& operation, const Result& result) {
    BlockRequest& request = request_of(operation);
    FileStorage& self = storage_of(request);
    if (not_supported(result.value)) {
        self.forget(static_cast<Technique>(request.stage));
        return self.empty_range(request);
    }
    if (interrupted(result.value)) return self.empty_range(request);
    if (result.value < 0) return self.clear_up(request, result.value);
    self.finish_range(request);
}

// File systems drop what the page cache has of a range before they zero it. Where zeroing has
// failed since, above all for lack of room, what comes to light is older than what was acknowledged
// last. A hole needs no room; then each block is as it was, or zero, as of any failed request.
void FileStorage::clear_up(BlockRequest& request, std::int32_t result) {
    if (static_cast<Technique>(request.stage) == Technique::zero_range) {
        request.stage = static_cast<std::uint32_t>(Technique::clear_up);
        request.done_bytes = static_cast<std::uint64_t>(-result);
    }
    if (static_cast<Technique>(request.stage) != Technique::clear_up || !can_punch_hole_) {
        return finish(request, from_errno(result));
    }
    request.work.completed = &on_cleared_up;
    reactor_.here().fallocate(request.work, medium_.fd(),
                              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, request.offset,
                              request.bytes);
}

void FileStorage::on_cleared_up(Operation& operation, const Result& result) {
    BlockRequest& request = request_of(operation);
    FileStorage& self = storage_of(request);
    const int failed = static_cast<int>(request.done_bytes);
    if (interrupted(result.value)) return self.clear_up(request, -failed);
    self.finish(request, from_errno(failed));
}

// A device that hangs, or a file system that does not answer, keeps a thread of its own waiting,
// not the one that all others share.
bool FileStorage::run_elsewhere(std::function<void()> work, std::function<void()> done) {
    rtrs::Reactor& here = reactor_.here();
    const bool short_wait =
        medium_.kind() == FileMedium::Kind::regular && medium_.answers_at_once();
    if (short_wait) return here.offload(std::move(work), std::move(done));
    if (!helper_) helper_.emplace([](const std::function<void()>& finished) { finished(); });
    return helper_->run(std::move(work),
                        [&here, done = std::move(done)]() mutable { here.post(std::move(done)); });
}

void FileStorage::discard_elsewhere(BlockRequest& request) {
    const bool runs = run_elsewhere(
        [&request, fd = medium_.fd()] {
            std::array<std::uint64_t, 2> range{request.offset, request.bytes};
            const int result = ::ioctl(fd, BLKDISCARD, range.data());
            request.done_bytes = result == 0 ? 0 : static_cast<std::uint64_t>(errno);
        },
        [&request] {
            FileStorage& self = storage_of(request);
            const int result = -static_cast<int>(request.done_bytes);
            if (not_supported(result)) {
                self.forget(Technique::discard_call);
                return self.empty_range(request);
            }
            if (result < 0) return self.finish(request, from_errno(result));
            self.finish_range(request);
        });
    if (runs) return;
    reactor_.here().post(
        [&request] { storage_of(request).finish(request, from_errno(no_thread_error)); });
}

void FileStorage::finish_range(BlockRequest& request) {
    if (request.force_unit_access) return synchronize(request);
    finish(request, {});
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
    reactor_.here().fsync(syncing_->work, medium_.sync_fd(), rtrs::Reactor::SyncMode::data_only);
}

void FileStorage::on_synchronized(Operation& operation, const Result& result) {
    FileStorage& self = storage_of(request_of(operation));
    const bool again = interrupted(result.value);
    const std::error_code error =
        result.value < 0 && !again ? self.cache_broken(from_errno(result.value)) : self.broken_;
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
        self.finish(request, error);
    }
}

// Not by this thread: it may have to wait for a long fallocate(2) of the same file.
void FileStorage::extents(ExtentsRequest& request) {
    const auto error = std::make_shared<std::error_code>();
    const bool runs = run_elsewhere([this, &request, error] { *error = find_extents(request); },
                                    [this, &request, error] {
                                        --in_flight_;
                                        request.completed(request, *error);
                                    });
    if (!runs) return request.completed(request, from_errno(no_thread_error));
    ++in_flight_;
}

// On a helper thread: of what others change, nothing is looked at.
std::error_code FileStorage::find_extents(ExtentsRequest& request) const {
    struct stat status{};
    if (::fstat(medium_.fd(), &status) != 0) return from_errno(errno);
    const std::uint64_t end = request.offset + request.bytes;
    // Beyond the end there is neither data nor a hole: reads fail.
    if (static_cast<std::uint64_t>(status.st_size) < end) return from_errno(EIO);

    std::vector<StorageExtent>& found = request.found;
    for (std::uint64_t at = request.offset; at < end;) {
        const std::expected<StorageExtent, std::error_code> extent = extent_at(at, end);
        if (!extent) return extent.error();
        at += extent->bytes;
        if (!found.empty() && found.back().hole == extent->hole) {
            found.back().bytes += extent->bytes;
        } else if (found.size() == request.extents_max) {
            break;
        } else {
            found.push_back(*extent);
        }
    }
    return {};
}

// The hole or data that starts at `at`, in whole logical blocks: a block that is partly data is
// data.
std::expected<StorageExtent, std::error_code> FileStorage::extent_at(std::uint64_t at,
                                                                     std::uint64_t end) const {
    const std::uint64_t block = geometry().logical_block_bytes;
    const off_t data = ::lseek(medium_.fd(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return std::unexpected(from_errno(errno));
    const std::uint64_t data_start =
        data < 0 ? end : std::min(static_cast<std::uint64_t>(data) / block * block, end);
    if (data_start > at) return StorageExtent{.bytes = data_start - at, .hole = true, .zero = true};

    const off_t hole = ::lseek(medium_.fd(), data, SEEK_HOLE);
    if (hole < 0) return std::unexpected(from_errno(errno));
    // What was data a moment ago may be a hole by now: then one block of it is told as data.
    const std::uint64_t data_end =
        std::clamp((static_cast<std::uint64_t>(hole) + block - 1) / block * block, at + block, end);
    return StorageExtent{.bytes = data_end - at};
}

}  // namespace rnbd
