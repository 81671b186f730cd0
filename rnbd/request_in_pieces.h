// Rules for a user's request that is sent to the server in several pieces: how long a piece may be,
// how a change is made durable if it has to be, and how to notice that the server lost its write
// cache between two pieces, and some of the pieces with it.
//
// Pure. THREAD: the session's.
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

constexpr bool changes_content(VolumeOperation operation) noexcept {
    return operation == VolumeOperation::write || operation == VolumeOperation::discard ||
           operation == VolumeOperation::write_zeroes;
}

// Whether zeroes are sent as data, because the server does not support write_zeroes.
constexpr bool zeroes_are_written(VolumeOperation operation,
                                  const VolumeGeometry& geometry) noexcept {
    return operation == VolumeOperation::write_zeroes && geometry.write_zeroes_bytes_max == 0;
}

// Whether a piece that was sent as `sent`, and failed with `error`, has to be written as zero data
// after all, because the volume has come back without write_zeroes. Not if fast_only is set: such a
// request fails instead.
inline bool zeroes_are_due(VolumeOperation sent, bool fast_only, std::error_code error) noexcept {
    return sent == VolumeOperation::write_zeroes && !fast_only &&
           error == std::errc::operation_not_supported;
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
    // forced: what the request changes has to be durable when it is answered.
    void begin(VolumeOperation operation, bool forced) noexcept {
        operation_ = operation;
        forced_ = forced && changes_content(operation);
        unforced_ = false;
        caches_lost_.reset();
    }

    // Whether the piece that is sent now is to have FUA itself, which only plain writes can have.
    // After a piece without FUA, FUA is of no use any more, because the flush after the pieces
    // covers all of them.
    bool forces_piece(const VolumeGeometry& geometry) noexcept {
        const bool forces = forced_ && !needs_flush(geometry);
        unforced_ = unforced_ || !forces;
        return forces;
    }
    // Whether a flush has to follow when all pieces are done. If the volume has come back with FUA
    // support meanwhile, that does not help the pieces that were sent before.
    bool needs_flush(const VolumeGeometry& geometry) const noexcept {
        return forced_ &&
               (operation_ != VolumeOperation::write || unforced_ || !geometry.force_unit_access);
    }

    enum class Answer : std::uint8_t { piece, flush_behind };
    // caches_lost: the present VolumeLosses::caches. If it has grown between the answer to the
    // first piece and the answer to the flush after all pieces, a piece may be lost, and another
    // flush may have reported the loss already. Returns the error to report.
    std::error_code answered(Answer what, std::error_code error,
                             std::uint64_t caches_lost) noexcept {
        if (error) return error;
        if (!caches_lost_) caches_lost_ = caches_lost;
        if (what == Answer::flush_behind && *caches_lost_ != caches_lost) {
            return rtrs::from_errno(EIO);
        }
        return {};
    }
    // Call it when all pieces were answered without an error. Whether a piece may be lost of which
    // no later flush would tell (RemoteVolume::lost_in_part()). If the request was forced, each
    // piece is durable, or the flush after them has checked.
    bool lost_in_part(std::uint64_t caches_lost) const noexcept {
        return changes_content(operation_) && !forced_ && caches_lost_ &&
               *caches_lost_ != caches_lost;
    }

  private:
    VolumeOperation operation_ = VolumeOperation::read;
    bool forced_ = false;
    bool unforced_ = false;                     // a piece was sent without FUA
    std::optional<std::uint64_t> caches_lost_;  // when the first piece was acknowledged
};

}  // namespace rnbd
