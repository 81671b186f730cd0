#include "rnbd-server/storage/parting_flush.h"

#include <cerrno>
#include <utility>

#include "rtrs/base/error.h"
#include "rtrs/base/start_thread.h"

namespace rnbd {

PartingFlush::PartingFlush(std::function<std::error_code()> flush)
    : state_(std::make_shared<State>()) {
    auto thread = rtrs::start_thread(
        [state = state_, work = std::move(flush)]() mutable {
            state->error = work();
            // What it holds goes first: whoever hears that it is over may open the same file.
            work = nullptr;
            state->over.store(true, std::memory_order_release);
        },
        "rnbd-parting");
    if (thread) {
        thread->detach();
        return;
    }
    state_->error = rtrs::from_errno(EAGAIN);
    state_->over.store(true, std::memory_order_release);
}

}  // namespace rnbd
