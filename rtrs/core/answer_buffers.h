// A few buffers of one server path that answers with much data take in turn. What a read has put
// into one is still in the processor's cache when it is sent, and the next read finds the same
// lines in the cache. Without them each of many requests under way would put its data into its own
// chunk, which has left the cache since that chunk's previous request.
//
// A buffer is taken while its request runs, and is free again when its answer has left. No memory
// is allocated before the first use.
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
    // Enough for the requests that are read in one turn, and for some that the socket has not taken
    // yet.
    static constexpr std::uint32_t count = 8;

    // buffer_bytes: a multiple of the page size. False: the memory cannot be had; it is not tried
    // again.
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

    // Always the free buffer with the lowest number, so that the same few are used as long as few
    // are taken.
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
    std::unique_ptr<MemoryRegion> region_;  // declared after the memory, so destroyed before it
    std::uint32_t bytes_ = 0;
    std::uint32_t free_ = 0;  // one bit per buffer
    bool tried_ = false;
};

}  // namespace rtrs
