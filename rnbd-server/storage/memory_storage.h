// Blocks in the server's memory: gone with the process, committed as they are written, given back
// when they are discarded. Not swapped out by us, not shared, for tests and scratch volumes.
//
// OWNER: a Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/mapping.h"

namespace rnbd {

class MemoryStorage final : public Storage {
  public:
    // ASSUMES: size_bytes is a positive multiple of logical_block_bytes. ERRORS: ENOMEM.
    static std::expected<std::unique_ptr<Storage>, StorageError> open(
        DeferredCompletions& deferred, const StorageOptions& options);

    const StorageGeometry& geometry() const noexcept override { return geometry_; }
    void submit(BlockRequest& request) override;
    std::expected<void, StorageError> resize(std::uint64_t bytes) override;
    std::expected<void, StorageError> may_resize(std::uint64_t) const override { return {}; }
    std::string description() const override { return "memory"; }

  private:
    MemoryStorage(DeferredCompletions& deferred, Mapping memory, const StorageOptions& options);
    std::error_code execute(BlockRequest& request) noexcept;
    void release(std::uint64_t offset, std::uint64_t bytes) noexcept;

    StorageGeometry geometry_;
    StorageOptions::Use use_;
    Mapping memory_;
    DeferredCompletions& deferred_;
};

}  // namespace rnbd
