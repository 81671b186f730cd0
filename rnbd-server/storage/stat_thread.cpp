#include "rnbd-server/storage/stat_thread.h"

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

StatThread::Result told(const struct statx& status) noexcept {
    return {.error = 0,
            .file_system = makedev(status.stx_dev_major, status.stx_dev_minor),
            .inode = static_cast<ino_t>(status.stx_ino),
            .mode = status.stx_mode,
            .device = makedev(status.stx_rdev_major, status.stx_rdev_minor),
            .bytes = status.stx_size};
}

}  // namespace

struct StatThread::Inside : std::enable_shared_from_this<Inside> {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Request>> requests;  // guarded by mutex
    bool ending = false;                            // guarded by mutex
    bool runs = false;                              // the owner's

    bool start();
    void serve();
};

// The thread has a share of its own in what it needs.
bool StatThread::Inside::start() {
    auto thread = rtrs::start_thread([self = shared_from_this()] { self->serve(); }, "rnbd-stat");
    if (thread) thread->detach();
    runs = thread.has_value();  // if not, maybe the next time
    return runs;
}

void StatThread::Inside::serve() {
    std::unique_lock lock(mutex);
    for (;;) {
        wake.wait(lock, [this] { return ending || !requests.empty(); });
        if (ending) return;
        const std::shared_ptr<Request> request = std::move(requests.front());
        requests.pop_front();
        if (request.use_count() == 1) continue;  // nobody wants to know any more
        lock.unlock();
        struct statx status{};
        const bool known = ::statx(AT_FDCWD, request->path.c_str(), AT_STATX_SYNC_AS_STAT,
                                   STATX_BASIC_STATS, &status) == 0;
        request->result = known ? told(status) : Result{.error = errno};
        request->over.store(true, std::memory_order_release);
        lock.lock();
    }
}

std::shared_ptr<StatThread> StatThread::of(dev_t file_system) {
    static std::mutex mutex;
    // Never destroyed: a file may still be opened, by a thread of its own, when the process ends.
    static auto& threads = *new std::map<dev_t, std::weak_ptr<StatThread>>;
    const std::scoped_lock lock(mutex);
    std::erase_if(threads, [](const auto& one) { return one.second.expired(); });
    std::shared_ptr<StatThread> thread = threads[file_system].lock();
    if (!thread) threads[file_system] = thread = std::make_shared<StatThread>();
    return thread;
}

StatThread::StatThread() : inside_(std::make_shared<Inside>()) {}

StatThread::~StatThread() {
    {
        const std::scoped_lock lock(inside_->mutex);
        inside_->ending = true;
    }
    inside_->wake.notify_one();
}

std::shared_ptr<StatThread::Request> StatThread::stat(const std::string& path) {
    if (!inside_->runs && !inside_->start()) return nullptr;
    auto request = std::make_shared<Request>(path);
    {
        const std::scoped_lock lock(inside_->mutex);
        inside_->requests.push_back(request);
    }
    inside_->wake.notify_one();
    return request;
}

std::optional<StatThread::Result> StatThread::stat_cached(const std::string& path) noexcept {
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_CACHED;
    const rtrs::Descriptor at(
        static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, path.c_str(), &how, sizeof how)));
    if (!at) return std::nullopt;
    // Nothing is asked for by name: what is, FUSE gets from its process when it holds what it knows
    // for old, whatever the flag says. All that is wanted is told all the same.
    struct statx status{};
    const bool known = ::statx(at.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &status) == 0;
    return known ? std::optional(told(status)) : std::nullopt;
}

}  // namespace rnbd
