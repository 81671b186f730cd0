// Which permits are free, and who waits for one.
//
// Permits are handed out last in, first out: the most recently used memory is warm, and the memory
// of permits that were never needed is never touched. Waiters are served in order of arrival, each
// with all that it asked for, and nobody else can take permits while somebody waits. So no waiter
// starves, and none holds only part of what it needs.
//
// A permit *in doubt* may be free, but what is sent with it waits for an end that may be far away.
// So these are handed out last. While they are kept back, they are handed out only to those who
// need more than all others together: these would wait for the same end in any case, and with
// permits they can at least be told that they wait in vain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/client.h"

namespace rtrs {

class PermitPool {
  public:
    // ids 0 .. count - 1 become free.
    void fill(std::uint32_t count) {
        free_.reserve(count);
        for (std::uint32_t id = count; id > 0; --id) free_.push_back(id - 1);
        total_ = count;
    }

    std::uint32_t total() const noexcept { return total_; }
    // Those that are not kept back.
    std::uint32_t free() const noexcept { return usable(1); }
    // Those that are not in doubt.
    std::uint32_t free_of_doubt() const noexcept {
        return static_cast<std::uint32_t>(free_.size() - doubtful_);
    }

    bool can_take(std::uint32_t count) const noexcept {
        return waiters_.empty() && usable(count) >= count;
    }
    // ASSUMES: can_take(), free_of_doubt() > 0, or a waiter's turn.
    PermitId take() noexcept {
        RTRS_ASSERT(!free_.empty());
        const std::uint32_t id = free_.back();
        free_.pop_back();
        doubtful_ = std::min(doubtful_, free_.size());
        return PermitId{id};
    }
    void put(PermitId id) noexcept {
        RTRS_ASSERT(free_.size() < total_);
        free_.push_back(static_cast<std::uint32_t>(id));
    }
    // One that is in doubt.
    void put_doubtful(PermitId id) noexcept {
        put(id);
        std::swap(free_[doubtful_++], free_.back());
    }
    // Takes out this one. False: it is not among the free ones that are in doubt.
    bool take_doubtful(PermitId id) noexcept {
        const auto end = free_.begin() + static_cast<std::ptrdiff_t>(doubtful_);
        const auto place = std::find(free_.begin(), end, static_cast<std::uint32_t>(id));
        if (place == end) return false;
        std::swap(*place, free_[--doubtful_]);
        std::swap(free_[doubtful_], free_.back());
        free_.pop_back();
        return true;
    }
    // A permit comes to be in doubt, or is so no longer, wherever it is.
    void doubted() noexcept { ++doubted_; }
    void settled() noexcept { --doubted_; }
    void keep_back(bool yes) noexcept { keeps_back_ = yes; }

    void wait(PermitWaiter& waiter) noexcept { waiters_.push_back(waiter); }
    void stop_waiting(PermitWaiter& waiter) noexcept {
        if (waiter.linked()) IntrusiveList<PermitWaiter>::remove(waiter);
    }
    // Removes and returns the next waiter if it can be served in full; null if it cannot, or nobody
    // waits.
    PermitWaiter* next_served() noexcept {
        if (waiters_.empty()) return nullptr;
        const std::uint32_t count = waiters_.front().count;
        if (usable(count) < count) return nullptr;
        return &waiters_.pop_front();
    }
    bool waiting() const noexcept { return !waiters_.empty(); }

  private:
    // For one who needs so many.
    std::uint32_t usable(std::uint32_t count) const noexcept {
        const bool all = !keeps_back_ || count > total_ - doubted_;
        return all ? static_cast<std::uint32_t>(free_.size()) : free_of_doubt();
    }

    std::vector<std::uint32_t> free_;
    std::size_t doubtful_ = 0;  // the first ones of free_, which are in doubt
    std::uint32_t doubted_ = 0;
    bool keeps_back_ = false;
    std::uint32_t total_ = 0;
    IntrusiveList<PermitWaiter> waiters_;
};

}  // namespace rtrs
