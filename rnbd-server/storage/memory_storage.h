// Blocks in the server's memory, for tests and scratch volumes. They are lost when the process
// ends. Memory is committed when blocks are written and given back when they are discarded. It is
// not swapped out by us, and not shared.
//
// A long range is emptied piece by piece, one piece per turn of the loop for all such requests
// together: a gigabyte at once would delay heartbeats and all other exports for a second.
//
// OWNER: a Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <memory>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/mapping.h"
#include "rnbd-server/storage_options.h"

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
    void move(const BlockRequest& request) noexcept;
    void start_emptying(BlockRequest& request);
    void wait_in_line(BlockRequest& request) noexcept;
    void empty_a_piece();
    std::uint64_t empty(const BlockRequest& request) noexcept;
    std::uint64_t release(std::uint64_t offset, std::uint64_t bytes) noexcept;

    // A request that completes in the turn of the next piece.
    struct Piece final : BlockRequest {
        explicit Piece(MemoryStorage& its_storage)
            : BlockRequest([](BlockRequest& piece, std::error_code) {
                  static_cast<MemoryStorage*>(piece.storage)->empty_a_piece();
              }) {
            storage = &its_storage;
        }
    };

    StorageGeometry geometry_;
    StorageOptions::Use use_;
    Mapping memory_;
    DeferredCompletions& deferred_;
    Piece piece_{*this};
    // The list of ranges that are being emptied; they take turns.
    BlockRequest* emptying_ = nullptr;
    BlockRequest** last_emptying_ = &emptying_;  // the end of the list
};

}  // namespace rnbd
