// Rules for a user's request that is sent to the server in several pieces: how long a piece may be,
// and as what it is sent; what its answer means; how a change is made durable if it has to be, and
// how to notice that the server lost its write cache between two pieces, and some of the pieces
// with it.
//
// Whose permits the pieces have, when each is sent, and which of several errors is reported is
// their user's: an NBD request has all its permits from before its payload to after its answer
// (rnbd-client/device.h), a program's request takes them one by one (librnbd/requests.h).
//
// OWNER: the request. Pure. THREAD: the session's. ERRORS: those of the pieces, and EIO.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>

#include "rnbd/remote_volume.h"
#include "rtrs/base/error.h"

namespace rnbd {

// At most so many pieces of a request without data are under way at a time.
inline constexpr std::uint32_t dataless_pieces_max = 8;

// Whether zeroes are sent as data, because the server does not support write_zeroes.
constexpr bool zeroes_are_written(VolumeOperation operation,
                                  const VolumeGeometry& geometry) noexcept {
    return operation == VolumeOperation::write_zeroes && geometry.write_zeroes_bytes_max == 0;
}

// The longest piece: a whole number of blocks, at least one, and at most 2 GiB, which fits a 32-bit
// length. io_bytes_max: the session's limit.
constexpr std::uint32_t piece_bytes_max(VolumeOperation operation, const VolumeGeometry& geometry,
                                        std::uint32_t io_bytes_max) noexcept {
    constexpr std::uint64_t length_max = 1u << 31;
    std::uint64_t limit = io_bytes_max;
    if (operation == VolumeOperation::extents) limit = length_max;
    if (operation == VolumeOperation::discard) limit = geometry.discard_bytes_max;
    if (operation == VolumeOperation::write_zeroes && !zeroes_are_written(operation, geometry)) {
        limit = geometry.write_zeroes_bytes_max;
    }
    const std::uint32_t block = geometry.logical_block_bytes;
    limit = std::min(limit, length_max);
    return std::max(block, static_cast<std::uint32_t>(limit) & ~(block - 1));
}

// An object whose bytes are all zero is valid: it is a read.
class RequestInPieces {
  public:
    struct Flags {
        bool forced = false;     // what it changes has to be durable when it is answered
        bool no_unmap = false;   // as VolumeIo::no_unmap
        bool fast_only = false;  // as VolumeIo::fast_only
    };

    void begin(VolumeOperation operation, Flags flags) noexcept {
        operation_ = operation;
        flags_ = flags;
        flags_.forced = flags.forced && changes_content(operation);
        unforced_ = false;
        caches_lost_.reset();
    }

    // What a piece is if it is sent now: all but its place, its length and whom the answer is for.
    // A write for write_zeroes: the piece's data is zeroes. ASSUMES: the request is no flush.
    VolumeIo piece(const VolumeGeometry& geometry) noexcept {
        VolumeIo io{.operation = operation_};
        if (operation_ == VolumeOperation::write) {
            io.force_unit_access = forces_piece(geometry);
        } else if (zeroes_are_written(operation_, geometry)) {
            io.operation = VolumeOperation::write;
        } else if (operation_ == VolumeOperation::write_zeroes) {
            io.no_unmap = flags_.no_unmap;
            io.fast_only = flags_.fast_only;
        }
        return io;
    }
    // The request itself if it is a flush; else the flush behind its pieces.
    VolumeIo flush() const noexcept {
        return {.operation = VolumeOperation::flush,
                .behind = operation_ != VolumeOperation::flush};
    }
    // Whether a flush has to follow when all pieces are done. If the volume has come back with FUA
    // support meanwhile, that does not help the pieces that were sent before.
    bool needs_flush(const VolumeGeometry& geometry) const noexcept {
        return flags_.forced &&
               (operation_ != VolumeOperation::write || unforced_ || !geometry.force_unit_access);
    }

    // Whether a piece that was sent as `sent`, and failed with `error`, has to be written as zero
    // data after all, because the volume has come back without write_zeroes. A request that is to
    // be fast fails instead.
    bool zeroes_are_due(VolumeOperation sent, std::error_code error) const noexcept {
        return sent == VolumeOperation::write_zeroes && !flags_.fast_only && is_unsupported(error);
    }
    // Whether that piece counts as done all the same, and nothing more of the request need be sent:
    // a discard is a hint, which a volume that has come back without discards need not take.
    static bool is_moot(VolumeOperation sent, std::error_code error) noexcept {
        return sent == VolumeOperation::discard && is_unsupported(error);
    }
    // Call it for each other answer; sent: what the piece was sent as. caches_lost: the present
    // VolumeLosses::caches. If it has grown between the answer to the first piece and the answer to
    // the flush after all pieces, a piece may be lost, and another flush may have reported the loss
    // already. Returns the error to report.
    std::error_code answered(VolumeOperation sent, std::error_code error,
                             std::uint64_t caches_lost) noexcept {
        if (error) return error;
        if (!caches_lost_) caches_lost_ = caches_lost;
        if (sent == VolumeOperation::flush && *caches_lost_ != caches_lost) {
            return rtrs::from_errno(EIO);
        }
        return {};
    }
    // Call it when all pieces were answered without an error. Whether a piece may be lost of which
    // no later flush would tell (RemoteVolume::lost_in_part()). If the request was forced, each
    // piece is durable, or the flush after them has checked.
    bool lost_in_part(std::uint64_t caches_lost) const noexcept {
        return changes_content(operation_) && !flags_.forced && caches_lost_ &&
               *caches_lost_ != caches_lost;
    }

  private:
    // Whether the piece that is sent now is to have FUA itself, which only plain writes can have.
    // After a piece without FUA, FUA is of no use any more, because the flush after the pieces
    // covers all of them.
    bool forces_piece(const VolumeGeometry& geometry) noexcept {
        const bool forces = flags_.forced && !needs_flush(geometry);
        unforced_ = unforced_ || !forces;
        return forces;
    }
    static bool is_unsupported(std::error_code error) noexcept {
        return error == std::errc::operation_not_supported;
    }

    VolumeOperation operation_ = VolumeOperation::read;
    Flags flags_;
    bool unforced_ = false;                     // a write was sent without FUA
    std::optional<std::uint64_t> caches_lost_;  // when the first piece was acknowledged
};

}  // namespace rnbd
