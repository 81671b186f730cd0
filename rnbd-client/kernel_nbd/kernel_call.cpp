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
    const auto run = [link = link_, work = std::move(work)] {
        auto report = work();
        const std::scoped_lock lock(link->mutex);
        if (link->reactor == nullptr) return;
        link->reactor->post([link, report = std::move(report)] {
            if (link->owner == nullptr) return;
            link->owner->running_ = false;
            report();
        });
    };
    // Signals are for the daemon's thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread(run);
        pthread_setname_np(thread.native_handle(), "rnbd-kernel");
        thread.detach();
        running_ = true;
    } catch (const std::system_error&) {
        // Out of threads: running_ says so.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return running_;
}

}  // namespace rnbd
