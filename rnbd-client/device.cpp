#include "rnbd-client/device.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rnbd-client/not_open.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

using nbd::Command;
namespace flag = nbd::command_flag;

constexpr std::uint32_t divide_up(std::uint64_t value, std::uint64_t by) noexcept {
    return static_cast<std::uint32_t>((value + by - 1) / by);
}

bool carries_payload(Command command) noexcept {
    return command == Command::read || command == Command::write;
}

VolumeOperation operation_of(Command command) noexcept {
    switch (command) {
        case Command::write:
            return VolumeOperation::write;
        case Command::trim:
            return VolumeOperation::discard;
        case Command::write_zeroes:
            return VolumeOperation::write_zeroes;
        case Command::flush:
            return VolumeOperation::flush;
        case Command::block_status:
            return VolumeOperation::extents;
        case Command::read:
        case Command::cache:
        case Command::disconnect:
            break;
    }
    return VolumeOperation::read;
}

}  // namespace

Device::Device(RemoteVolume& volume, PermitShares& shares, DeviceOptions options)
    : volume_(volume),
      shares_(shares),
      options_(std::move(options)),
      losses_of_former_life_(volume.losses().news) {
    shares_.join(share_);
}

Device::~Device() {
    RTRS_ASSERT(attached_ == 0);
    shares_.leave(share_);
}

bool Device::settled() const noexcept {
    return volume_.state() != VolumeState::opening || volume_.open_error();
}

nbd::ExportDescription Device::describe() const noexcept {
    nbd::ExportDescription description;
    description.text = options_.description;
    const VolumeState state = volume_.state();
    // What has come back is not what was open: it is nothing to begin with, either.
    const bool refused_as_it_is = volume_.open_error() == rtrs::from_errno(EMEDIUMTYPE);
    if ((state != VolumeState::open && state != VolumeState::reopening) || refused_as_it_is) {
        unavailable_ = "volume " + volume_.options().name + " is not open";
        if (const std::string why = why_not_open(volume_); !why.empty()) unavailable_ += ": " + why;
        description.unavailable = unavailable_;
        const int refused = rtrs::to_errno(volume_.open_error());
        if (refused == EACCES || refused == EPERM || refused == ESTALE || refused == EMEDIUMTYPE) {
            description.unavailable_type = nbd::OptionReply::error_policy;
        }
        return description;
    }
    const VolumeGeometry& geometry = volume_.geometry();
    namespace offer = nbd::transmission_flag;
    description.size_bytes = geometry.size_bytes;
    // Flush and FUA hold over all connections: the server has a request's data before it answers,
    // and its flush covers the whole volume.
    std::uint16_t flags = offer::has_flags | offer::send_flush | offer::send_fua |
                          offer::can_multi_conn | offer::send_cache;
    if (volume_.options().access == AccessMode::read_only) {
        flags |= offer::read_only;
    } else {
        // Zeroes can always be written; whether fast is answered per request.
        flags |= offer::send_write_zeroes | offer::send_fast_zero;
        if (geometry.discard_bytes_max > 0) flags |= offer::send_trim;
    }
    description.transmission_flags = flags;
    description.block_sizes.minimum_bytes = geometry.logical_block_bytes;
    description.block_sizes.maximum_bytes = maximum_bytes();
    // Not above the maximum, as the protocol has it.
    description.block_sizes.preferred_bytes =
        std::min(std::max(4096u, geometry.physical_block_bytes), std::bit_floor(maximum_bytes()));
    return description;
}

// Bytes of one READ or WRITE piece: whole blocks.
std::uint32_t Device::piece_bytes() const noexcept {
    return piece_bytes_max(VolumeOperation::read, volume_.geometry(),
                           volume_.session().rtrs().max_io_bytes());
}

std::uint32_t Device::request_permits_max() const noexcept {
    return std::max(1u, divide_up(maximum_bytes(), piece_bytes()));
}

std::uint32_t Device::maximum_bytes() const noexcept {
    const std::uint64_t pieces =
        std::min<std::uint64_t>(volume_.session().rtrs().permits_max(), pieces_max);
    const std::uint64_t all = pieces * piece_bytes();
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(payload_bytes_max, all)) &
           ~(volume_.geometry().logical_block_bytes - 1);
}

// How far one submit of a request without payload goes.
std::uint32_t Device::round_bytes(const nbd::Request& request) const noexcept {
    return piece_bytes_max(operation_of(request.command), volume_.geometry(), piece_bytes());
}

std::uint32_t Device::permits_for(const nbd::Request& request) const noexcept {
    switch (request.command) {
        case Command::read:
        case Command::write:
            return divide_up(request.length, piece_bytes());
        case Command::trim:
        case Command::write_zeroes:
        case Command::cache:
            return std::min({divide_up(request.length, round_bytes(request)), dataless_pieces_max,
                             request_permits_max()});
        case Command::flush:
        case Command::block_status:
        case Command::disconnect:
            break;
    }
    return 1;
}

