#include "rtrs/reactor/fixed_files.h"

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rtrs {

std::error_code FixedFiles::make_table() {
    if (table_made_) return {};
    if (slots_ == 0) return from_errno(ENOBUFS);
    const int result = io_uring_register_files_sparse(ring_, slots_);
    if (result < 0) return from_errno(result);
    table_made_ = true;
    free_.reserve(slots_);
    for (std::uint32_t i = slots_; i > 0; --i) free_.push_back(i - 1);
    return {};
}

std::expected<std::uint32_t, std::error_code> FixedFiles::add(int fd) {
    if (const std::error_code error = make_table()) return std::unexpected(error);
    if (free_.empty()) return std::unexpected(from_errno(ENOBUFS));
    const std::uint32_t slot = free_.back();
    const int result = io_uring_register_files_update(ring_, slot, &fd, 1);
    if (result < 0) return std::unexpected(from_errno(result));
    if (result != 1) return std::unexpected(from_errno(ENOMEM));
    free_.pop_back();
    return slot;
}

void FixedFiles::remove(std::uint32_t slot) noexcept {
    RTRS_ASSERT(table_made_ && slot < slots_ && free_.size() < slots_);
    const int nothing = -1;
    RTRS_ASSERT(io_uring_register_files_update(ring_, slot, &nothing, 1) == 1);
    free_.push_back(slot);
}

}  // namespace rtrs
