#include "rnbd-server/storage/file_opening.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "rnbd-server/storage/patience.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than a busy disk takes, so that an export is there when it has been added. While others
// are late already, all together cost no more than a tenth of the time.
constexpr Clock::duration open_slice = std::chrono::milliseconds(100);
constexpr int open_share = 10;

// Openings that were not waited for to the end, and are wanted still.
std::atomic<int> late_openings = 0;

Patience& patience() {
    thread_local Patience the_patience(open_slice, open_share);
    return the_patience;
}

}  // namespace

struct FileOpening::Inside {
    std::mutex mutex;
    std::condition_variable over;
    std::optional<Opened> opened;  // guarded by mutex
};

FileOpening::FileOpening(const StorageOptions& options)
    : options_(options), inside_(std::make_shared<Inside>()) {}

FileOpening::~FileOpening() {
    if (late_) --late_openings;
}

bool FileOpening::start() {
    // Signals are for the daemon's own thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = false;
    try {
        std::thread thread([inside = inside_, options = options_] {
            Opened opened = FileMedium::open(options);
            const std::scoped_lock lock(inside->mutex);
            inside->opened.emplace(std::move(opened));
            inside->over.notify_one();
        });
        pthread_setname_np(thread.native_handle(), "rnbd-opener");
        thread.detach();
        runs = true;
    } catch (const std::system_error&) {
        // Maybe the next time.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return runs;
}

std::optional<FileOpening::Opened> FileOpening::wait_for(Clock::duration time) {
    std::unique_lock lock(inside_->mutex);
    inside_->over.wait_for(lock, time, [this] { return inside_->opened.has_value(); });
    return std::move(inside_->opened);
}

FileOpening::Opened FileOpening::open(const StorageOptions& options,
                                      std::shared_ptr<FileOpening>& begun) {
    const auto failure = [&](int error, const char* why) {
        return std::unexpected(StorageError{rtrs::from_errno(error), options.path + ": " + why});
    };
    Clock::duration slice{0};
    if (!begun || begun->options_ != options) {
        begun.reset(new FileOpening(options));
        if (!begun->start()) {
            begun.reset();
            return failure(EAGAIN, "no thread to open it by");
        }
        slice = late_openings > 0 ? patience().left() : open_slice;
    }
    const Clock::time_point asked = Clock::now();
    std::optional<Opened> opened = begun->wait_for(slice);
    patience().spend(Clock::now() - asked);
    if (!opened) {
        if (!std::exchange(begun->late_, true)) ++late_openings;
        return failure(ETIMEDOUT, "its file system has not answered yet");
    }
    begun.reset();
    return std::move(*opened);
}

}  // namespace rnbd
