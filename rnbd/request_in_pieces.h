// What a request of a volume's user that goes to the server in several pieces has to see to: how
// long a piece may be, what makes a change durable that has to be, and that a write cache which the
// server lost between two pieces does not take some of them unseen.
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

// Most pieces under way of a request whose permits carry no data.
inline constexpr std::uint32_t dataless_pieces_max = 8;

constexpr bool changes_content(VolumeOperation operation) noexcept {
    return operation == VolumeOperation::write || operation == VolumeOperation::discard ||
           operation == VolumeOperation::write_zeroes;
}

// Zeroes can always be had: where the server does not make them, they are written.
constexpr bool zeroes_are_written(VolumeOperation operation,
                                  const VolumeGeometry& geometry) noexcept {
    return operation == VolumeOperation::write_zeroes && geometry.write_zeroes_bytes_max == 0;
}

// Whether they have to be written after all: of a piece that was sent as `sent`, to a volume that
// has come back as one that does not make them. Not for who would rather have them failed.
inline bool zeroes_are_due(VolumeOperation sent, bool fast_only, std::error_code error) noexcept {
    return sent == VolumeOperation::write_zeroes && !fast_only &&
           error == std::errc::operation_not_supported;
}

// Of one piece: whole blocks, one at least, and no more than a 32-bit length says. io_bytes_max: of
// the session.
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

// Valid with all bytes zero, as a read.
class RequestInPieces {
  public:
    // forced: what it changes has to be durable when it is answered.
    void begin(VolumeOperation operation, bool forced) noexcept {
        operation_ = operation;
        forced_ = forced && changes_content(operation);
        unforced_ = false;
        caches_lost_.reset();
    }

    // Whether the piece that leaves now is to be forced by itself (FUA), which only plain writes
    // can be. After one that was not it is of no use any more: the flush behind them covers all.
    bool forces_piece(const VolumeGeometry& geometry) noexcept {
        const bool forces = forced_ && !needs_flush(geometry);
        unforced_ = unforced_ || !forces;
        return forces;
    }
    // Whether a flush has to follow when all pieces are done. That one came back as a volume that
    // takes FUA meanwhile helps nothing of what was sent before.
    bool needs_flush(const VolumeGeometry& geometry) const noexcept {
        return forced_ &&
               (operation_ != VolumeOperation::write || unforced_ || !geometry.force_unit_access);
    }

    enum class Answer : std::uint8_t { piece, flush_behind };
    // caches_lost: VolumeLosses::caches now. If there are more of them when the flush behind all
    // pieces is answered than when the first piece was, a piece may be gone, and another flush may
    // have told that. Returns the error that counts.
    std::error_code answered(Answer what, std::error_code error,
                             std::uint64_t caches_lost) noexcept {
        if (error) return error;
        if (!caches_lost_) caches_lost_ = caches_lost;
        if (what == Answer::flush_behind && *caches_lost_ != caches_lost) {
            return rtrs::from_errno(EIO);
        }
        return {};
    }
    // When all was answered without an error: whether a part of it may be gone that no flush to
    // come tells of (RemoteVolume::lost_in_part()). If it was forced, each part is durable, or the
    // flush behind them has looked.
    bool lost_in_part(std::uint64_t caches_lost) const noexcept {
        return changes_content(operation_) && !forced_ && caches_lost_ &&
               *caches_lost_ != caches_lost;
    }

  private:
    VolumeOperation operation_ = VolumeOperation::read;
    bool forced_ = false;
    bool unforced_ = false;                     // a piece was sent that was not forced by itself
    std::optional<std::uint64_t> caches_lost_;  // when a first piece was acknowledged
};

}  // namespace rnbd
