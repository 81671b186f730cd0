// The receives that an endpoint offers, oldest first, since a reliable connection consumes them in
// order. Receives that were offered before the device is known wait here with their buffers.
//
// Pure; no allocation after construction.
#pragma once

#include <cstdint>
#include <memory>

#include "rtrs/base/assert.h"
#include "rtrs/fabric.h"

namespace rtrs::verbs {

class ReceiveRing {
  public:
    struct Entry {
        std::uint64_t context = 0;
        Segment buffer{};
    };

    explicit ReceiveRing(std::uint32_t capacity)
        : capacity_(capacity), entries_(std::make_unique_for_overwrite<Entry[]>(capacity)) {}

    bool empty() const noexcept { return head_ == tail_; }
    bool full() const noexcept { return tail_ - head_ == capacity_; }
    // ASSUMES: not full.
    void push(const Entry& entry) noexcept {
        RTRS_ASSERT(!full());
        entries_[tail_++ % capacity_] = entry;
    }
    // ASSUMES: not empty.
    Entry pop() noexcept {
        RTRS_ASSERT(!empty());
        return entries_[head_++ % capacity_];
    }
    template <typename Visit>
    void for_each(Visit visit) const {
        for (std::uint64_t at = head_; at != tail_; ++at) visit(entries_[at % capacity_]);
    }

  private:
    std::uint32_t capacity_;
    std::unique_ptr<Entry[]> entries_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
};

}  // namespace rtrs::verbs
