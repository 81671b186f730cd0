#include "rtrs/base/helper_thread.h"

#include <utility>

#include "rtrs/base/start_thread.h"

namespace rtrs {

HelperThread::~HelperThread() {
    if (!thread_.joinable()) return;
    {
        const std::scoped_lock lock(mutex_);
        ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

bool HelperThread::run(std::function<void()> work, std::function<void()> done) {
    if (!thread_.joinable() && !start()) return false;
    {
        const std::scoped_lock lock(mutex_);
        jobs_.push_back({std::move(work), std::move(done)});
    }
    wake_.notify_one();
    return true;
}

bool HelperThread::start() {
    auto started = start_thread([this] { serve(); }, "rtrs-offload");
    if (started) thread_ = std::move(*started);
    return started.has_value();
}

void HelperThread::serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
        if (ending_) return;
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job.work();
        job.work = nullptr;
        finished_(std::move(job.done));
        lock.lock();
    }
}

}  // namespace rtrs
