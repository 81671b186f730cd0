#include "rnbd-server/storage/open_storage.h"

#include "rnbd-server/storage/delay_storage.h"
#include "rnbd-server/storage/file_storage.h"
#include "rnbd-server/storage/memory_storage.h"
#ifdef RNBD_HAVE_LIBNBD
#include "rnbd-server/storage/nbd_storage.h"
#endif
#include "rnbd-server/storage/null_storage.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

std::unexpected<StorageError> invalid(std::string text) {
    return std::unexpected(StorageError{rtrs::from_errno(EINVAL), std::move(text)});
}

std::string name_of(const StorageOptions& options) {
    switch (options.kind) {
        case StorageOptions::Kind::path:
            return options.path;
        case StorageOptions::Kind::memory:
            return "memory";
        case StorageOptions::Kind::null:
            return "null";
        case StorageOptions::Kind::nbd:
            return options.uri;
    }
    return {};
}

std::expected<std::unique_ptr<Storage>, StorageError> open_nbd(
    [[maybe_unused]] rtrs::Reactor& reactor, [[maybe_unused]] DeferredCompletions& deferred,
    const StorageOptions& options, [[maybe_unused]] const StorageOpening& begun) {
#ifdef RNBD_HAVE_LIBNBD
    return NbdStorage::open(reactor, deferred, options, begun.whom);
#else
    return std::unexpected(StorageError{rtrs::from_errno(ENOSYS),
                                        options.uri + ": this server was built without libnbd"});
#endif
}

std::expected<std::unique_ptr<Storage>, StorageError> open_plain(rtrs::Reactor& reactor,
                                                                 DeferredCompletions& deferred,
                                                                 const StorageOptions& options,
                                                                 StorageOpening& begun) {
    const std::uint32_t block = options.logical_block_bytes;
    if (block != 512 && block != 4096) {
        return invalid(name_of(options) + ": block_size must be 512 or 4096");
    }
    if (options.size_bytes && (*options.size_bytes == 0 || *options.size_bytes % block != 0)) {
        return invalid(name_of(options) + ": size must be a positive multiple of the block size");
    }
    if (options.kind == StorageOptions::Kind::path)
        return FileStorage::open(reactor, deferred, options, begun);
    if (options.kind == StorageOptions::Kind::nbd) {
        return open_nbd(reactor, deferred, options, begun);
    }
    if (!options.size_bytes) return invalid(name_of(options) + ": needs a size");
    if (options.kind == StorageOptions::Kind::memory) return MemoryStorage::open(deferred, options);
    return std::make_unique<NullStorage>(deferred, options);
}

}  // namespace

// Only those whose geometry() says so are asked, and they have their own.
void Storage::extents(ExtentsRequest&) { RTRS_ASSERT(false); }

std::expected<std::unique_ptr<Storage>, StorageError> open_storage(rtrs::Reactor& reactor,
                                                                   DeferredCompletions& deferred,
                                                                   const StorageOptions& options,
                                                                   StorageOpening& begun) {
    auto storage = open_plain(reactor, deferred, options, begun);
    if (!storage || !options.delay) return storage;
    return std::make_unique<DelayStorage>(reactor, deferred, std::move(*storage), *options.delay);
}

}  // namespace rnbd
