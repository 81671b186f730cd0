// Several arrays in one piece of lazy memory.
#pragma once

#include <cstddef>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_memory.h"
#include "rtrs/base/pages.h"

namespace rtrs::tcp {

class ReservedMemory {
  public:
    ReservedMemory() = default;
    // Empty on failure (out of address space).
    explicit ReservedMemory(std::size_t bytes) noexcept : memory_(bytes) {}

    bool empty() const noexcept { return !memory_; }
    // Cuts an array of `count` T off the front of the rest. Each array begins on a page of its own.
    template <typename T>
    T* cut(std::size_t count) noexcept {
        std::byte* piece = memory_.data() + cut_;
        cut_ += bytes_for<T>(count);
        RTRS_ASSERT(cut_ <= memory_.bytes().size());
        return reinterpret_cast<T*>(piece);
    }
    // How many bytes cut() takes for such an array.
    template <typename T>
    static constexpr std::size_t bytes_for(std::size_t count) noexcept {
        return round_to_page(count * sizeof(T));
    }

  private:
    LazyMemory memory_;
    std::size_t cut_ = 0;
};

}  // namespace rtrs::tcp
