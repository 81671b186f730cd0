#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>

#include "rnbd-server/storage/file_storage.h"
#include "rnbd-server/storage/file_storage_inside.h"
#include "rtrs/base/error.h"

namespace rnbd {

using file_storage::holds_long;
using file_storage::interrupted;
using file_storage::no_thread_error;
using rtrs::from_errno;

namespace {

bool not_supported(int result) noexcept {
    return result == -EOPNOTSUPP || result == -ENOSYS || result == -ENOTTY;
}

}  // namespace

// With no technique left the answer waits for its turn if this is still submit().
void FileStorage::empty_range(BlockRequest& request) {
    const Technique technique = choose_technique(request);
    const bool untried = request.stage == static_cast<std::uint32_t>(Technique::none);
    request.stage = static_cast<std::uint32_t>(technique);
    switch (technique) {
        case Technique::punch_hole:
        case Technique::zero_range:
        case Technique::discard_call:
            return write_back(request);
        case Technique::write_zeroes:
            return transfer(request);
        case Technique::rewrite:  // these are no choice
        case Technique::rewrite_moved:
        case Technique::ask_witness:
        case Technique::clear_up:
        case Technique::none:
            --in_flight_;
            if (holds_long(request)) --long_holders_;
            request.failed_alone = untried;
            return deferred_.add(request, from_errno(EOPNOTSUPP));
    }
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

// The kernel drops what the page cache has of a device's range, and then asks the device. If that
// refuses, what comes to light must not be older than what was acknowledged last.
void FileStorage::write_back(BlockRequest& request) {
    const bool may_lose = medium_.kind() == FileMedium::Kind::block_device && uses_page_cache();
    if (!may_lose) return empty_by_kernel(request);
    request.work.completed = &on_written_back;
    reactor_.here().write_back(request.work, medium_.fd(), request.offset, request.bytes);
}

void FileStorage::on_written_back(Operation& operation, const Result& result) {
    BlockRequest& request = request_of(operation);
    FileStorage& self = storage_of(request);
    if (interrupted(result.value)) return self.write_back(request);
    if (result.value < 0) {
        return self.finish(request, self.cache_broken(from_errno(result.value)));
    }
    self.empty_by_kernel(request);
}

void FileStorage::empty_by_kernel(BlockRequest& request) {
    const auto technique = static_cast<Technique>(request.stage);
    if (technique == Technique::discard_call) return discard_elsewhere(request);
    allocate(request, technique);
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

// File systems, too, drop what the page cache has of a range before they zero it. Where zeroing has
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

}  // namespace rnbd
