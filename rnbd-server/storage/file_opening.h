// The opening of a FileMedium by a thread of its own: the file system may let it wait, since
// another machine or process has to answer (NFS, FUSE), and no other export is to wait with it.
//
// OWNER: who wants the medium. THREAD: one at a time. END: nobody waits for it; what is opened then
// is closed by the thread, which ends when the file system has answered, or with the process.
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <optional>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/file_medium.h"

namespace rnbd {

class FileOpening {
  public:
    using Opened = std::expected<FileMedium, StorageError>;
    // FileMedium::open(), which has mostly ended when this returns. If not: ETIMEDOUT, and the next
    // call with the same `begun` goes on, unless its options are others.
    // ERRORS: that, those of FileMedium::open(), EAGAIN (no thread).
    static Opened open(const StorageOptions& options, std::shared_ptr<FileOpening>& begun);
    ~FileOpening();
    FileOpening(const FileOpening&) = delete;
    FileOpening& operator=(const FileOpening&) = delete;

  private:
    struct Inside;
    explicit FileOpening(const StorageOptions& options);
    bool start();
    std::optional<Opened> wait_for(std::chrono::steady_clock::duration time);

    const StorageOptions options_;
    bool late_ = false;
    std::shared_ptr<Inside> inside_;  // the thread has a share
};

}  // namespace rnbd
