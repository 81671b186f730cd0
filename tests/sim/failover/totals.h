// What many runs came to: sums, and the first findings. Plain data, so that processes can share it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "rtrs/base/rare.h"
#include "tests/sim/failover/run.h"

namespace failover {

inline constexpr std::size_t rare_branches = static_cast<std::size_t>(rtrs::RareBranch::count);

#ifdef RTRS_PLANTED
inline constexpr bool counts_rare_branches = true;
#else
inline constexpr bool counts_rare_branches = false;
#endif

struct Sums {
    std::uint64_t seeds = 0;
    std::uint64_t failed_seeds = 0;
    std::uint64_t simulated_ms = 0;
    std::uint64_t events = 0;
    std::uint64_t requests = 0;
    std::uint64_t failed_requests = 0;
    std::uint64_t flushes = 0;
    std::uint64_t losses_told = 0;
    std::uint64_t operations = 0;
    std::uint64_t repeated = 0;
    std::uint64_t hash = 0;  // of all runs, in whatever order
    std::array<std::uint64_t, fault_kinds> faults{};
    std::array<std::uint64_t, rare_branches> rare{};

    void add(const Outcome& outcome);
    void add(const Sums& other);
};

struct FoundText {
    std::uint64_t seed = 0;
    std::array<char, 96> what{};
    std::array<char, 600> particulars{};
    void set(std::uint64_t its_seed, std::string_view its_what, std::string_view its_particulars);
};

struct Totals {
    static constexpr std::size_t findings_max = 64;
    static constexpr std::ptrdiff_t of_a_kind_max = 3;
    Sums sums;
    std::size_t findings = 0;  // kept
    std::array<FoundText, findings_max> found{};

    void add(std::uint64_t seed, const Outcome& outcome);
    void add(const FoundText& one);
    void add(const Totals& other);
};

// For people; seconds: how long it took by the wall clock.
std::string summary(const Totals& totals, double seconds, const std::string& repeat_with);
// Names of rare branches that were never taken, with a blank before each.
std::string untaken(const Sums& sums);

// One word and number after the other, and back.
std::string to_text(const Sums& sums);
bool from_text(const std::string& text, Sums& sums);

}  // namespace failover
