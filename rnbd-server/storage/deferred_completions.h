// Completes requests in this turn or the next. It is for storages that finish requests at once,
// because a request must never complete from inside submit().
//
// A request that a completion handler submits completes in the next turn, so that a caller that
// always has more requests does not keep the loop from its sockets.
//
// OWNER: Target, for all its storages: one timer serves all completions of a turn.
// THREAD: the reactor's (rtrs/reactor.h); in a ReactorGroup a request completes on the thread of
// the member where it was added. A handler may destroy the storage if its request was the last one.
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
    // Asserts that no request waits.
    ~DeferredCompletions();
    DeferredCompletions(const DeferredCompletions&) = delete;
    DeferredCompletions& operator=(const DeferredCompletions&) = delete;

    void add(BlockRequest& request, std::error_code error);

  private:
    // The requests of one thread.
    class Queue;

    rtrs::Reactor* reactor_ = nullptr;
    std::vector<std::unique_ptr<Queue>> queues_;  // by the reactor's number
};

}  // namespace rnbd
