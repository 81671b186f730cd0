// A ring of numbered items that is small until it has been full once; from then on it is in the
// large memory that was reserved for it. So a quiet connection touches no page of that.
//
// The owner counts: items first..end - 1 are in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rtrs::tcp {

template <typename T, std::size_t small_count>
class GrowingRing {
  public:
    GrowingRing() = default;
    GrowingRing(const GrowingRing&) = delete;
    GrowingRing& operator=(const GrowingRing&) = delete;

    // Once, before the first item. ASSUMES: the owner never has more than large_count items.
    void set_large(T* large, std::size_t large_count) noexcept {
        large_ = large;
        large_count_ = large_count;
    }
    T& operator[](std::uint64_t number) noexcept { return items_[number % count_]; }
    const T& operator[](std::uint64_t number) const noexcept { return items_[number % count_]; }
    // Before item `end` is put in.
    void make_room(std::uint64_t first, std::uint64_t end) noexcept {
        if (end - first == count_ && items_ == small_.data()) grow(first, end);
    }

  private:
    void grow(std::uint64_t first, std::uint64_t end) noexcept {
        for (; first != end; ++first) large_[first % large_count_] = small_[first % small_count];
        items_ = large_;
        count_ = large_count_;
    }

    std::array<T, small_count> small_{};
    T* items_ = small_.data();
    std::size_t count_ = small_count;
    T* large_ = nullptr;
    std::size_t large_count_ = 0;
};

}  // namespace rtrs::tcp
