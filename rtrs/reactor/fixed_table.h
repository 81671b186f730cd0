// The ring's tables of registered buffers and files: created at the first registration, sparse; the
// slot freed last is reused first.
//
// OWNER: Reactor. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <liburing.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <expected>
#include <system_error>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rtrs {

// What a table holds, and the kernel's calls for it. These return a negative errno, or (set) how
// many entries were set.
struct BufferSlots {
    using Entry = iovec;
    static constexpr Entry nothing{};
    static int make(io_uring* ring, std::uint32_t slots) noexcept {
        return io_uring_register_buffers_sparse(ring, slots);
    }
    // The kernel unpins the previous buffer when the last operation that uses the slot has ended.
    static int set(io_uring* ring, std::uint32_t slot, const Entry& entry) noexcept {
        const __u64 tag = 0;
        return io_uring_register_buffers_update_tag(ring, slot, &entry, &tag, 1);
    }
};
struct FileSlots {
    using Entry = int;
    static constexpr Entry nothing = -1;
    static int make(io_uring* ring, std::uint32_t slots) noexcept {
        return io_uring_register_files_sparse(ring, slots);
    }
    static int set(io_uring* ring, std::uint32_t slot, const Entry& entry) noexcept {
        return io_uring_register_files_update(ring, slot, &entry, 1);
    }
};

template <typename Kind>
class FixedTable {
  public:
    FixedTable(io_uring* ring, std::uint32_t slots) noexcept : ring_(ring), slots_(slots) {}

    // ERRORS: ENOBUFS (no slot left, or a table of no slots), ENOMEM. Buffers: ENOMEM (memlock
    // limit), EOPNOTSUPP (memory of a file), EFAULT. Files: EMFILE (RLIMIT_NOFILE is below the
    // table's size).
    std::expected<std::uint32_t, std::error_code> add(const typename Kind::Entry& entry) {
        if (const std::error_code error = make_table()) return std::unexpected(error);
        if (free_.empty()) return std::unexpected(from_errno(ENOBUFS));
        const std::uint32_t slot = free_.back();
        const int result = Kind::set(ring_, slot, entry);
        if (result < 0) return std::unexpected(from_errno(result));
        if (result != 1) return std::unexpected(from_errno(ENOMEM));
        free_.pop_back();
        return slot;
    }
    // The slots stay taken until they are removed, and hold nothing.
    void empty_all() noexcept {
        if (!table_made_) return;
        std::vector<bool> taken(slots_, true);
        for (const std::uint32_t slot : free_) taken[slot] = false;
        for (std::uint32_t slot = 0; slot < slots_; ++slot) {
            if (taken[slot]) RTRS_ASSERT(Kind::set(ring_, slot, Kind::nothing) == 1);
        }
    }
    void remove(std::uint32_t slot) noexcept {
        RTRS_ASSERT(table_made_ && slot < slots_ && free_.size() < slots_);
        RTRS_ASSERT(Kind::set(ring_, slot, Kind::nothing) == 1);
        free_.push_back(slot);
    }

  private:
    std::error_code make_table() {
        if (table_made_) return {};
        if (slots_ == 0) return from_errno(ENOBUFS);
        const int result = Kind::make(ring_, slots_);
        if (result < 0) return from_errno(result);
        table_made_ = true;
        free_.reserve(slots_);
        for (std::uint32_t i = slots_; i > 0; --i) free_.push_back(i - 1);
        return {};
    }

    io_uring* ring_;
    std::uint32_t slots_;
    bool table_made_ = false;
    std::vector<std::uint32_t> free_;
};

}  // namespace rtrs
