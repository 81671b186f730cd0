// The receives that an endpoint offers. Memory is reserved at creation.
//
// The next receive to be used is as large as the oldest. It is the oldest itself or, if the newest
// has the same size, the newest, which may still be in the cache and whose pages exist. So a quiet
// connection that offers a hundred large buffers uses one of them.
//
// Whoever offers many receives does so in order: the buffers of an array one after the other, or
// the same one repeatedly. So they are stored as runs, each with the steps from one receive to the
// next. All that a session offers is one or two runs, and an idle one touches no reserved memory.
#pragma once

#include <cstdint>
#include <optional>

#include "rtrs/base/assert.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/tcp/growing_ring.h"
#include "rtrs/fabric/tcp/reserved_memory.h"

namespace rtrs::tcp {

class ReceiveQueue {
  public:
    struct Entry {
        std::uint64_t context = 0;
        Segment buffer{};
    };

    explicit ReceiveQueue(std::uint32_t entries_max) noexcept
        : entries_max_(entries_max), memory_(ReservedMemory::bytes_for<Run>(runs_max())) {
        if (!memory_.empty()) runs_.set_large(memory_.cut<Run>(runs_max()), entries_max);
    }
    // False if the memory could not be reserved.
    bool ready() const noexcept { return !memory_.empty(); }

    bool empty() const noexcept { return size_ == 0; }
    bool full() const noexcept { return size_ == entries_max_; }

    // ASSUMES: not full.
    void push(const Entry& entry) noexcept {
        RTRS_ASSERT(!full());
        ++size_;
        if (head_ != tail_ && runs_[tail_ - 1].take(entry)) return;
        runs_.make_room(head_, tail_);
        runs_[tail_++] = Run(entry);
    }
    // The receive that pop() will return, whatever is pushed until then. ASSUMES: not empty.
    const Entry& next() noexcept {
        RTRS_ASSERT(!empty());
        if (!next_) next_ = choose();
        return *next_;
    }
    // ASSUMES: not empty.
    Entry pop() noexcept {
        const Entry entry = next();
        next_.reset();
        --size_;
        return entry;
    }

  private:
    // Addresses are plain numbers here: anything may lie between two buffers.
    class Run {
      public:
        Run() noexcept = default;
        explicit Run(const Entry& entry) noexcept
            : context_(entry.context), address_(address_of(entry)), bytes_(entry.buffer.bytes) {}

        // True if the entry continues the run where it ends; it is then part of it.
        bool take(const Entry& entry) noexcept {
            if (entry.buffer.bytes != bytes_) return false;
            if (count_ == 1) {  // the second entry defines the steps
                context_step_ = entry.context - context_;
                address_step_ = address_of(entry) - address_;
            } else if (entry.context != context_ + count_ * context_step_ ||
                       address_of(entry) != address_ + count_ * address_step_) {
                return false;
            }
            ++count_;
            return true;
        }
        Entry first() const noexcept {
            return {context_, {reinterpret_cast<std::byte*>(address_), bytes_}};
        }
        Entry last() const noexcept {
            const std::uint64_t steps = count_ - 1;
            return {context_ + steps * context_step_,
                    {reinterpret_cast<std::byte*>(address_ + steps * address_step_), bytes_}};
        }
        std::uint32_t bytes() const noexcept { return bytes_; }
        // Returns whether it was the only one.
        bool drop_first() noexcept {
            context_ += context_step_;
            address_ += address_step_;
            return --count_ == 0;
        }
        bool drop_last() noexcept { return --count_ == 0; }

      private:
        // Modulo 2^64, so that steps may be negative.
        std::uint64_t context_ = 0;
        std::uint64_t address_ = 0;
        std::uint64_t context_step_ = 0;
        std::uint64_t address_step_ = 0;
        std::uint32_t bytes_ = 0;
        std::uint32_t count_ = 1;

        // The address of an empty buffer does not matter.
        static std::uint64_t address_of(const Entry& entry) noexcept {
            return entry.buffer.bytes > 0 ? reinterpret_cast<std::uint64_t>(entry.buffer.data) : 0;
        }
    };

    Entry choose() noexcept {
        Run& oldest = runs_[head_];
        Run& newest = runs_[tail_ - 1];
        if (newest.bytes() == oldest.bytes()) {
            const Entry entry = newest.last();
            if (newest.drop_last()) --tail_;
            return entry;
        }
        const Entry entry = oldest.first();
        if (oldest.drop_first()) ++head_;
        return entry;
    }

    using Runs = GrowingRing<Run, 4>;
    std::size_t runs_max() const noexcept { return Runs::large_count(entries_max_); }

    std::uint32_t entries_max_;
    ReservedMemory memory_;
    Runs runs_;
    std::uint64_t head_ = 0;  // of the runs
    std::uint64_t tail_ = 0;
    std::optional<Entry> next_;
    std::uint32_t size_ = 0;  // number of receives, including next_
};

}  // namespace rtrs::tcp
