// Zeroed memory that costs pages only where it is touched: sized for the worst case, paid for what
// is used.
#pragma once

#include <cstddef>
#include <utility>

#include "rtrs/base/bytes.h"
#include "rtrs/base/pages.h"

namespace rtrs::tcp {

class ReservedMemory {
  public:
    ReservedMemory() = default;
    // Empty on failure (out of address space).
    explicit ReservedMemory(std::size_t bytes) noexcept;
    ~ReservedMemory();
    ReservedMemory(ReservedMemory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    ReservedMemory& operator=(ReservedMemory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }

    bool empty() const noexcept { return data_ == nullptr; }
    // Cuts an array of count T off the front of what is left; each begins on a page of its own.
    template <typename T>
    T* cut(std::size_t count) noexcept {
        return reinterpret_cast<T*>(cut_bytes(count * sizeof(T)));
    }
    // What cut() takes for it.
    template <typename T>
    static constexpr std::size_t bytes_for(std::size_t count) noexcept {
        return round_to_page(count * sizeof(T));
    }

  private:
    std::byte* cut_bytes(std::size_t bytes) noexcept;

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t cut_ = 0;
};

}  // namespace rtrs::tcp
