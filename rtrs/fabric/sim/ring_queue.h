// A queue in one growing array: no allocation once it has reached its working size.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "rtrs/base/assert.h"

namespace rtrs::sim {

template <typename T>
class RingQueue {
  public:
    bool empty() const noexcept { return count_ == 0; }
    std::size_t size() const noexcept { return count_; }
    T& front() noexcept { return at(0); }
    T& back() noexcept { return at(count_ - 1); }
    T& at(std::size_t index) noexcept {
        RTRS_ASSERT(index < count_);
        return slots_[(head_ + index) & (slots_.size() - 1)];
    }
    void push_back(T value) {
        if (count_ == slots_.size()) grow();
        slots_[(head_ + count_) & (slots_.size() - 1)] = std::move(value);
        ++count_;
    }
    T pop_front() {
        T value = std::move(front());
        head_ = (head_ + 1) & (slots_.size() - 1);
        --count_;
        return value;
    }
    T pop_back() {
        T value = std::move(at(count_ - 1));
        --count_;
        return value;
    }

  private:
    void grow() {
        std::vector<T> bigger(slots_.empty() ? 4 : slots_.size() * 2);
        for (std::size_t i = 0; i < count_; ++i) bigger[i] = std::move(at(i));
        slots_ = std::move(bigger);
        head_ = 0;
    }

    std::vector<T> slots_;  // a power of two
    std::size_t head_ = 0;
    std::size_t count_ = 0;
};

}  // namespace rtrs::sim
