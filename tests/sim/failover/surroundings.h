// What the parts of a run share.
#pragma once

#include "rtrs/base/random.h"
#include "rtrs/fabric/sim/sim_world.h"
#include "rtrs/trace.h"
#include "tests/sim/failover/findings.h"
#include "tests/sim/failover/options.h"

namespace failover {

struct Surroundings {
    rtrs::SimWorld& world;
    rtrs::Random& random;
    rtrs::Tracer& tracer;
    Findings& findings;
    const Options& options;
    bool silent = true;  // nobody listens to the tracer
};

}  // namespace failover
