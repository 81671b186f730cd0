#include "tests/sim/failover/totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace failover {

void Sums::add(const Outcome& outcome) {
    ++seeds;
    if (!outcome.findings.empty()) ++failed_seeds;
    simulated_ms += outcome.simulated_ms;
    events += outcome.events;
    requests += outcome.requests;
    failed_requests += outcome.failed;
    flushes += outcome.flushes;
    losses_told += outcome.losses_told;
    operations += outcome.operations;
    repeated += outcome.repeated;
    hash += outcome.hash;
    for (std::size_t i = 0; i < fault_kinds; ++i) faults[i] += outcome.faults[i];
}

namespace {

// Everything that is summed, in the order of the state file.
template <typename Visit>
void visit(Sums& sums, Visit each) {
    each("seeds", sums.seeds);
    each("failed-seeds", sums.failed_seeds);
    each("simulated-ms", sums.simulated_ms);
    each("events", sums.events);
    each("requests", sums.requests);
    each("failed-requests", sums.failed_requests);
    each("flushes", sums.flushes);
    each("losses-told", sums.losses_told);
    each("operations", sums.operations);
    each("repeated", sums.repeated);
    each("hash", sums.hash);
    for (std::size_t i = 0; i < fault_kinds; ++i) each(fault_names[i], sums.faults[i]);
    for (std::size_t i = 0; i < rare_branches; ++i) each(rtrs::rare_branch_names[i], sums.rare[i]);
}

}  // namespace

void Sums::add(const Sums& other) {
    std::map<std::string_view, std::uint64_t> theirs;
    Sums copy = other;
    visit(copy, [&](std::string_view name, std::uint64_t& value) { theirs[name] = value; });
    visit(*this, [&](std::string_view name, std::uint64_t& value) { value += theirs[name]; });
}

std::string to_text(const Sums& sums) {
    std::string text;
    Sums copy = sums;
    visit(copy, [&](std::string_view name, std::uint64_t& value) {
        text += fmt::format("{} {}\n", name, value);
    });
    return text;
}

bool from_text(const std::string& text, Sums& sums) {
    std::map<std::string, std::uint64_t> known;
    std::istringstream lines(text);
    std::string name;
    std::uint64_t value = 0;
    while (lines >> name >> value) known[name] = value;
    bool complete = true;
    visit(sums, [&](std::string_view each, std::uint64_t& sum) {
        const auto found = known.find(std::string(each));
        complete = complete && found != known.end();
        sum = found == known.end() ? 0 : found->second;
    });
    return complete;
}

// --- Totals

namespace {

template <std::size_t Size>
void copy_text(std::array<char, Size>& to, std::string_view text) {
    const std::size_t bytes = std::min(text.size(), Size - 1);
    std::copy_n(text.begin(), bytes, to.begin());
    to[bytes] = 0;
}

}  // namespace

void FoundText::set(std::uint64_t its_seed, std::string_view its_what,
                    std::string_view its_particulars) {
    seed = its_seed;
    copy_text(what, its_what);
    copy_text(particulars, its_particulars);
}

void Totals::add(const FoundText& one) {
    const auto end = found.begin() + static_cast<std::ptrdiff_t>(findings);
    const auto same = std::count_if(found.begin(), end, [&](const FoundText& each) {
        return std::string_view(each.what.data()) == one.what.data();
    });
    if (findings < findings_max && same < of_a_kind_max) found[findings++] = one;
}

void Totals::add(std::uint64_t seed, const Outcome& outcome) {
    sums.add(outcome);
    if (outcome.findings.empty()) return;
    // What follows the first is mostly its consequence.
    FoundText text;
    text.set(seed, outcome.findings.front().what, outcome.findings.front().particulars);
    add(text);
}

void Totals::add(const Totals& other) {
    sums.add(other.sums);
    for (std::size_t i = 0; i < other.findings; ++i) add(other.found[i]);
}

std::string untaken(const Sums& sums) {
    std::string names;
    for (std::size_t i = 0; i < rare_branches; ++i) {
        if (sums.rare[i] == 0) names += fmt::format(" {}", rtrs::rare_branch_names[i]);
    }
    return names;
}

std::string summary(const Totals& totals, double seconds, const std::string& repeat_with) {
    const Sums& sums = totals.sums;
    const double simulated = static_cast<double>(sums.simulated_ms) / 1000;
    std::string text = fmt::format(
        "seeds              {}\nsimulated seconds  {:.0f}\nwall seconds       {:.1f}\n"
        "simulated seconds per wall minute  {:.0f}\nevents             {}\n"
        "requests           {} ({} failed)\nflushes            {} ({} lost blocks told)\n"
        "storage operations {} ({} writes ran again)\nhash               {:016x}\n",
        sums.seeds, simulated, seconds, simulated / std::max(seconds, 0.001) * 60, sums.events,
        sums.requests, sums.failed_requests, sums.flushes, sums.losses_told, sums.operations,
        sums.repeated, sums.hash);
    text += "faults:\n";
    for (std::size_t i = 0; i < fault_kinds; ++i) {
        text += fmt::format("  {:<16} {}\n", fault_names[i], sums.faults[i]);
    }
    if (counts_rare_branches) {
        text += "rare branches:\n";
        for (std::size_t i = 0; i < rare_branches; ++i) {
            text += fmt::format("  {:<28} {}\n", rtrs::rare_branch_names[i], sums.rare[i]);
        }
    } else {
        text += "rare branches: counted by sim_planted\n";
    }
    text += fmt::format("seeds with findings {}\n", sums.failed_seeds);
    for (std::size_t i = 0; i < totals.findings; ++i) {
        const FoundText& one = totals.found[i];
        text += fmt::format("  {}: {}\n    repeat with: {} --seed {}\n", one.what.data(),
                            one.particulars.data(), repeat_with, one.seed);
    }
    return text;
}

}  // namespace failover