void Device::attach(DeviceRequest& request, std::span<rtrs::Permit> permits) noexcept {
    if (!pieces_) {
        pieces_count_ = volume_.session().rtrs().queue_depth();
        pieces_ = std::make_unique<DevicePiece[]>(pieces_count_);
    }
    ++attached_;
    request.device = this;
    request.first = request.last = nullptr;
    request.pieces = static_cast<std::uint32_t>(permits.size());
    request.in_flight = 0;
    request.next_offset = request.nbd.offset;
    request.error = {};
    request.error_offset = request.nbd.offset;  // of an error that no piece has
    request.reply_bytes = 0;
    request.flushing = false;
    request.tells_losses = 0;
    const std::uint16_t flags = request.nbd.flags;
    request.whole.begin(operation_of(request.nbd.command),
                        {.forced = (flags & flag::fua) != 0,
                         .no_unmap = (flags & flag::no_hole) != 0,
                         .fast_only = (flags & flag::fast_zero) != 0});
    request.started = false;
    request.abandoned = false;
    const std::uint32_t most = piece_bytes();
    std::uint32_t left = request.nbd.length;
    for (rtrs::Permit& permit : permits) {
        const auto id = static_cast<std::uint32_t>(permit.id());
        RTRS_ASSERT(id < pieces_count_);
        DevicePiece& piece = pieces_[id];
        piece.permit = std::move(permit);
        piece.request = &request;
        piece.next = nullptr;
        piece.offset = request.nbd.offset + (request.nbd.length - left);
        piece.bytes = std::min(left, most);
        piece.zeroes_due = 0;
        left -= piece.bytes;
        (request.last != nullptr ? request.last->next : request.first) = &piece;
        request.last = &piece;
    }
}

void Device::release(DeviceRequest& request) noexcept {
    RTRS_ASSERT(request.in_flight == 0 && attached_ > 0);
    --attached_;
    DevicePiece* piece = std::exchange(request.first, nullptr);
    request.last = nullptr;
    while (piece != nullptr) {
        // The permit may be taken, and its piece used, before the assignment below returns.
        DevicePiece* const next = piece->next;
        rtrs::Permit home = std::move(piece->permit);
        piece = next;
    }
}

void Device::start(DeviceRequest& request) {
    request.started = true;
    request.order = ++started_;
    if (may_start(request)) return run(request);
    request.next_waiting = std::exchange(waiting_, &request);
    ++left_behind_.waiting;
}

void Device::run(DeviceRequest& request) {
    switch (request.nbd.command) {
        case Command::read:
        case Command::write:
            return start_payload(request);
        case Command::flush:
            return submit_flush(request);
        case Command::trim:
        case Command::cache:
        case Command::write_zeroes:
            return start_rounds(request);
        case Command::block_status:
            return start_block_status(request);
        case Command::disconnect:
            break;
    }
    RTRS_ASSERT(false);  // nbd::check() refuses it
}

void Device::start_payload(DeviceRequest& request) {
    VolumeIo io = request.whole.piece(volume_.geometry());
    // Counted first: nothing may look complete before all of it is on its way.
    request.in_flight = request.pieces;
    for (DevicePiece* piece = request.first; piece != nullptr; piece = piece->next) {
        io.offset = piece->offset;
        io.bytes = piece->bytes;
        submit(*piece, io);
    }
}

void Device::start_rounds(DeviceRequest& request) {
    const VolumeOperation operation = operation_of(request.nbd.command);
    const bool fast =
        volume_.geometry().fast_zero && !zeroes_are_written(operation, volume_.geometry());
    if ((request.nbd.flags & flag::fast_zero) && !fast) {
        request.error = rtrs::from_errno(EOPNOTSUPP);
        return finish(request);
    }
    // Fewer than its permits, if it had to wait and the volume has come back with larger limits.
    const std::uint32_t rounds = divide_up(request.nbd.length, round_bytes(request.nbd));
    request.in_flight = std::min(request.pieces, rounds);
    DevicePiece* piece = request.first;
    for (std::uint32_t left = request.in_flight; left > 0; --left, piece = piece->next) {
        submit_round(request, *piece);
    }
}

void Device::submit_round(DeviceRequest& request, DevicePiece& piece) {
    const std::uint64_t end = request.nbd.offset + request.nbd.length;
    VolumeIo io = request.whole.piece(volume_.geometry());
    io.offset = piece.offset = request.next_offset;
    io.bytes = piece.bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(round_bytes(request.nbd), end - request.next_offset));
    request.next_offset += io.bytes;
    // In every round: the volume may have come back as one that needs it.
    if (io.operation == VolumeOperation::write) {
        std::memset(piece.permit.payload().data(), 0, io.bytes);
    }
    submit(piece, io);
}

// What the volume was asked to do itself, and does not, in as many writes as it takes.
void Device::write_zeroes(DevicePiece& piece, std::uint64_t offset, std::uint32_t bytes) {
    VolumeIo io;
    io.operation = VolumeOperation::write;
    io.offset = piece.offset = offset;
    io.bytes = piece.bytes = std::min(bytes, piece_bytes());
    piece.zeroes_due = bytes - piece.bytes;
    std::memset(piece.permit.payload().data(), 0, io.bytes);
    submit(piece, io);
}

