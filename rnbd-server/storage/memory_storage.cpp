#include "rnbd-server/storage/memory_storage.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rnbd-server/storage/medium_identity.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/random.h"

namespace rnbd {

using rtrs::from_errno;

std::expected<std::unique_ptr<Storage>, StorageError> MemoryStorage::open(
    DeferredCompletions& deferred, const StorageOptions& options) {
    auto memory = Mapping::make(*options.size_bytes, Mapping::Access::read_write);
    if (!memory) {
        return std::unexpected(
            StorageError{memory.error(),
                         "memory: the address space or the overcommit limit does not allow its "
                         "size; make it smaller"});
    }
    return std::unique_ptr<Storage>(new MemoryStorage(deferred, std::move(*memory), options));
}

MemoryStorage::MemoryStorage(DeferredCompletions& deferred, Mapping memory,
                             const StorageOptions& options)
    : geometry_{.size_bytes = *options.size_bytes,
                .logical_block_bytes = options.logical_block_bytes,
                .physical_block_bytes = 4096,
                .discard_bytes_max = 1u << 30,
                .discard_granularity_bytes = 4096,
                .write_zeroes_bytes_max = 1u << 30,
                .fast_zero = true,
                .volatile_cache = false,
                .force_unit_access = true,
                .rotational = false,
                // The kernel would tell which pages are resident, but not which were swapped out.
                .extents = false,
                // Never 0. With the memory goes what was in it.
                .cache_epoch = rtrs::Random::from_entropy().next() | 1,
                .medium = new_medium_id()},
      use_(options.use),
      memory_(std::move(memory)),
      deferred_(deferred) {}

void MemoryStorage::submit(BlockRequest& request) {
    request.storage = this;
    deferred_.add(request, execute(request));
}

std::error_code MemoryStorage::execute(BlockRequest& request) noexcept {
    RTRS_ASSERT(request.offset + request.bytes <= geometry_.size_bytes);
    std::byte* const place = memory_.bytes().data() + request.offset;
    if (request.operation == BlockOperation::flush) return {};
    if (request.operation == BlockOperation::read) {
        std::memcpy(request.data.data(), place, request.bytes);
        return {};
    }
    if (use_ == StorageOptions::Use::read_only) return from_errno(EROFS);
    if (request.operation == BlockOperation::write) {
        std::memcpy(place, request.data.data(), request.bytes);
    } else if (request.no_unmap && request.operation == BlockOperation::write_zeroes) {
        std::memset(place, 0, request.bytes);
    } else {
        release(request.offset, request.bytes);
    }
    return {};
}

// Whole pages go back to the system and read as zeroes from then on; the rest is zeroed.
void MemoryStorage::release(std::uint64_t offset, std::uint64_t bytes) noexcept {
    static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::byte* const base = memory_.bytes().data();
    const std::uint64_t end = offset + bytes;
    const std::uint64_t first_page = std::min((offset + page - 1) / page * page, end);
    const std::uint64_t last_page = std::max(end / page * page, first_page);
    std::memset(base + offset, 0, first_page - offset);
    std::memset(base + last_page, 0, end - last_page);
    if (first_page < last_page &&
        ::madvise(base + first_page, last_page - first_page, MADV_DONTNEED) != 0) {
        std::memset(base + first_page, 0, last_page - first_page);  // mlocked memory stays
    }
}

std::expected<void, StorageError> MemoryStorage::resize(std::uint64_t bytes) {
    if (const auto error = memory_.resize(bytes)) {
        return std::unexpected(StorageError{error, "memory: " + error.message()});
    }
    // What lay beyond the end is lost, also what is in a page with it.
    if (bytes < geometry_.size_bytes) {
        static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        const std::uint64_t page_end = (bytes + page - 1) / page * page;
        std::memset(memory_.bytes().data() + bytes, 0, page_end - bytes);
    }
    geometry_.size_bytes = bytes;
    return {};
}

}  // namespace rnbd
