#include "rtrs/reactor/receive_buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/pages.h"

namespace rtrs {
namespace {

constexpr std::uint32_t offered_at_first = 1;
constexpr std::uint32_t count_max = 32768;
// Buffers at power-of-two distances would all start in the same few cache sets; a page and a line
// between them spreads them.
constexpr std::size_t stagger_bytes = page_bytes + 64;

}  // namespace

std::error_code ReceiveBuffers::open(io_uring* kernel, std::uint32_t count, std::uint32_t bytes) {
    if (!std::has_single_bit(count) || count > count_max || bytes == 0) return from_errno(EINVAL);
    stride_ = bytes + stagger_bytes;
    memory_ = LazyMemory(stride_ * count);
    ring_memory_ = LazyMemory(count * sizeof(io_uring_buf));
    if (!memory_ || !ring_memory_) return from_errno(ENOMEM);
    io_uring_buf_ring_init(ring());

    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<std::uintptr_t>(ring());
    registration.ring_entries = count;
    registration.bgid = group;
    const int result = io_uring_register_buf_ring(kernel, &registration, 0);
    if (result < 0) return from_errno(result);

    count_ = count;
    bytes_ = bytes;
    used_bytes_.assign(count, 0);
    spare_.reserve(count);
    for (std::uint32_t i = count; i > 0; --i) spare_.push_back(static_cast<std::uint16_t>(i - 1));
    offer_target_ = std::min(count, offered_at_first);
    top_up();
    return {};
}

MutableBytes ReceiveBuffers::memory(std::uint16_t buffer, std::uint32_t length) noexcept {
    RTRS_ASSERT(buffer < count_ && length <= bytes_);
    used_bytes_[buffer] = std::max(used_bytes_[buffer], length);
    if (length > page_bytes) resting_ = false;
    return {at(buffer), length};
}

void ReceiveBuffers::taken() noexcept {
    RTRS_ASSERT(offered_ > 0);
    --offered_;
}

void ReceiveBuffers::give_back(std::uint16_t buffer) noexcept {
    RTRS_ASSERT(buffer < count_ && offered_ + spare_.size() < count_);
    if (resting_) shrink(buffer);
    if (offered_ < offer_target_) {
        offer(buffer);
    } else {
        spare_.push_back(buffer);
    }
}

void ReceiveBuffers::ran_out() noexcept {
    if (spare_.empty()) return;
    offer_target_ = std::min(count_, offer_target_ * 2);
}

void ReceiveBuffers::top_up() noexcept {
    while (offered_ < offer_target_ && !spare_.empty()) {
        const std::uint16_t buffer = spare_.back();
        spare_.pop_back();
        offer(buffer);
    }
}

void ReceiveBuffers::rest() noexcept {
    resting_ = true;
    for (const std::uint16_t buffer : spare_) shrink(buffer);
}

// Whole pages of its own from the second on: the first has what comes to an idle connection.
void ReceiveBuffers::shrink(std::uint16_t buffer) noexcept {
    if (used_bytes_[buffer] <= page_bytes) return;
    used_bytes_[buffer] = 0;
    const auto start = reinterpret_cast<std::uintptr_t>(at(buffer));
    const std::uintptr_t from = (start + 2 * page_bytes - 1) & ~(page_bytes - 1);
    const std::uintptr_t to = (start + bytes_) & ~(page_bytes - 1);
    // LOCKED: also where mlockall(2) holds what was touched.
    if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED_LOCKED);
}

void ReceiveBuffers::offer(std::uint16_t buffer) noexcept {
    io_uring_buf_ring_add(ring(), at(buffer), bytes_, buffer, io_uring_buf_ring_mask(count_), 0);
    io_uring_buf_ring_advance(ring(), 1);
    ++offered_;
}

}  // namespace rtrs
