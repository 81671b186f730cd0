#include "rnbd-server/state/cache_life.h"

namespace rnbd {

void CacheLife::begins(std::uint64_t epoch) noexcept {
    medium_.clear();
    held_.reset();
    ticket_ = 0;
    storage_epoch_ = epoch_ = epoch;
}

void CacheLife::begins(const std::string& medium, std::uint64_t epoch, rtrs::Instant now) {
    begins(epoch);
    medium_ = medium;
    held_ = epochs_.hold(medium);
    ticket_ = epochs_.opens(medium, epoch);
    noted_by_ = now + file_wait_max;
}

void CacheLife::was_not_opened() {
    if (held_) epochs_.was_not_opened(medium_);
}

void CacheLife::opened() {
    sync_failed_ = false;
    if (held_) epoch_ = epochs_.opened(medium_, storage_epoch_, ticket_);
}

void CacheLife::is_another(std::uint64_t epoch) {
    storage_epoch_ = epoch_ = epoch;
    // The holders go on meanwhile. Until the epoch is in the file, a restarted server would tell
    // them of a loss, too.
    if (held_) ticket_ = epochs_.opens(medium_, epoch);
    opened();
}

void CacheLife::flushed() {
    if (!sync_failed_) epochs_.flushed(medium_);
}

void CacheLife::left(bool flush_failed) {
    if (flush_failed || sync_failed_) lost();
}

}  // namespace rnbd
