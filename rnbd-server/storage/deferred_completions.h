// Completes requests in this turn or the next: for storages that are done at once, because a
// request never completes from inside submit().
//
// What a handler submits completes in the next turn, so that a caller who always has more to ask
// does not keep the loop from its sockets.
//
// OWNER: Target, for all its storages: what many of them completed in a turn costs one timer.
// THREAD: the reactor's. A handler may destroy the storage if its request was the last one.
#pragma once

#include <cstddef>
#include <system_error>
#include <vector>

#include "rnbd-server/storage.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class DeferredCompletions {
  public:
    explicit DeferredCompletions(rtrs::Clock& clock);
    // Asserts that none waits.
    ~DeferredCompletions();
    DeferredCompletions(const DeferredCompletions&) = delete;
    DeferredCompletions& operator=(const DeferredCompletions&) = delete;

    void add(BlockRequest& request, std::error_code error);

  private:
    struct Entry {
        BlockRequest* request;
        std::error_code error;
    };
    void run();

    rtrs::Clock& clock_;
    rtrs::Timer due_;
    std::vector<Entry> entries_;
    std::size_t next_ = 0;
};

}  // namespace rnbd
