// Which acknowledged writes of a volume the server's cache may still have alone, which were lost
// with it, and whether the volume's user has heard of that.
//
// Writes whose durability needs a flush are numbered as they are acknowledged. A flush covers those
// that were acknowledged when it was submitted. A server that comes back with another cache (the
// epoch is another) has lost what was not flushed: from then on flushes fail, until the failure of
// one that covers all that was lost was delivered.
//
// Pure. THREAD: the session's.
#pragma once

#include <cstdint>
#include <optional>

namespace rnbd {

// What the server's side lost of what it had acknowledged; since the start.
struct VolumeLosses {
    std::uint64_t caches = 0;  // how often it came back without its cache while that was needed
    std::uint64_t writes = 0;  // how many that no flush had covered
    // Grows with each lost cache, and with each change that was lost in part: who has heard of
    // fewer has something to hear.
    std::uint64_t news = 0;
};

class UnflushedWrites {
  public:
    // former_epoch: of the cache that may have writes of a former life; 0: there are none. How many
    // they were is not known: they count as one.
    explicit UnflushedWrites(std::uint64_t former_epoch) noexcept;

    // What a flush that is submitted now covers.
    std::uint64_t acknowledged() const noexcept { return acknowledged_; }
    // Neither flushed nor lost.
    std::uint64_t count() const noexcept { return acknowledged_ - flushed_; }
    // Of the cache that has them; 0: not known.
    std::uint64_t epoch() const noexcept { return epoch_.value_or(0); }
    const VolumeLosses& losses() const noexcept { return losses_; }

    // One more. ASSUMES: of the cache that is there now.
    void acknowledge() noexcept { ++acknowledged_; }
    // A flush that covers so many has succeeded.
    void flushed(std::uint64_t covers) noexcept;
    // A write that needs a flush is answered only now, and was sent to the cache of that epoch:
    // whether it is lost with that.
    bool was_lost(std::uint64_t sent_to) const noexcept;

    // The cache has this epoch. If it is another one, and some were not flushed, they are lost.
    struct Loss {
        std::uint64_t writes;
        bool of_former_life;  // one of them stands for all of that
        // Flushes that were submitted before, and cover more than these, are to fail.
        std::uint64_t flushed;
    };
    std::optional<Loss> note_epoch(std::uint64_t now) noexcept;
    // A change in several parts was acknowledged, and a cache lost after its first part was: maybe
    // with it. Who heard of the loss meanwhile did not hear it of this one.
    void lost_in_part() noexcept;
    // Something of a former life was lost, and its user has not heard of that.
    void lost_in_former_life() noexcept;

    // Whether a flush that is submitted now is to fail, for what was lost.
    bool flushes_fail() const noexcept { return untold_ > 0; }
    // A flush that covers so many was reported as failed.
    void told(std::uint64_t covers) noexcept;

  private:
    std::uint64_t acknowledged_ = 0;
    std::uint64_t flushed_ = 0;  // up to here they are durable, or counted as lost
    std::optional<std::uint64_t> epoch_;
    bool has_former_life_ = false;
    // Up to here something is lost, and flushes fail until the failure of one that covers them all
    // was delivered; 0: nothing to tell.
    std::uint64_t untold_ = 0;
    VolumeLosses losses_;
};

}  // namespace rnbd
