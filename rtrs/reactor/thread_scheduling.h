// The kernel's scheduling of one thread: its figures, and its policy.
//
// THREAD: the one that called open().
#pragma once

#include <optional>

#include "rtrs/base/descriptor.h"
#include "rtrs/reactor/batch_scheduling.h"

namespace rtrs {

class ThreadScheduling {
  public:
    // The calling thread's. False, then nothing else may be called: the kernel has no such figures
    // (CONFIG_SCHED_INFO), or the thread has a policy that somebody has chosen for it.
    bool open() noexcept;
    // All but the requests. None: they cannot be read.
    std::optional<BatchScheduling::Figures> figures() const noexcept;
    // Makes the thread of SCHED_BATCH, or of SCHED_OTHER again: then also the threads that work for
    // its ring, which inherit the policy when they are made. False: not allowed.
    bool use_batch(bool batch) const;

  private:
    void use_usual_for_ring_workers() const;

    Descriptor schedstat_;
};

}  // namespace rtrs
