// A fixed array of zero-initialised elements whose pages exist only once they are touched: an idle
// session costs what it uses, not what it was promised.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/bytes.h"

namespace rtrs {

// Page-aligned anonymous memory, reserved and not committed. Empty if the address space is full.
class LazyMemory {
  public:
    LazyMemory() noexcept = default;
    explicit LazyMemory(std::size_t bytes) noexcept {
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return;
        // A huge page would commit 2 MiB for the first byte that is touched.
        ::madvise(at, bytes, MADV_NOHUGEPAGE);
        memory_ = {static_cast<std::byte*>(at), bytes};
    }
    LazyMemory(LazyMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
    LazyMemory& operator=(LazyMemory&& other) noexcept {
        std::swap(memory_, other.memory_);
        return *this;
    }
    ~LazyMemory() {
        if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
    }

    explicit operator bool() const noexcept { return !memory_.empty(); }
    MutableBytes bytes() const noexcept { return memory_; }
    std::byte* data() const noexcept { return memory_.data(); }

  private:
    MutableBytes memory_{};
};

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
