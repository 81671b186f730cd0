// A thread that calls statx(2) on paths whose file system may keep it waiting, because another
// machine or process has to answer (NFS, FUSE). There is one per file system, so that a file system
// that does not answer does not delay calls on others.
//
// OWNER: the open files of that file system share it. THREAD: of(): any; all else: one at a time.
// END: nobody waits for a call. The thread owns all that it needs, and ends when the file system
// answers, or with the process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rnbd {

class StatThread {
  public:
    struct Result {
        int error = 0;  // errno of statx(2); if not 0, the other members have no meaning
        dev_t file_system = 0;
        ino_t inode = 0;
        mode_t mode = 0;
        dev_t device = 0;  // of a block device
        std::uint64_t bytes = 0;
    };
    // Shared with the thread. A caller that drops it before it is over does not learn the result.
    struct Request {
        explicit Request(std::string its_path) : path(std::move(its_path)) {}
        const std::string path;
        Result result;  // belongs to the thread until `over` is true
        std::atomic<bool> over = false;
    };

    static std::shared_ptr<StatThread> of(dev_t file_system);
    StatThread();
    ~StatThread();
    StatThread(const StatThread&) = delete;
    StatThread& operator=(const StatThread&) = delete;

    // Queues a statx(2) of path, after those before it. Null: there is no thread to be had now;
    // then nothing was queued.
    std::shared_ptr<Request> stat(const std::string& path);

    // The same on the calling thread, without waiting, if all names of the path are cached and
    // nobody else has to be asked about them. Empty: that is not possible.
    // ASSUMES: the file is known to be on a file system of this machine; for others the result is
    // as old as their last answer.
    static std::optional<Result> stat_cached(const std::string& path) noexcept;

  private:
    struct Inside;
    std::shared_ptr<Inside> inside_;
};

}  // namespace rnbd
