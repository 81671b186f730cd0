// Blocks in the server's memory: gone with the process, committed as they are written, given back
// when they are discarded. Not swapped out by us, not shared, for tests and scratch volumes.
//
// A long range is emptied piece by piece, one per turn of the loop for all such requests: a
// gigabyte at once would keep heartbeats and all other exports waiting for a second.
//
// OWNER: a Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

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

    // Waits for the turn of the next piece.
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
    // List: ranges that are being emptied, in turn.
    BlockRequest* emptying_ = nullptr;
    BlockRequest** last_emptying_ = &emptying_;  // the end of it
};

}  // namespace rnbd
