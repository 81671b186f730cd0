// From options to a storage of their kind.
//
// THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <memory>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/storage_opening.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

// deferred: outlives it; completes what needs no waiting. begun: of this storage alone.
// Opens and locks it: exclusively for read_write, shared for read_only; the lock ends only when the
// last I/O of a dead process has ended.
// ERRORS: ENOENT (absent and no size given), EACCES, EROFS, EWOULDBLOCK (locked by another
// process), EINVAL (neither file nor block device, size not a multiple of the block, size differs
// from the block device's), ENOSPC, EINPROGRESS (nbd: its server has not answered yet; to be tried
// again soon), EALREADY (a file is being opened) and ETIMEDOUT (its file system has not answered
// yet), both to be tried again with the same `begun`, ENOSYS (nbd: built without libnbd), ...
std::expected<std::unique_ptr<Storage>, StorageError> open_storage(rtrs::Reactor& reactor,
                                                                   DeferredCompletions& deferred,
                                                                   const StorageOptions& options,
                                                                   StorageOpening& begun);

}  // namespace rnbd
