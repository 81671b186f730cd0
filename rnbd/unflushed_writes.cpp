#include "rnbd/unflushed_writes.h"

#include <algorithm>

#include "rtrs/base/planted.h"

namespace rnbd {
namespace {

bool is_planted() noexcept { return rtrs::planted(rtrs::PlantedBug::flush_forgotten); }

}  // namespace

UnflushedWrites::UnflushedWrites(std::uint64_t former_epoch) noexcept {
    if (former_epoch == 0) return;
    epoch_ = former_epoch;
    has_former_life_ = true;
    acknowledged_ = 1;
}

void UnflushedWrites::flushed(std::uint64_t covers) noexcept {
    flushed_ = std::max(flushed_, covers);
}

bool UnflushedWrites::was_lost(std::uint64_t sent_to) const noexcept {
    return sent_to != 0 && sent_to != epoch_ && !is_planted();
}

std::optional<UnflushedWrites::Loss> UnflushedWrites::note_epoch(std::uint64_t now) noexcept {
    const bool another = epoch_ && *epoch_ != now;
    epoch_ = now;
    if (!another || count() == 0 || is_planted()) return std::nullopt;
    const Loss loss{.writes = count(),
                    .of_former_life = has_former_life_ && flushed_ == 0,
                    .flushed = flushed_};
    ++losses_.caches;
    losses_.writes += loss.writes;
    ++losses_.news;
    untold_ = flushed_ = acknowledged_;
    return loss;
}

void UnflushedWrites::lost_in_part() noexcept {
    ++losses_.writes;
    ++losses_.news;
    untold_ = acknowledged_;
}

void UnflushedWrites::lost_in_former_life() noexcept {
    ++losses_.writes;
    ++losses_.news;
    // A flush covers acknowledged writes; without any, no flush could fail for the loss.
    if (acknowledged_ == 0) acknowledged_ = flushed_ = 1;
    untold_ = acknowledged_;
}

void UnflushedWrites::told(std::uint64_t covers) noexcept {
    if (covers >= untold_) untold_ = 0;
}

}  // namespace rnbd
