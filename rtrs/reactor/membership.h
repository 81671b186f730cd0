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

}  // namespace rtrs
