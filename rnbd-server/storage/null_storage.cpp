#include "rnbd-server/storage/null_storage.h"

#include <cstring>

#include "rnbd-server/storage/cache_epoch.h"
#include "rnbd-server/storage/medium_identity.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

NullStorage::NullStorage(DeferredCompletions& deferred, const StorageOptions& options)
    : geometry_{.size_bytes = *options.size_bytes,
                .logical_block_bytes = options.logical_block_bytes,
                .physical_block_bytes = 4096,
                .discard_bytes_max = 1u << 30,
                .discard_granularity_bytes = 4096,
                .write_zeroes_bytes_max = 1u << 30,
                .fast_zero = true,
                .volatile_cache = false,
                .force_unit_access = true,
                .extents = true,
                .cache_epoch = epoch_without_cache,
                .medium = place_medium_id("null")},
      use_(options.use),
      deferred_(deferred) {}

void NullStorage::submit(BlockRequest& request) {
    RTRS_ASSERT(request.offset + request.bytes <= geometry_.size_bytes);
    request.storage = this;
    std::error_code error;
    if (request.operation == BlockOperation::read) {
        std::memset(request.data.data(), 0, request.bytes);
    } else if (request.operation != BlockOperation::flush &&
               use_ == StorageOptions::Use::read_only) {
        error = rtrs::from_errno(EROFS);
    }
    deferred_.add(request, error);
}

void NullStorage::extents(ExtentsRequest& request) {
    request.found = {StorageExtent{.bytes = request.bytes, .hole = true, .zero = true}};
    request.completed(request, {});
}

}  // namespace rnbd
