// The opening of a FileMedium by a thread of its own: the file system may let it wait, since
// another machine or process has to answer (NFS, FUSE), and no other export is to wait with it.
//
// OWNER: who wants the medium. THREAD: one at a time. END: nobody waits for it; the thread, which
// knows by then that nothing is to be made any more, closes what it has opened, and ends when the
// file system has answered, or with the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <memory>
#include <stop_token>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

class FileOpening {
  public:
    using Opened = std::expected<FileMedium, StorageError>;
    using Opener = Opened (*)(const StorageOptions& options, const std::stop_token& not_wanted);
    // again: the last one has failed. What those of a thread wait is a tenth of its time at most,
    // beside a moment each; so it is for all while one is late.
    enum class Attempt : std::uint8_t { first, again };
    // FileMedium::open(), which has mostly ended when this returns. If not: EALREADY, after a
    // while ETIMEDOUT, and the next call with the same `begun` goes on, unless its options are
    // others. ERRORS: that, those of FileMedium::open(), EAGAIN (no thread).
    static Opened open(const StorageOptions& options, Attempt attempt,
                       std::shared_ptr<FileOpening>& begun, Opener opener = &FileMedium::open);
    ~FileOpening();
    FileOpening(const FileOpening&) = delete;
    FileOpening& operator=(const FileOpening&) = delete;

  private:
    using Clock = std::chrono::steady_clock;
    struct Inside;
    explicit FileOpening(const StorageOptions& options);
    bool start(Opener opener);
    std::unique_ptr<Opened> wait_for(Clock::duration time);

    const StorageOptions options_;
    const Clock::time_point since_ = Clock::now();
    bool late_ = false;
    std::shared_ptr<Inside> inside_;  // the thread has a share
};

}  // namespace rnbd
