// A ring of numbered items that is small until it has been full once, and from then on uses the
// large memory reserved for it. So a quiet connection touches no page of that memory.
//
// The owner does the counting: items first..end - 1 are in the ring.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rtrs::tcp {

template <typename T, std::size_t small_count>
class GrowingRing {
    // Places are found by a mask, since a division would cost as much as all the rest.
    static_assert(std::has_single_bit(small_count));

  public:
    // How many items the large memory must hold if the owner never has more than items_max.
    static constexpr std::size_t large_count(std::size_t items_max) noexcept {
        return std::bit_ceil(items_max);
    }

    GrowingRing() = default;
    GrowingRing(const GrowingRing&) = delete;
    GrowingRing& operator=(const GrowingRing&) = delete;

    // To be called once, before the first item. large: memory for large_count(items_max) items.
    // ASSUMES: the owner never has more than items_max.
    void set_large(T* large, std::size_t items_max) noexcept {
        large_ = large;
        large_mask_ = large_count(items_max) - 1;
    }
    T& operator[](std::uint64_t number) noexcept { return items_[number & mask_]; }
    const T& operator[](std::uint64_t number) const noexcept { return items_[number & mask_]; }
    // To be called before item `end` is put in.
    void make_room(std::uint64_t first, std::uint64_t end) noexcept {
        if (end - first > mask_ && items_ == small_.data()) grow(first, end);
    }

  private:
    void grow(std::uint64_t first, std::uint64_t end) noexcept {
        for (; first != end; ++first) large_[first & large_mask_] = small_[first & mask_];
        items_ = large_;
        mask_ = large_mask_;
    }

    std::array<T, small_count> small_{};
    T* items_ = small_.data();
    std::size_t mask_ = small_count - 1;
    T* large_ = nullptr;
    std::size_t large_mask_ = 0;
};

}  // namespace rtrs::tcp
