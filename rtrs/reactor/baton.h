// Which thread of a ReactorGroup may run handlers: the one that has it.
//
// It is given away for as long as the kernel works for its holder, and taken back after that, so
// whoever waits gets it within the microseconds of somebody's handlers.
#pragma once

#include <mutex>

#include "rtrs/reactor/relax_processor.h"

namespace rtrs {

class Baton {
  public:
    void take() noexcept {
        // Looking is cheaper than sleeping for so short a time.
        constexpr int looks = 100;
        for (int i = 0; i < looks; ++i) {
            if (mutex_.try_lock()) return;
            relax_processor();
        }
        mutex_.lock();
    }
    void give() noexcept { mutex_.unlock(); }

  private:
    std::mutex mutex_;
};

}  // namespace rtrs
