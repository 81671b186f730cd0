// Opens the kind of storage that the options ask for.
//
// THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <memory>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/storage_opening.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

// Opens and locks the storage: exclusively for read_write, shared for read_only. The lock of a dead
// process ends only when its last I/O has ended. deferred: outlives the storage; it completes
// requests that need no waiting. begun: used for this storage only.
// ERRORS: ENOENT (absent and no size given), EACCES, EROFS, EWOULDBLOCK (locked by another
// process), EINVAL (neither file nor block device, size not a multiple of the block, size differs
// from the block device's), ENOSPC, EINPROGRESS (nbd: the server has not answered yet; try again
// soon), EALREADY (a file is being opened) and ETIMEDOUT (its file system has not answered yet):
// try again with the same `begun`; EMFILE (a file, a device or a link to an NBD server would take
// the last descriptors; nothing was made), ENOSYS (nbd: built without libnbd), ...
std::expected<std::unique_ptr<Storage>, StorageError> open_storage(rtrs::Reactor& reactor,
                                                                   DeferredCompletions& deferred,
                                                                   const StorageOptions& options,
                                                                   StorageOpening& begun);

}  // namespace rnbd
