// A fixed array of zero-initialised elements whose pages exist only once they are touched: an idle
// session costs what it uses, not what it was promised. One of less than a page is on the heap.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_memory.h"
#include "rtrs/base/pages.h"

namespace rtrs {

// T must be usable when all its bytes are zero.
template <typename T>
    requires std::is_trivially_destructible_v<T> && (alignof(T) <= alignof(std::max_align_t))
class LazyArray {
  public:
    LazyArray() noexcept = default;
    explicit LazyArray(std::size_t count) noexcept {
        if (count * sizeof(T) < page_bytes) {
            on_heap_.reset(static_cast<T*>(std::calloc(count, sizeof(T))));
            elements_ = on_heap_.get();
        } else {
            pages_ = LazyMemory(count * sizeof(T));
            elements_ = reinterpret_cast<T*>(pages_.data());
        }
        count_ = elements_ != nullptr ? count : 0;
    }
    LazyArray(LazyArray&& other) noexcept { swap(other); }
    LazyArray& operator=(LazyArray&& other) noexcept {
        LazyArray taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~LazyArray() = default;

    // Whether it has memory.
    explicit operator bool() const noexcept { return elements_ != nullptr; }
    std::size_t size() const noexcept { return count_; }
    T& operator[](std::size_t index) noexcept {
        RTRS_ASSERT(index < count_);
        return elements_[index];
    }
    const T& operator[](std::size_t index) const noexcept {
        RTRS_ASSERT(index < count_);
        return elements_[index];
    }

  private:
    struct Free {
        void operator()(T* memory) const noexcept { std::free(memory); }
    };

    void swap(LazyArray& other) noexcept {
        std::swap(pages_, other.pages_);
        std::swap(on_heap_, other.on_heap_);
        std::swap(elements_, other.elements_);
        std::swap(count_, other.count_);
    }

    LazyMemory pages_;
    std::unique_ptr<T, Free> on_heap_;
    T* elements_ = nullptr;
    std::size_t count_ = 0;
};

}  // namespace rtrs
