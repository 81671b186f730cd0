#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "rnbd-server/storage/file_storage.h"
#include "rnbd-server/storage/file_storage_inside.h"
#include "rtrs/base/error.h"

namespace rnbd {

using file_storage::interrupted;
using file_storage::move_now_bytes_max;
using rtrs::from_errno;

namespace {

// A multiple of every block size, below what one read(2) or write(2) moves.
constexpr std::uint64_t transfer_bytes_max = 1u << 30;

// What is prepared when a disk is given its requests, so that it begins with them while the next
// are prepared; receives and sends of the turn count too.
constexpr std::uint32_t direct_group = 4;

}  // namespace

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
    const int flags = writes_through(request) ? RWF_DSYNC : 0;
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
        const std::size_t piece = std::min(left, zeroes_.bytes().size());
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
        if (rewrite) return self.finish(request, self.cache_broken(from_errno(EIO)));
        const bool read = request.operation == BlockOperation::read;
        if (read || self.writes_through(request)) return self.finish(request, {});
        return self.finish_range(request);
    }
    // Nothing moved, or an end within a block that direct I/O cannot go on from: the medium has
    // become shorter than its volume.
    const bool stuck = self.io_ == StorageOptions::Io::direct &&
                       request.done_bytes % self.geometry().logical_block_bytes != 0;
    if (result.value == 0 || stuck) {
        const bool read = request.operation == BlockOperation::read;
        if (read) self.medium_.ended_at(request.offset + request.done_bytes);
        return rewrite ? self.transfer_failed(request, from_errno(EIO))
                       : self.finish(request, from_errno(EIO));
    }
    self.transfer(request);
}

}  // namespace rnbd
