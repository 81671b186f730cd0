// The last flush of a storage that is gone, on a thread of its own: what it stood on may never
// answer. Then it is left alone, and the thread with it.
//
// THREAD: its owner's; the flush runs on another one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <system_error>

namespace rnbd {

class PartingFlush {
  public:
    // flush: Storage::flush_aside(), not empty.
    explicit PartingFlush(std::function<std::error_code()> flush);

    bool is_over() const noexcept { return state_->over.load(std::memory_order_acquire); }
    // ASSUMES: is_over(). ERRORS: of the flush, or of starting a thread.
    std::error_code error() const noexcept { return state_->error; }

  private:
    struct State {
        std::atomic<bool> over = false;
        std::error_code error;  // written before that
    };
    std::shared_ptr<State> state_;
};

}  // namespace rnbd
