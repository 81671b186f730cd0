// A fixed array of zero-initialised elements whose pages exist only once they are touched: an idle
// session costs what it uses, not what it was promised.
#pragma once

#include <cstddef>
#include <type_traits>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_memory.h"

namespace rtrs {

// T must be usable when all its bytes are zero.
template <typename T>
    requires std::is_trivially_destructible_v<T>
class LazyArray {
  public:
    LazyArray() noexcept = default;
    explicit LazyArray(std::size_t count) noexcept
        : memory_(count * sizeof(T)), count_(memory_ ? count : 0) {}

    explicit operator bool() const noexcept { return static_cast<bool>(memory_); }
    std::size_t size() const noexcept { return count_; }
    T& operator[](std::size_t index) noexcept {
        RTRS_ASSERT(index < count_);
        return reinterpret_cast<T*>(memory_.data())[index];
    }
    const T& operator[](std::size_t index) const noexcept {
        RTRS_ASSERT(index < count_);
        return reinterpret_cast<const T*>(memory_.data())[index];
    }

  private:
    LazyMemory memory_;
    std::size_t count_ = 0;
};

}  // namespace rtrs
