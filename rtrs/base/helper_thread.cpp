#include "rtrs/base/helper_thread.h"

#include <utility>

#include "rtrs/base/start_thread.h"

namespace rtrs {

HelperThread::~HelperThread() {
    if (!thread_.joinable()) return;
    end(false);
    thread_.join();
}

void HelperThread::abandon() {
    end(true);
    if (thread_.joinable()) thread_.detach();
}

void HelperThread::end(bool abandoned) {
    {
        const std::scoped_lock lock(shared_->mutex);
        shared_->ending = true;
        shared_->abandoned = abandoned;
    }
    shared_->wake.notify_one();
}

bool HelperThread::run(std::function<void()> work, std::function<void()> done) {
    if (!thread_.joinable() && !start()) return false;
    {
        const std::scoped_lock lock(shared_->mutex);
        shared_->jobs.push_back({std::move(work), std::move(done)});
    }
    shared_->wake.notify_one();
    return true;
}

bool HelperThread::start() {
    auto started = start_thread([shared = shared_] { serve(*shared); }, "rtrs-offload");
    if (started) thread_ = std::move(*started);
    return started.has_value();
}

void HelperThread::serve(Shared& shared) {
    std::unique_lock lock(shared.mutex);
    for (;;) {
        shared.wake.wait(lock, [&] { return shared.ending || !shared.jobs.empty(); });
        if (shared.ending) return;
        Job job = std::move(shared.jobs.front());
        shared.jobs.pop_front();
        lock.unlock();
        job.work();
        job.work = nullptr;
        lock.lock();
        // Told under the lock: who has abandoned it may be gone after that.
        if (shared.abandoned) return;
        shared.finished(std::move(job.done));
    }
}

}  // namespace rtrs
