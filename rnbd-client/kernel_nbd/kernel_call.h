// Runs a call that may block for ever on a thread of its own.
//
// A call that does not return is abandoned together with its thread: neither the reactor nor the
// end of the daemon waits for it.
//
// OWNER: KernelDevice. THREAD: the reactor's (rtrs/reactor.h); work runs on another thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "rtrs/reactor.h"

namespace rnbd {

class KernelCall {
  public:
    explicit KernelCall(rtrs::Reactor& reactor);
    ~KernelCall();  // a call that still runs is never reported
    KernelCall(const KernelCall&) = delete;
    KernelCall& operator=(const KernelCall&) = delete;

    // work runs on a new thread and returns a function, which is then called in a turn of the
    // reactor. What work captures must live as long as the thread, so it must not capture anything
    // of the reactor's. Returns false if there is no thread to be had.
    // ASSUMES: !running().
    using Report = std::function<void()>;
    bool start(std::function<Report()> work);
    bool running() const noexcept { return running_; }

    // The same, but nobody waits for the end of work. May be called from any thread.
    static bool leave(std::function<void()> work);

  private:
    // Shared with the thread.
    struct Link {
        std::mutex mutex;
        rtrs::Reactor* reactor = nullptr;  // guarded by mutex; null: nobody waits any more
        KernelCall* owner = nullptr;       // used by the reactor's thread only
    };
    std::shared_ptr<Link> link_;
    bool running_ = false;
};

}  // namespace rnbd
