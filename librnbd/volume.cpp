#include "librnbd/volume.h"

#include <cerrno>
#include <utility>

#include "librnbd/session.h"
#include "rnbd/messages.h"

namespace rnbd::library {
namespace {

constexpr unsigned flags_of(VolumeOperation operation) noexcept {
    switch (operation) {
        case VolumeOperation::read:
        case VolumeOperation::flush:
        case VolumeOperation::extents:
            return 0;
        case VolumeOperation::write:
        case VolumeOperation::discard:
            return RNBD_FUA;
        case VolumeOperation::write_zeroes:
            return RNBD_FUA | RNBD_NO_HOLE | RNBD_FAST_ZERO;
    }
    return 0;
}

}  // namespace

Volume::Volume(Session& session, RemoteVolumeOptions options)
    : session_(session), remote_(session.remote(), std::move(options), *this) {
    known_.reason = remote_.reason();
}

int Volume::check(const Request& request) {
    if (known_.closing) return error.set(-ESHUTDOWN, "the volume is closing");
    if (!known_.ever_open) {
        return error.set(-ENOTCONN, "the volume was not open yet: " + known_.reason);
    }
    if (const int failed = check_operation(request)) return failed;
    if (request.operation == VolumeOperation::flush) return 0;
    return check_range(request.offset, request.bytes);
}

int Volume::check_operation(const Request& request) {
    const unsigned wrong = request.flags & ~flags_of(request.operation);
    if (wrong != 0) {
        return error.set(-EINVAL, std::string(to_string(request.operation)) +
                                      " does not know the flags " + std::to_string(wrong));
    }
    if (changes_content(request.operation) && remote_.options().access == AccessMode::read_only) {
        return error.set(-EROFS, "the volume was opened read-only");
    }
    if (request.operation == VolumeOperation::extents && !known_.geometry.extents) {
        return error.set(-EOPNOTSUPP, "the server does not tell extents");
    }
    if (request.operation == VolumeOperation::discard && known_.geometry.discard_bytes_max == 0) {
        return error.set(-EOPNOTSUPP, "the volume cannot discard");
    }
    if ((request.flags & RNBD_FAST_ZERO) != 0 &&
        (!known_.geometry.fast_zero || known_.geometry.write_zeroes_bytes_max == 0)) {
        return error.set(-EOPNOTSUPP, "the volume does not know which zeroes are fast");
    }
    if (request.buffer == nullptr) return 0;
    if (request.buffer->session != &session_) {
        return error.set(-EINVAL, "the buffer is of another session");
    }
    if (request.buffer->in_flight) {
        return error.set(-EBUSY, "the buffer has a request under way");
    }
    if (request.bytes > request.buffer->memory.size()) {
        return error.set(-EINVAL, std::to_string(request.bytes) + " bytes, but the buffer has " +
                                      std::to_string(request.buffer->memory.size()));
    }
    return 0;
}

int Volume::check_range(std::uint64_t offset, std::uint64_t bytes) {
    const VolumeGeometry& geometry = known_.geometry;
    const auto range = [=] {
        return std::to_string(bytes) + " bytes at " + std::to_string(offset) + ": ";
    };
    if (bytes == 0 || !whole_blocks(bytes | offset, geometry.logical_block_bytes)) {
        return error.set(-EINVAL, range() + "not one or more whole blocks of " +
                                      std::to_string(geometry.logical_block_bytes));
    }
    if (offset > geometry.size_bytes || bytes > geometry.size_bytes - offset) {
        return error.set(
            -EINVAL, range() + "beyond the volume's end at " + std::to_string(geometry.size_bytes));
    }
    return 0;
}

void Volume::on_volume_changed(RemoteVolume& volume) {
    const bool open = volume.state() == VolumeState::open;
    const bool was_open = known_.open;
    const bool was_ever_open = known_.ever_open;
    {
        const auto lock = session_.loop().lock();
        known_.open = open;
        known_.reason = volume.reason();
        known_.losses = volume.losses().news;
        // EAGAIN: not yet, and asked again by itself.
        const std::error_code refused = volume.open_error();
        known_.refused = refused == rtrs::from_errno(EAGAIN) ? std::error_code{} : refused;
        known_.superseded = volume.state() == VolumeState::superseded;
        if (open) {
            known_.ever_open = true;
            known_.geometry = volume.geometry();
            known_.max_io_bytes = session_.remote().rtrs().max_io_bytes();
            known_.queue_depth = session_.remote().rtrs().permits_max();
        }
    }
    session_.loop().changed();
    if (!open) return tell(RNBD_EVENT_NOT_OPEN);
    const std::uint64_t before = std::exchange(size_told_, volume.geometry().size_bytes);
    // The program goes by what it was told.
    volume.limit_blocks(volume.geometry().logical_block_bytes);
    if (!was_open) tell(RNBD_EVENT_OPEN);
    if (was_ever_open && before != size_told_) tell(RNBD_EVENT_RESIZED);
}

void Volume::on_volume_refused(RemoteVolume&) {
    {
        const auto lock = session_.loop().lock();
        ++known_.times_refused;
    }
    session_.loop().changed();
}

void Volume::tell(int kind) const {
    if (closing_) return;
    const bool not_open = kind == RNBD_EVENT_NOT_OPEN;
    session_.tell({.kind = kind,
                   .error = not_open ? -rtrs::to_errno(known_.refused) : 0,
                   .volume = const_cast<Volume*>(this),
                   .path = {},
                   .text = known_.reason,
                   .size_bytes = not_open ? 0 : size_told_});
}

void Volume::close(rnbd_done_fn done, void* context) {
    close_done_ = done;
    close_context_ = context;
    closed_by_program_ = true;
    end();
}

void Volume::end() {
    closing_ = true;
    {
        const auto lock = session_.loop().lock();
        known_.closing = true;
    }
    session_.loop().changed();
    session_.take_in();  // no more come
    session_.requests().fail_waiting(*this, rtrs::Error::closed);
    remote_.close();
}

void Volume::note_given_up(std::error_code reason) {
    const auto lock = session_.loop().lock();
    known_.given_up = reason;
}

void Volume::answered() {
    if (closing_) session_.close_goes_on();
}

void Volume::request_ended() {
    --requests;
    answered();
}

void Volume::lost_in_part() {
    remote_.lost_in_part();
    const auto lock = session_.loop().lock();
    known_.losses = remote_.losses().news;
}

void Volume::on_volume_closed(RemoteVolume&) {
    closed_ = true;
    session_.keep_house();
}

}  // namespace rnbd::library
