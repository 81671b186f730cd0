// Tracks which acknowledged writes of a volume may be only in the server's cache, which were lost
// with that cache, and whether the volume's user was told of the loss.
//
// Writes whose durability needs a flush are numbered as they are acknowledged. A flush covers the
// writes that were acknowledged before it was submitted. If the server comes back with another
// cache (another epoch), the unflushed writes are lost. From then on flushes fail, until the user
// was told of the failure of a flush that covers all lost writes.
//
// Pure. THREAD: the session's.
#pragma once

#include <cstdint>
#include <optional>

namespace rnbd {

// The losses of acknowledged writes at the server's side, since the start.
struct VolumeLosses {
    std::uint64_t caches = 0;  // how often a cache with unflushed writes was lost
    std::uint64_t writes = 0;  // how many lost writes no flush had covered
    // Grows with each lost cache, and with each change that was lost in part. A user that was told
    // of a smaller number has something to be told.
    std::uint64_t news = 0;
};

class UnflushedWrites {
  public:
    // former_epoch: the epoch of the cache that may have writes of a former life; 0: there are no
    // such writes. Their number is not known, so all of them count as one write.
    explicit UnflushedWrites(std::uint64_t former_epoch) noexcept;

    // The writes that a flush covers which is submitted now.
    std::uint64_t acknowledged() const noexcept { return acknowledged_; }
    // How many acknowledged writes are neither flushed nor lost.
    std::uint64_t count() const noexcept { return acknowledged_ - flushed_; }
    // The epoch of the cache that has these writes; 0: not known.
    std::uint64_t epoch() const noexcept { return epoch_.value_or(0); }
    const VolumeLosses& losses() const noexcept { return losses_; }

    // One more write was acknowledged.
    // ASSUMES: by the cache that is there now.
    void acknowledge() noexcept { ++acknowledged_; }
    // A flush that covers this many writes has succeeded.
    void flushed(std::uint64_t covers) noexcept;
    // For a write that needs a flush and was answered only now: whether it is lost, because the
    // cache with the epoch sent_to, to which it was sent, is lost.
    bool was_lost(std::uint64_t sent_to) const noexcept;

    // The server's cache has this epoch now. If the epoch is another one than before, all unflushed
    // writes are lost.
    struct Loss {
        std::uint64_t writes;
        bool of_former_life;  // one of the writes stands for all writes of the former life
        // Flushes that were submitted before, and cover more writes than this, have to fail.
        std::uint64_t flushed;
    };
    std::optional<Loss> note_epoch(std::uint64_t now) noexcept;
    // A change in several parts was acknowledged, and a cache was lost after the first part was
    // acknowledged, and maybe that part with it. If the user was told of the lost cache meanwhile,
    // that did not cover this change.
    void lost_in_part() noexcept;
    // Something of a former life was lost, and its user was not told.
    void lost_in_former_life() noexcept;

    // Whether a flush that is submitted now has to fail because of a loss.
    bool flushes_fail() const noexcept { return untold_ > 0; }
    // The failure of a flush that covers this many writes was reported to the user.
    void told(std::uint64_t covers) noexcept;

  private:
    std::uint64_t acknowledged_ = 0;
    std::uint64_t flushed_ = 0;  // writes up to this number are durable, or counted as lost
    std::optional<std::uint64_t> epoch_;
    bool has_former_life_ = false;
    // Something is lost among the writes up to this number. Flushes fail until the failure of a
    // flush that covers all of them was reported. 0: there is nothing to report.
    std::uint64_t untold_ = 0;
    VolumeLosses losses_;
};

}  // namespace rnbd
