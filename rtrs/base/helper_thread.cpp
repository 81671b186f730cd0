#include "rtrs/base/helper_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

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
    // Signals are for the threads of the program that embeds us.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { serve(); });
        pthread_setname_np(thread_.native_handle(), "rtrs-offload");
    } catch (const std::system_error&) {
        // Maybe the next time.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread_.joinable();
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
