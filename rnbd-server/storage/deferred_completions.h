// Completes requests in this turn or the next: for storages that are done at once, because a
// request never completes from inside submit().
//
// What a handler submits completes in the next turn, so that a caller who always has more to ask
// does not keep the loop from its sockets.
//
// OWNER: Target, for all its storages: what many of them completed in a turn costs one timer.
// THREAD: the reactor's (rtrs/reactor.h); in a ReactorGroup a request completes on the member's
// thread where it was added. A handler may destroy the storage if its request was the last one.
#pragma once

#include <memory>
#include <system_error>
#include <vector>

#include "rnbd-server/storage.h"
#include "rtrs/base/clock.h"
#include "rtrs/reactor.h"

namespace rnbd {

class DeferredCompletions {
  public:
    explicit DeferredCompletions(rtrs::Clock& clock);
    explicit DeferredCompletions(rtrs::Reactor& reactor);
    // Asserts that none waits.
    ~DeferredCompletions();
    DeferredCompletions(const DeferredCompletions&) = delete;
    DeferredCompletions& operator=(const DeferredCompletions&) = delete;

    void add(BlockRequest& request, std::error_code error);

  private:
    // Of one thread.
    class Queue;

    rtrs::Reactor* reactor_ = nullptr;
    std::vector<std::unique_ptr<Queue>> queues_;  // by the reactor's number
};

}  // namespace rnbd