void Device::submit_flush(DeviceRequest& request) {
    request.flushing = true;
    request.in_flight = 1;
    request.first->offset = request.nbd.offset;
    submit(*request.first, request.whole.flush());
}

void Device::submit(DevicePiece& piece, VolumeIo io) {
    piece.operation = io.operation;
    io.context = &piece;
    io.responded = [](void* context, rtrs::Permit permit, std::error_code error) {
        auto& done = *static_cast<DevicePiece*>(context);
        done.permit = std::move(permit);
        done.request->device->piece_done(done, error);
    };
    volume_.submit(std::move(piece.permit), io);
}

void Device::piece_done(DevicePiece& piece, std::error_code error) {
    DeviceRequest& request = *piece.request;
    const std::uint64_t caches_lost = volume_.losses().caches;
    if (request.whole.zeroes_are_due(piece.operation, error)) {
        return write_zeroes(piece, piece.offset, piece.bytes);
    }
    if (RequestInPieces::is_moot(piece.operation, error)) {
        error.clear();
        request.next_offset = request.nbd.offset + request.nbd.length;
    }
    error = request.whole.answered(piece.operation, error, caches_lost);
    // The first by its place, from which a client may judge what was done before it.
    if (error && (!request.error || piece.offset < request.error_offset)) {
        request.error = error;
        request.error_offset = piece.offset;
    }
    if (piece.zeroes_due > 0 && !request.error) {
        return write_zeroes(piece, piece.offset + piece.bytes, piece.zeroes_due);
    }
    if (!carries_payload(request.nbd.command) && !request.flushing && !request.error &&
        request.next_offset < request.nbd.offset + request.nbd.length) {
        return submit_round(request, piece);
    }
    if (--request.in_flight > 0) return;
    if (!request.error && !request.flushing && request.whole.needs_flush(volume_.geometry())) {
        return submit_flush(request);
    }
    if (!request.error && request.whole.lost_in_part(caches_lost)) lost_in_part();
    if (!request.error && request.nbd.command == Command::read) {
        request.reply_bytes = request.nbd.length;
    }
    finish(request);
}

void Device::finish(DeviceRequest& request) {
    if (request.nbd.command == Command::flush) tell_losses(request);
    const bool abandoned = request.abandoned;
    request.started = false;
    if (abandoned) forget_abandoned(request);
    request.done(request);
    if (abandoned) start_waiting();
}

void Device::start_block_status(DeviceRequest& request) {
    if (!volume_.geometry().extents) return answer_block_status(request, {});
    request.in_flight = 1;
    request.first->offset = request.nbd.offset;
    VolumeIo io;
    io.operation = VolumeOperation::extents;
    io.offset = request.nbd.offset;
    io.bytes = request.nbd.length;
    io.context = request.first;
    io.responded = [](void* context, rtrs::Permit permit, std::error_code error) {
        auto& done = *static_cast<DevicePiece*>(context);
        done.permit = std::move(permit);
        done.request->in_flight = 0;
        // "Data" is always true enough; no reader is helped by an error here.
        Device& device = *done.request->device;
        const auto extents =
            error ? std::unexpected(error) : device.volume_.extents_in(done.permit);
        device.answer_block_status(*done.request,
                                   extents ? *extents : std::span<const ExtentDescriptor>());
    };
    volume_.submit(std::move(request.first->permit), io);
}

// The reply is built in the permit's memory and sent from there, like the data of a read.
void Device::answer_block_status(DeviceRequest& request,
                                 std::span<const ExtentDescriptor> extents) {
    const rtrs::MutableBytes space = request.first->permit.payload();
    std::size_t room = nbd::block_status_extents_max(space.size());
    if (request.nbd.flags & flag::req_one) room = 1;
    constexpr std::size_t chunk_extents_max = 1024;
    nbd::BlockStatusWriter writer(space, std::min(room, chunk_extents_max), request.nbd);
    for (const ExtentDescriptor& extent : extents) {
        if (!writer.add(extent.length, static_cast<std::uint32_t>(extent.flags))) break;
    }
    request.reply_bytes = static_cast<std::uint32_t>(writer.finish());
    finish(request);
}

std::size_t Device::gather(const DeviceRequest& request, std::span<iovec> to) noexcept {
    std::size_t used = 0;
    std::size_t left = request.reply_bytes;
    for (const DevicePiece* piece = request.first; piece != nullptr && left > 0;
         piece = piece->next) {
        const auto payload = piece->permit.payload();
        const std::size_t bytes =
            request.nbd.command == Command::read ? piece->bytes : std::min(left, payload.size());
        to[used++] = {payload.data(), bytes};
        left -= bytes;
    }
    RTRS_ASSERT(left == 0);
    return used;
}

}  // namespace rnbd
