// What the members of a ReactorGroup know of each other.
//
// OWNER: ReactorGroup.
#pragma once

#include <cstdint>
#include <vector>

#include "rtrs/reactor/baton.h"

namespace rtrs {

class Reactor;

struct Membership {
    Baton baton;
    std::vector<Reactor*> members;  // by number
};

// The group's member that is bound to this thread. Null on threads that belong to no group.
extern constinit thread_local Reactor* reactor_of_this_thread;

// While it exists, the other members of the group run handlers. This thread then shares nothing
// with them, only with the kernel.
class OthersTurn {
  public:
    explicit OthersTurn(Membership* group) noexcept : group_(group) {
        if (group_ != nullptr) group_->baton.give();
    }
    ~OthersTurn() {
        if (group_ != nullptr) group_->baton.take();
    }
    OthersTurn(const OthersTurn&) = delete;
    OthersTurn& operator=(const OthersTurn&) = delete;

  private:
    Membership* group_;
};

}  // namespace rtrs
