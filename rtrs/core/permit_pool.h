// Which permits are free, and who waits for one.
//
// Permits are handed out last in, first out: the most recently used memory is warm, and the memory
// of permits that were never needed is never touched. Waiters are served in order of arrival, each
// with all that it asked for, and nobody else can take permits while somebody waits. So no waiter
// starves, and none holds only part of what it needs.
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
    std::uint32_t free() const noexcept { return static_cast<std::uint32_t>(free_.size()); }

    bool can_take(std::uint32_t count) const noexcept {
        return waiters_.empty() && free_.size() >= count;
    }
    // ASSUMES: can_take(1), or free() > 0 for a waiter's turn.
    PermitId take() noexcept {
        RTRS_ASSERT(!free_.empty());
        const std::uint32_t id = free_.back();
        free_.pop_back();
        last_ = std::min(last_, free_.size());
        return PermitId{id};
    }
    void put(PermitId id) noexcept {
        RTRS_ASSERT(free_.size() < total_);
        free_.push_back(static_cast<std::uint32_t>(id));
    }

    // As put(), but it is handed out only when no other is free.
    void put_last(PermitId id) noexcept {
        put(id);
        std::swap(free_[last_++], free_.back());
    }

    // Takes out every free permit for which the predicate is true; each must be put() again.
    template <typename Predicate>
    void withdraw(Predicate&& predicate) {
        std::erase_if(free_, predicate);
        last_ = 0;
    }

    void wait(PermitWaiter& waiter) noexcept { waiters_.push_back(waiter); }
    void stop_waiting(PermitWaiter& waiter) noexcept {
        if (waiter.linked()) IntrusiveList<PermitWaiter>::remove(waiter);
    }
    // Removes and returns the next waiter if it can be served in full; null if it cannot, or nobody
    // waits.
    PermitWaiter* next_served() noexcept {
        if (waiters_.empty() || waiters_.front().count > free_.size()) return nullptr;
        return &waiters_.pop_front();
    }
    bool waiting() const noexcept { return !waiters_.empty(); }

  private:
    std::vector<std::uint32_t> free_;
    std::size_t last_ = 0;  // the first ones of free_, which are handed out last
    std::uint32_t total_ = 0;
    IntrusiveList<PermitWaiter> waiters_;
};

}  // namespace rtrs
