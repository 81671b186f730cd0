#include "rnbd-server/storage/looker.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "rtrs/base/descriptor.h"
#include "rtrs/base/start_thread.h"

namespace rnbd {
namespace {

Looker::Seen told(const struct statx& status) noexcept {
    return {.error = 0,
            .file_system = makedev(status.stx_dev_major, status.stx_dev_minor),
            .inode = static_cast<ino_t>(status.stx_ino),
            .mode = status.stx_mode,
            .device = makedev(status.stx_rdev_major, status.stx_rdev_minor),
            .bytes = status.stx_size};
}

}  // namespace

struct Looker::Inside : std::enable_shared_from_this<Inside> {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Look>> looks;  // guarded by mutex
    bool ending = false;                      // guarded by mutex
    bool runs = false;                        // the owner's

    bool start();
    void serve();
};

// The thread has a share of its own in what it needs.
bool Looker::Inside::start() {
    auto thread = rtrs::start_thread([self = shared_from_this()] { self->serve(); }, "rnbd-looker");
    if (thread) thread->detach();
    runs = thread.has_value();  // if not, maybe the next time
    return runs;
}

void Looker::Inside::serve() {
    std::unique_lock lock(mutex);
    for (;;) {
        wake.wait(lock, [this] { return ending || !looks.empty(); });
        if (ending) return;
        const std::shared_ptr<Look> look = std::move(looks.front());
        looks.pop_front();
        if (look.use_count() == 1) continue;  // nobody wants to know any more
        lock.unlock();
        struct statx status{};
        const bool seen = ::statx(AT_FDCWD, look->path.c_str(), AT_STATX_SYNC_AS_STAT,
                                  STATX_BASIC_STATS, &status) == 0;
        look->seen = seen ? told(status) : Seen{.error = errno};
        look->over.store(true, std::memory_order_release);
        lock.lock();
    }
}

std::shared_ptr<Looker> Looker::of(dev_t file_system) {
    static std::mutex mutex;
    // Never destroyed: a file may still be opened, by a thread of its own, when the process ends.
    static auto& lookers = *new std::map<dev_t, std::weak_ptr<Looker>>;
    const std::scoped_lock lock(mutex);
    std::erase_if(lookers, [](const auto& one) { return one.second.expired(); });
    std::shared_ptr<Looker> looker = lookers[file_system].lock();
    if (!looker) lookers[file_system] = looker = std::make_shared<Looker>();
    return looker;
}

Looker::Looker() : inside_(std::make_shared<Inside>()) {}

Looker::~Looker() {
    {
        const std::scoped_lock lock(inside_->mutex);
        inside_->ending = true;
    }
    inside_->wake.notify_one();
}

std::shared_ptr<Looker::Look> Looker::look(const std::string& path) {
    if (!inside_->runs && !inside_->start()) return nullptr;
    auto look = std::make_shared<Look>(path);
    {
        const std::scoped_lock lock(inside_->mutex);
        inside_->looks.push_back(look);
    }
    inside_->wake.notify_one();
    return look;
}

std::optional<Looker::Seen> Looker::glance(const std::string& path) noexcept {
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_CACHED;
    const rtrs::Descriptor at(
        static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
    if (!at) return std::nullopt;
    // Nothing is asked for by name: what is, FUSE gets from its process when it holds what it knows
    // for old, whatever the flag says. All that is wanted is told all the same.
    struct statx status{};
    const bool seen = ::statx(at.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &status) == 0;
    return seen ? std::optional(told(status)) : std::nullopt;
}

}  // namespace rnbd
