// Memory of one server path for answers with much data, of which few take turns: what a read has
// put there is still in the processor's cache when it is sent, and the next one finds the cache's
// lines there again. Of many requests under way each would put it into a chunk of its own instead,
// which the cache has forgotten since that chunk's request before.
//
// One is taken while its request runs, and is free again when its answer has left. There is no
// memory before the first.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_memory.h"
#include "rtrs/fabric.h"

namespace rtrs {

class AnswerBuffers {
  public:
    // Those of requests that are read in one turn, and of some that the socket has not taken yet.
    static constexpr std::uint32_t count = 8;

    // buffer_bytes: a multiple of the page. False: there is no memory, now or ever.
    bool make(ProtectionDomain& domain, std::uint32_t buffer_bytes) {
        if (region_) return true;
        if (tried_) return false;
        tried_ = true;
        LazyMemory memory(std::size_t{count} * buffer_bytes);
        if (!memory) return false;
        auto region = domain.register_memory(memory.bytes(), Access::local);
        if (!region) return false;
        memory_ = std::move(memory);
        region_ = std::move(*region);
        bytes_ = buffer_bytes;
        free_ = (1u << count) - 1;
        return true;
    }

    // The same few as long as few are taken: always the free one with the lowest number.
    std::optional<std::uint32_t> take() noexcept {
        if (free_ == 0) return std::nullopt;
        const auto number = static_cast<std::uint32_t>(std::countr_zero(free_));
        free_ &= free_ - 1;
        return number;
    }
    void give_back(std::uint32_t number) noexcept {
        RTRS_ASSERT(number < count && (free_ & (1u << number)) == 0);
        free_ |= 1u << number;
    }
    std::byte* data(std::uint32_t number) const noexcept {
        return memory_.data() + std::size_t{number} * bytes_;
    }

  private:
    LazyMemory memory_;
    std::unique_ptr<MemoryRegion> region_;  // after the memory: it goes first
    std::uint32_t bytes_ = 0;
    std::uint32_t free_ = 0;  // a bit each
    bool tried_ = false;
};

}  // namespace rtrs
