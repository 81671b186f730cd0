// Zeroed memory whose pages exist only once they are touched: it is sized for the worst case, but
// only what is used is paid for.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "rtrs/base/bytes.h"

namespace rtrs {

// Page-aligned anonymous memory, reserved but not committed. Empty if the address space is full.
class LazyMemory {
  public:
    LazyMemory() noexcept = default;
    explicit LazyMemory(std::size_t bytes) noexcept {
        void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return;
        // A huge page would commit 2 MiB when the first byte is touched.
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

}  // namespace rtrs
