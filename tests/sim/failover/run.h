// One run: the machines, the rounds of quiet and trouble, and the end, when all must be well again.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rtrs/fabric/sim/sim_world.h"
#include "rtrs/trace.h"
#include "tests/sim/failover/findings.h"
#include "tests/sim/failover/options.h"

namespace failover {

struct Outcome {
    std::vector<Finding> findings;
    std::uint64_t hash = 0;
    std::uint64_t events = 0;
    std::uint64_t simulated_ms = 0;
    std::uint64_t requests = 0;
    std::uint64_t failed = 0;
    std::uint64_t flushes = 0;
    std::uint64_t losses_told = 0;
    std::uint64_t operations = 0;  // of the storages
    std::uint64_t repeated = 0;    // writes that ran more than once
    std::array<std::uint64_t, fault_kinds> faults{};
};

// Hears all decisions of a run. Silent: what costs time to say is not said.
class Listener : public rtrs::Tracer {
  public:
    virtual bool silent() const noexcept = 0;
    // world: of the run that begins, for the time.
    virtual void begin(const rtrs::SimWorld& world) = 0;
};

// The same options give the same outcome.
Outcome run(const Options& options, Listener& listener);

}  // namespace failover
