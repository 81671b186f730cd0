// While it lives, its thread cannot be cancelled. pthread_cancel(3) unwinds the stack from a system
// call or a wait, and what the library has half done cannot be taken back: the process would end.
// A cancellation that comes meanwhile is the program's afterwards.
#pragma once

#include <pthread.h>

namespace rnbd::library {

class Uncancelled {
  public:
    Uncancelled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace rnbd::library
