// A call that may block for ever, on a thread of its own that nobody joins. Whoever is no longer
// interested in the result lets go of it: the thread then ends when the call does, or with the
// process. So the call must own whatever it uses, and must not touch objects that the end of main()
// destroys.
//
// OWNER: whoever wants the result. THREAD: the owner's, one at a time; the call runs on another.
#pragma once

#include <condition_variable>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/start_thread.h"

namespace rtrs {

template <typename Result>
class DetachedCall {
  public:
    // thread_name: as start_thread(). ERRORS: EAGAIN (no more threads); then nothing was called.
    static std::expected<DetachedCall, std::error_code> start(std::function<Result()> call,
                                                              const char* thread_name) {
        DetachedCall made;
        auto thread = start_thread(
            [state = made.state_, call = std::move(call)]() mutable {
                Result result = call();
                // What the call holds goes first: whoever hears of its end may want that.
                call = nullptr;
                const std::scoped_lock lock(state->mutex);
                state->result.emplace(std::move(result));
                state->over.notify_all();
            },
            thread_name);
        if (!thread) return std::unexpected(thread.error());
        thread->detach();
        return made;
    }

    bool is_over() const {
        const std::scoped_lock lock(state_->mutex);
        return state_->result.has_value();
    }
    // Blocks for at most so long. Returns is_over().
    bool wait_for(Duration time) const {
        std::unique_lock lock(state_->mutex);
        return state_->over.wait_for(lock, time, [this] { return state_->result.has_value(); });
    }
    // ASSUMES: is_over().
    Result& result() {
        RTRS_ASSERT(is_over());
        return *state_->result;
    }

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable over;
        std::optional<Result> result;  // guarded by mutex; once it is there, the owner's
    };
    DetachedCall() = default;

    std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace rtrs
