// The receives that an endpoint offers, oldest first. Memory is reserved at creation; entries for
// empty buffers cost 12 bytes.
#pragma once

#include <cstdint>

#include "rtrs/base/assert.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/tcp/reserved_memory.h"

namespace rtrs::tcp {

class ReceiveQueue {
  public:
    struct Entry {
        std::uint64_t context = 0;
        Segment buffer{};
    };

    explicit ReceiveQueue(std::uint32_t entries_max) noexcept
        : entries_max_(entries_max),
          memory_(ReservedMemory::bytes_for<std::uint64_t>(entries_max) +
                  ReservedMemory::bytes_for<std::uint32_t>(entries_max) +
                  ReservedMemory::bytes_for<std::byte*>(entries_max)) {
        if (memory_.empty()) return;
        contexts_ = memory_.cut<std::uint64_t>(entries_max);
        sizes_ = memory_.cut<std::uint32_t>(entries_max);
        data_ = memory_.cut<std::byte*>(entries_max);
    }
    // False if the memory could not be reserved.
    bool ready() const noexcept { return !memory_.empty(); }

    bool empty() const noexcept { return head_ == tail_; }
    bool full() const noexcept { return tail_ - head_ == entries_max_; }

    // ASSUMES: not full.
    void push(const Entry& entry) noexcept {
        RTRS_ASSERT(!full());
        const std::uint64_t at = tail_++ % entries_max_;
        contexts_[at] = entry.context;
        sizes_[at] = entry.buffer.bytes;
        if (entry.buffer.bytes > 0) data_[at] = entry.buffer.data;
    }
    // ASSUMES: not empty.
    Entry front() const noexcept {
        RTRS_ASSERT(!empty());
        const std::uint64_t at = head_ % entries_max_;
        return {contexts_[at], {sizes_[at] > 0 ? data_[at] : nullptr, sizes_[at]}};
    }
    Entry pop() noexcept {
        const Entry entry = front();
        ++head_;
        return entry;
    }

  private:
    std::uint32_t entries_max_;
    ReservedMemory memory_;
    std::uint64_t* contexts_ = nullptr;
    std::uint32_t* sizes_ = nullptr;
    std::byte** data_ = nullptr;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
};

}  // namespace rtrs::tcp
