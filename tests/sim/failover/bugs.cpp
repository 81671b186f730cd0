#include "tests/sim/failover/bugs.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "rtrs/base/planted.h"
#include "tests/sim/failover/runner.h"

namespace failover {

#ifdef RTRS_PLANTED

namespace {

using rtrs::PlantedBug;

struct Override {
    const char* option;
    const char* value;
};
struct Expectation {
    PlantedBug bug;
    std::uint64_t seeds;  // from 1, within which it is found
    std::vector<Override> overrides = {};
};
const Expectation expectations[] = {
    {PlantedBug::admission_off, 100},
    // What goes wrong before an endpoint has drained shows where draining takes time.
    {PlantedBug::quarantine_off, 1500, {{"--drain-us", "300000"}}},
    {PlantedBug::takeover_off, 100},
    {PlantedBug::lock_off, 100},
    {PlantedBug::permit_reused_early, 500},
    {PlantedBug::volume_opened_early, 500},
    {PlantedBug::retry_not_waiting, 100},
    {PlantedBug::flush_forgotten, 100},
    {PlantedBug::heartbeat_never_fires, 1000},
    {PlantedBug::answer_buffer_early, 100},
    // The peer's question has to come while a probe is under way.
    {PlantedBug::question_ends_probe,
     1000,
     {{"--heartbeat-ms", "800"},
      {"--heartbeat-timeout-ms", "2000"},
      {"--deadline-ms", "800"},
      {"--paths", "2"},
      {"--requests", "200"}}},
    // Something has to be kept for long while there is another way.
    {PlantedBug::connection_unasked,
     1000,
     {{"--paths", "2"}, {"--wide-faults", "8"}, {"--deadline-ms", "500"}}},
};
static_assert(std::size(expectations) == rtrs::planted_bug_names.size());

}  // namespace

bool plant(const std::string& name) {
    const auto found = std::ranges::find_if(rtrs::planted_bug_names,
                                            [&](const auto& each) { return each.second == name; });
    if (found == rtrs::planted_bug_names.end()) return false;
    rtrs::planted_bug = found->first;
    return true;
}

bool find_all_planted_bugs(unsigned jobs) {
    bool all = true;
    for (const auto& [bug, seeds, overrides] : expectations) {
        rtrs::planted_bug = bug;
        Job job{.first = 1, .last = seeds, .jobs = jobs, .after_finding = Job::After::stop};
        for (const Override& each : overrides) job.overrides.add(each.option, each.value);
        const Totals totals = run_seeds(job);
        const auto* name = std::ranges::find_if(
            rtrs::planted_bug_names, [&](const auto& each) { return each.first == bug; });
        if (totals.findings == 0) {
            fmt::print("{}: NOT FOUND within {} seeds\n", name->second, seeds);
            all = false;
            continue;
        }
        const auto first = std::ranges::min_element(
            totals.found.begin(), totals.found.begin() + static_cast<long>(totals.findings), {},
            &FoundText::seed);
        fmt::print("{}: found by seed {} of {}: {}\n", name->second, first->seed, seeds,
                   first->what.data());
    }
    rtrs::planted_bug = PlantedBug::none;
    return all;
}

#else

bool plant(const std::string&) { return false; }
bool find_all_planted_bugs(unsigned) { return false; }

#endif

}  // namespace failover
