#include "rtrs/reactor/fixed_buffers.h"

#include <sys/uio.h>

#include <cerrno>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rtrs {

std::error_code FixedBuffers::make_table() {
    if (table_made_) return {};
    if (slots_ == 0) return from_errno(ENOBUFS);
    const int result = io_uring_register_buffers_sparse(ring_, slots_);
    if (result < 0) return from_errno(result);
    table_made_ = true;
    free_.reserve(slots_);
    for (std::uint32_t i = slots_; i > 0; --i) free_.push_back(i - 1);
    return {};
}

std::expected<std::uint32_t, std::error_code> FixedBuffers::add(MutableBytes memory) {
    if (const std::error_code error = make_table()) return std::unexpected(error);
    if (free_.empty()) return std::unexpected(from_errno(ENOBUFS));
    const std::uint32_t slot = free_.back();
    const iovec vector{memory.data(), memory.size()};
    const __u64 tag = 0;
    const int result = io_uring_register_buffers_update_tag(ring_, slot, &vector, &tag, 1);
    if (result < 0) return std::unexpected(from_errno(result));
    if (result != 1) return std::unexpected(from_errno(ENOMEM));
    free_.pop_back();
    return slot;
}

void FixedBuffers::remove(std::uint32_t slot) noexcept {
    RTRS_ASSERT(table_made_ && slot < slots_ && free_.size() < slots_);
    const iovec nothing{};
    const __u64 tag = 0;
    // The kernel unpins when the last operation that uses the slot has ended.
    RTRS_ASSERT(io_uring_register_buffers_update_tag(ring_, slot, &nothing, &tag, 1) == 1);
    free_.push_back(slot);
}

}  // namespace rtrs
