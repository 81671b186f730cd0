// A storage without blocks: reads return zeroes, writes are accepted and forgotten. It is for
// measuring everything around a storage.
//
// OWNER: a Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

class NullStorage final : public Storage {
  public:
    NullStorage(DeferredCompletions& deferred, const StorageOptions& options);

    const StorageGeometry& geometry() const noexcept override { return geometry_; }
    void submit(BlockRequest& request) override;
    void extents(ExtentsRequest& request) override;
    std::expected<void, StorageError> may_resize(std::uint64_t) const override { return {}; }
    std::expected<void, StorageError> resize(std::uint64_t bytes) override {
        geometry_.size_bytes = bytes;
        return {};
    }
    std::string description() const override { return "null"; }

  private:
    StorageGeometry geometry_;
    StorageOptions::Use use_;
    DeferredCompletions& deferred_;
};

}  // namespace rnbd
