#include "rnbd-server/storage/file_opening.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "rnbd-server/storage/wait_budget.h"
#include "rtrs/base/error.h"
#include "rtrs/base/start_thread.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

// Longer than a busy disk takes, so that an export is there when it has been added.
constexpr std::chrono::steady_clock::duration open_slice = 100ms;
// Many that come at once cost little more than that together, and then half of the time.
constexpr int first_share = 2;
// Those that are tried again and again, and all while others are late, cost no more than a tenth of
// the time together; but each may show that its own file system answers, unless too many do.
constexpr int open_share = 10;
constexpr std::chrono::steady_clock::duration open_slice_min = 2ms;
constexpr std::chrono::steady_clock::duration overdrawn_max = open_slice / 2;
// A disk that is busy, or starts to turn, is no silent file system yet.
constexpr std::chrono::steady_clock::duration silent_after = 1s;

// Openings that were not waited for to the end, and are wanted still.
std::atomic<int> late_openings = 0;

// One to write through is accompanied by a witness (FileMedium::witness()).
std::uint64_t descriptors_of(const StorageOptions& options) noexcept {
    return options.use == StorageOptions::Use::read_write ? 2 : 1;
}

// What the thread may still wait for openings.
struct WaitBudgets {
    WaitBudget first{open_slice, first_share};
    WaitBudget again{open_slice, open_share};

    // For an opening that was just begun.
    WaitBudget::Clock::duration slice(FileOpening::Attempt attempt) noexcept {
        const auto left_to_first = first.left();
        if (attempt == FileOpening::Attempt::first && late_openings == 0) return left_to_first;
        const auto left = again.left();
        return left < -overdrawn_max ? left : std::max(left, open_slice_min);
    }
    void spend(WaitBudget::Clock::duration waited) noexcept {
        first.spend(waited);
        again.spend(waited);
    }
};

WaitBudgets& wait_budget() {
    thread_local WaitBudgets budgets;
    return budgets;
}

}  // namespace

struct FileOpening::Inside {
    std::mutex mutex;
    std::condition_variable over;
    std::condition_variable let_go;
    std::unique_ptr<Opened> opened;  // guarded by mutex, as is what follows
    bool is_let_go = false;          // it was taken, or is not wanted any more
    std::stop_source not_wanted;
    std::optional<DescriptorRoom> room;  // the thread's

    void run(const StorageOptions& options, Opener open);
    void end();
};

// Closing may have to wait as opening may: what nobody has taken is closed here, too.
void FileOpening::Inside::run(const StorageOptions& options, Opener open) {
    auto result = std::make_unique<Opened>(open(options, not_wanted.get_token()));
    room.reset();
    std::unique_lock lock(mutex);
    opened = std::move(result);
    over.notify_one();
    let_go.wait(lock, [this] { return is_let_go; });
    result = std::move(opened);
    lock.unlock();
}

void FileOpening::Inside::end() {
    not_wanted.request_stop();
    const std::scoped_lock lock(mutex);
    is_let_go = true;
    let_go.notify_one();
}

FileOpening::FileOpening(const StorageOptions& options)
    : options_(options), inside_(std::make_shared<Inside>()) {}

FileOpening::~FileOpening() {
    inside_->end();
    if (late_) --late_openings;
}

bool FileOpening::start(Opener opener, DescriptorRoom room) {
    inside_->room = std::move(room);
    auto thread = rtrs::start_thread(
        [inside = inside_, options = options_, opener] { inside->run(options, opener); },
        "rnbd-opener");
    if (thread) thread->detach();
    return thread.has_value();
}

std::unique_ptr<FileOpening::Opened> FileOpening::wait_for(Clock::duration time) {
    std::unique_lock lock(inside_->mutex);
    inside_->over.wait_for(lock, time, [this] { return inside_->opened != nullptr; });
    return std::move(inside_->opened);
}

FileOpening::Opened FileOpening::open(const StorageOptions& options, Attempt attempt,
                                      DescriptorRoom::For whom, std::shared_ptr<FileOpening>& begun,
                                      Opener opener) {
    const auto failure = [&](int error, std::string_view why) {
        return std::unexpected(
            StorageError{rtrs::from_errno(error), options.path + ": " + std::string(why)});
    };
    Clock::duration slice{0};
    if (!begun || begun->options_ != options) {
        begun.reset();
        auto room = DescriptorRoom::take(descriptors_of(options), whom);
        if (!room) return failure(EMFILE, DescriptorRoom::none_left);
        begun.reset(new FileOpening(options));
        if (!begun->start(opener, std::move(*room))) {
            begun.reset();
            return failure(EAGAIN, "no thread to open it by");
        }
        slice = wait_budget().slice(attempt);
    }
    const Clock::time_point asked = Clock::now();
    const std::unique_ptr<Opened> opened = begun->wait_for(slice);
    wait_budget().spend(Clock::now() - asked);
    if (!opened) {
        if (!std::exchange(begun->late_, true)) ++late_openings;
        return Clock::now() - begun->since_ < silent_after
                   ? failure(EALREADY, "is being opened")
                   : failure(ETIMEDOUT, "its file system has not answered yet");
    }
    begun.reset();
    return std::move(*opened);
}

}  // namespace rnbd
