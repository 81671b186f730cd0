// A scenario looks at some statements; what it could not come to is not ok, and says why.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "tests/conformance/lab.h"
#include "tests/conformance/report.h"

namespace conformance {

template <typename Task>
struct Scenario {
    std::string_view name;
    std::vector<std::string_view> judges;
    void (*run)(Task& task);
};

template <typename Task>
void run_scenarios(Task& task, std::span<const Scenario<Task>> scenarios,
                   const std::vector<std::string>& only, const std::vector<std::string>& skip) {
    const auto has = [](const std::vector<std::string>& list, std::string_view name) {
        return std::ranges::find(list, name) != list.end();
    };
    for (const Scenario<Task>& scenario : scenarios) {
        if ((!only.empty() && !has(only, scenario.name)) || has(skip, scenario.name)) continue;
        fmt::print(stderr, "{} ...\n", scenario.name);
        std::string why = "the scenario did not come to it";
        try {
            scenario.run(task);
        } catch (const Stop& stop) {
            why = fmt::format("{} stopped: {}", scenario.name, stop.why);
            fmt::print(stderr, "  {}\n", why);
            for (const std::string_view id : scenario.judges) {
                task.report.not_ok(id, why, "the scenario to its end");
            }
        }
        for (const std::string_view id : scenario.judges) {
            if (!task.report.judged(id)) task.report.not_ok(id, why, "a verdict");
        }
    }
}

}  // namespace conformance
