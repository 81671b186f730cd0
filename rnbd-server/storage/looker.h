// A thread that looks at names of files whose file system may let it wait: another machine or
// process has to answer (NFS, FUSE). One per file system, so that one that does not answer keeps no
// others' looks waiting.
//
// OWNER: the files of that file system that are open, together. THREAD: of() any one, all else one
// at a time. END: nobody waits for a look: what the thread needs it owns itself. It ends when the
// file system answers, or with the process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rnbd {

class Looker {
  public:
    struct Seen {
        int error = 0;  // errno of statx(2); what follows has no meaning then
        dev_t file_system = 0;
        ino_t inode = 0;
        mode_t mode = 0;
        dev_t device = 0;  // of a block device
        std::uint64_t bytes = 0;
    };
    // Shared with the thread. Who lets go of it before it is over hears nothing of it.
    struct Look {
        explicit Look(std::string its_path) : path(std::move(its_path)) {}
        const std::string path;
        Seen seen;  // the thread's until it is over
        std::atomic<bool> over = false;
    };

    static std::shared_ptr<Looker> of(dev_t file_system);
    Looker();
    ~Looker();
    Looker(const Looker&) = delete;
    Looker& operator=(const Looker&) = delete;

    // In its turn behind those before it. Null: there is no thread to be had now, as if it had not
    // been asked.
    std::shared_ptr<Look> look(const std::string& path);

    // By this thread, without waiting, if the names on the way are known already and nobody else is
    // to be asked about them. Empty: it cannot be said so. ASSUMES: the file is known to be of a
    // file system of this machine; of others it is as they were when they were asked last.
    static std::optional<Seen> glance(const std::string& path) noexcept;

  private:
    struct Inside;
    std::shared_ptr<Inside> inside_;
};

}  // namespace rnbd
