// Runs seeds in child processes, so that an assertion or a hang ends one run and not all of them.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/failover/options.h"
#include "tests/sim/failover/totals.h"

namespace failover {

struct Job {
    std::uint64_t first = 1;
    std::uint64_t last = 0;  // inclusive
    unsigned jobs = 1;
    Overrides overrides;
    enum class Check : std::uint8_t { once, repeatable } check = Check::once;
    enum class After : std::uint8_t { go_on, stop } after_finding = After::go_on;
    std::string state_file;  // empty: none
};

// Sums of all seeds of the job, also of those that the state file says were run before.
Totals run_seeds(const Job& job);

// One run in a process of its own.
Totals run_isolated(const Options& options);

}  // namespace failover
