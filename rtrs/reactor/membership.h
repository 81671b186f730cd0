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

// Of a group; bound by it. Null on every other thread.
extern constinit thread_local Reactor* reactor_of_this_thread;

// While it lives, the others of the group run handlers. Nothing is shared with them then but what
// the kernel knows.
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
