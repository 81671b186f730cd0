#include "rnbd-client/kernel_nbd/kernel_call.h"

#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/start_thread.h"

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
    auto thread = rtrs::start_thread(std::move(work), "rnbd-kernel");
    if (thread) thread->detach();
    return thread.has_value();
}

}  // namespace rnbd
