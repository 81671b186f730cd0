// Opens a FileMedium on a thread of its own. The file system may keep the opening waiting, since
// another machine or process has to answer (NFS, FUSE), and no other export may wait for that.
//
// OWNER: whoever wants the medium. THREAD: one at a time.
// END: nobody waits for the thread. It is told not to make anything any more, closes what it has
// opened, and ends when the file system has answered, or with the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <memory>
#include <stop_token>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/descriptor_room.h"
#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage_options.h"

namespace rnbd {

class FileOpening {
  public:
    using Opened = std::expected<FileMedium, StorageError>;
    using Opener = Opened (*)(const StorageOptions& options, const std::stop_token& not_wanted);
    // again: the last attempt has failed. The calling thread waits at most a tenth of its time for
    // all repeated attempts together, but may wait a moment (2 ms) for each of a few. While any
    // opening is late, this applies to first attempts, too. For many first attempts, one behind the
    // other, it waits at most 0.2 s, and for the others not at all: they are late.
    enum class Attempt : std::uint8_t { first, again };
    // Runs FileMedium::open(), which has usually ended when this returns. If it has not, the result
    // is EALREADY, or ETIMEDOUT after a while, and the next call with the same `begun` and equal
    // options goes on with it.
    // ERRORS: these, those of FileMedium::open(), EAGAIN (there is no thread to be had), EMFILE
    // (there is no room for its descriptors; nothing was begun).
    static Opened open(const StorageOptions& options, Attempt attempt, DescriptorRoom::For whom,
                       std::shared_ptr<FileOpening>& begun, Opener opener = &FileMedium::open);
    ~FileOpening();
    FileOpening(const FileOpening&) = delete;
    FileOpening& operator=(const FileOpening&) = delete;

  private:
    using Clock = std::chrono::steady_clock;
    struct Inside;
    explicit FileOpening(const StorageOptions& options);
    bool start(Opener opener, DescriptorRoom room);
    std::unique_ptr<Opened> wait_for(Clock::duration time);

    const StorageOptions options_;
    const Clock::time_point since_ = Clock::now();
    bool late_ = false;
    std::shared_ptr<Inside> inside_;  // shared with the thread
};

}  // namespace rnbd
