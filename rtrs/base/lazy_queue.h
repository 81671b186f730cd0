// A queue of bounded length whose pages exist only once they are touched: see lazy_array.h.
#pragma once

#include <cstddef>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_array.h"

namespace rtrs {

// T: as for LazyArray, and assignable.
template <typename T>
class LazyQueue {
  public:
    LazyQueue() noexcept = default;
    explicit LazyQueue(std::size_t most) noexcept : ring_(most) {}

    // Whether its memory could be reserved.
    explicit operator bool() const noexcept { return static_cast<bool>(ring_); }
    bool empty() const noexcept { return count_ == 0; }
    bool full() const noexcept { return count_ == ring_.size(); }
    T& front() noexcept {
        RTRS_ASSERT(!empty());
        return ring_[first_];
    }
    void push(const T& element) noexcept {
        RTRS_ASSERT(!full());
        ring_[(first_ + count_++) % ring_.size()] = element;
    }
    void pop() noexcept {
        RTRS_ASSERT(!empty());
        first_ = (first_ + 1) % ring_.size();
        --count_;
    }

  private:
    LazyArray<T> ring_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

}  // namespace rtrs
