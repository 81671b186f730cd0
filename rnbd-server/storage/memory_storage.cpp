#include "rnbd-server/storage/memory_storage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rnbd-server/storage/medium_identity.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/random.h"

namespace rnbd {

using rtrs::from_errno;

namespace {

// What a turn of the loop may take: less than half a millisecond, also of memory that was never
// touched.
constexpr std::uint64_t zero_bytes_max = 1u << 20;
constexpr std::uint64_t release_bytes_max = 16u << 20;
// As much as a small write.
constexpr std::uint64_t empty_now_bytes_max = 64u << 10;

// The kernel calls a size beyond any address space an invalid argument.
StorageError does_not_fit(std::uint64_t bytes) {
    return {from_errno(ENOMEM),
            fmt::format("memory: {} bytes do not fit in the address space (on x86-64 below 128 "
                        "TiB, less by ulimit -v) or the machine's overcommit limit; make it "
                        "smaller",
                        bytes)};
}

}  // namespace

std::expected<std::unique_ptr<Storage>, StorageError> MemoryStorage::open(
    DeferredCompletions& deferred, const StorageOptions& options) {
    auto memory = Mapping::make(*options.size_bytes, Mapping::Access::read_write);
    if (!memory) {
        return std::unexpected(does_not_fit(*options.size_bytes));
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
                // The kernel would tell which pages are resident, but not which were swapped out.
                .extents = false,
                // Never 0. With the memory goes what was in it.
                .cache_epoch = rtrs::Random::from_entropy().next() | 1,
                .medium = new_medium_id()},
      use_(options.use),
      memory_(std::move(memory)),
      deferred_(deferred) {}

void MemoryStorage::submit(BlockRequest& request) {
    RTRS_ASSERT(request.offset + request.bytes <= geometry_.size_bytes);
    request.storage = this;
    request.done_bytes = 0;
    const bool moves =
        request.operation == BlockOperation::read || request.operation == BlockOperation::write;
    const bool changes =
        request.operation != BlockOperation::read && request.operation != BlockOperation::flush;
    if (changes && use_ == StorageOptions::Use::read_only) {
        return deferred_.add(request, from_errno(EROFS));
    }
    if (moves) move(request);
    if (changes && !moves) return start_emptying(request);
    deferred_.add(request, {});
}

void MemoryStorage::move(const BlockRequest& request) noexcept {
    std::byte* const place = memory_.bytes().data() + request.offset;
    if (request.operation == BlockOperation::read) {
        std::memcpy(request.data.data(), place, request.bytes);
    } else {
        std::memcpy(place, request.data.data(), request.bytes);
    }
}

// Hundreds may come in one turn.
void MemoryStorage::start_emptying(BlockRequest& request) {
    if (request.bytes <= empty_now_bytes_max) {
        empty(request);
        return deferred_.add(request, {});
    }
    if (emptying_ == nullptr) deferred_.add(piece_, {});
    wait_in_line(request);
}

void MemoryStorage::wait_in_line(BlockRequest& request) noexcept {
    request.next = nullptr;
    *last_emptying_ = &request;
    last_emptying_ = &request.next;
}

// A piece of the first; then it is the next one's turn.
void MemoryStorage::empty_a_piece() {
    BlockRequest& request = *emptying_;
    emptying_ = request.next;
    if (emptying_ == nullptr) last_emptying_ = &emptying_;
    request.done_bytes += empty(request);
    const bool over = request.done_bytes == request.bytes;
    if (!over) wait_in_line(request);
    if (emptying_ != nullptr) deferred_.add(piece_, {});
    // The last may be the storage's end.
    if (over) request.completed(request, {});
}

// Of what is left of it; returns how much.
std::uint64_t MemoryStorage::empty(const BlockRequest& request) noexcept {
    const std::uint64_t at = request.offset + request.done_bytes;
    const std::uint64_t left = request.bytes - request.done_bytes;
    const bool keeps = request.no_unmap && request.operation == BlockOperation::write_zeroes;
    if (!keeps) return release(at, std::min(left, release_bytes_max));
    const std::uint64_t bytes = std::min(left, zero_bytes_max);
    std::memset(memory_.bytes().data() + at, 0, bytes);
    return bytes;
}

// Whole pages go back to the system and read as zeroes from then on; the rest is zeroed. Returns
// how much was done.
std::uint64_t MemoryStorage::release(std::uint64_t offset, std::uint64_t bytes) noexcept {
    static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::byte* const base = memory_.bytes().data();
    const std::uint64_t end = offset + bytes;
    const std::uint64_t first_page = std::min((offset + page - 1) / page * page, end);
    const std::uint64_t last_page = std::max(end / page * page, first_page);
    if (first_page < last_page &&
        ::madvise(base + first_page, last_page - first_page, MADV_DONTNEED) != 0) {
        const std::uint64_t zeroed = std::min(bytes, zero_bytes_max);  // mlocked memory stays
        std::memset(base + offset, 0, zeroed);
        return zeroed;
    }
    std::memset(base + offset, 0, first_page - offset);
    std::memset(base + last_page, 0, end - last_page);
    return bytes;
}

std::expected<void, StorageError> MemoryStorage::resize(std::uint64_t bytes) {
    if (memory_.resize(bytes)) return std::unexpected(does_not_fit(bytes));
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
