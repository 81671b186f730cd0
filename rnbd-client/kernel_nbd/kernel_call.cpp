#include "rnbd-client/kernel_nbd/kernel_call.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>

#include "rtrs/base/assert.h"

namespace rnbd {

KernelCall::KernelCall(rtrs::Reactor& reactor) : link_(std::make_shared<Link>()) {
    link_->reactor = &reactor;
    link_->owner = this;
}

KernelCall::~KernelCall() {
    const std::scoped_lock lock(link_->mutex);
    link_->reactor = nullptr;
    link_->owner = nullptr;
}

bool KernelCall::start(std::function<Report()> work) {
    RTRS_ASSERT(!running_);
    running_ = leave([link = link_, work = std::move(work)] {
        // Outlives the lock: what is dropped with it may do as it likes.
        auto report = work();
        const std::scoped_lock lock(link->mutex);
        if (link->reactor == nullptr) return;
        link->reactor->post([link, report = std::move(report)] {
            if (link->owner == nullptr) return;
            link->owner->running_ = false;
            report();
        });
    });
    return running_;
}

bool KernelCall::leave(std::function<void()> work) {
    // Signals are for the daemon's thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = true;
    try {
        std::thread thread(std::move(work));
        pthread_setname_np(thread.native_handle(), "rnbd-kernel");
        thread.detach();
    } catch (const std::system_error&) {
        runs = false;  // out of threads
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return runs;
}

}  // namespace rnbd
