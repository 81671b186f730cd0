// The receive buffers that all sockets of a reactor share, as a provided-buffer ring.
//
// The ring is first in, first out, so offering all buffers would walk through all their memory and
// keep none in the cache. Hence only one is offered at first, and a taken one is not replaced
// before the turn is over: if its handler gives it back at once, the same one is offered again. The
// others wait on a stack, the most recently used on top. Each time the kernel runs out of buffers
// while the stack has some, the number offered doubles. A resting reactor keeps one page of each
// buffer.
//
// OWNER: Reactor. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <liburing.h>

#include <cstdint>
#include <system_error>
#include <vector>

#include "rtrs/base/bytes.h"
#include "rtrs/base/lazy_memory.h"

namespace rtrs {

class ReceiveBuffers {
  public:
    static constexpr std::uint16_t group = 0;

    ReceiveBuffers() = default;
    ReceiveBuffers(const ReceiveBuffers&) = delete;
    ReceiveBuffers& operator=(const ReceiveBuffers&) = delete;

    // count: a power of two, 1..32768. Memory is reserved, not committed.
    // ERRORS: EINVAL (kernel before 5.19), ENOMEM.
    std::error_code open(io_uring* kernel, std::uint32_t count, std::uint32_t bytes);
    std::uint32_t bytes() const noexcept { return bytes_; }
    MutableBytes memory(std::uint16_t buffer, std::uint32_t length) noexcept;

    // The kernel filled a buffer; it belongs to the handler until give_back().
    void taken() noexcept;
    void give_back(std::uint16_t buffer) noexcept;
    // The kernel found no buffer: more are offered from the next top_up() on.
    void ran_out() noexcept;
    // To be called before every submission: offers the buffers that are missing.
    void top_up() noexcept;
    // To be called when there was nothing to do for a while. Gives the memory of the waiting
    // buffers back to the system, except one page each. The same is done with the buffers that the
    // kernel has when they are given back, until more than a page is received again.
    void rest() noexcept;

  private:
    void offer(std::uint16_t buffer) noexcept;
    void shrink(std::uint16_t buffer) noexcept;
    std::byte* at(std::uint16_t buffer) const noexcept { return memory_.data() + buffer * stride_; }
    io_uring_buf_ring* ring() const noexcept {
        return reinterpret_cast<io_uring_buf_ring*>(ring_memory_.data());
    }

    LazyMemory memory_;
    LazyMemory ring_memory_;
    std::size_t stride_ = 0;
    std::uint32_t bytes_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t offered_ = 0;
    std::uint32_t offer_target_ = 0;
    std::vector<std::uint16_t> spare_;
    std::vector<std::uint32_t> used_bytes_;  // by buffer, since the buffer was last shrunk
    bool resting_ = false;
};

}  // namespace rtrs
