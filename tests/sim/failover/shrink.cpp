#include "tests/sim/failover/shrink.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "tests/sim/failover/runner.h"

namespace failover {
namespace {

std::optional<std::string> failure(std::uint64_t seed, const Overrides& overrides) {
    const Totals totals = run_isolated(overrides.apply(Options::from_seed(seed)));
    if (totals.findings == 0) return std::nullopt;
    return std::string(totals.found[0].what.data());
}

class Shrinker {
  public:
    Shrinker(std::uint64_t seed, Overrides overrides, std::string what)
        : seed_(seed), smallest_(std::move(overrides)), what_(std::move(what)) {}

    bool round() {
        bool smaller = false;
        for (std::size_t i = 0; i < fault_kinds; ++i) {
            Overrides fewer = smallest_;
            fewer.forbid(static_cast<Fault>(i));
            if (now().allows(static_cast<Fault>(i))) smaller |= keep_if_it_fails(fewer);
        }
        for (const OptionName& option : option_names()) {
            if (option.simplest) smaller |= lower(option);
        }
        return smaller;
    }
    const Overrides& smallest() const { return smallest_; }

  private:
    Options now() const { return smallest_.apply(Options::from_seed(seed_)); }

    // The same failure: another one may be another bug.
    bool keep_if_it_fails(const Overrides& candidate) {
        if (failure(seed_, candidate) != what_) return false;
        smallest_ = candidate;
        fmt::print("  still fails:{}\n", smallest_.line());
        return true;
    }

    // Straight to the simplest value, else by halves towards it.
    bool lower(const OptionName& option) {
        bool smaller = false;
        for (;;) {
            const std::uint32_t value = std::min(now().*option.value, 10000u);
            const std::uint32_t goal = *option.simplest;
            if (value <= goal) return smaller;
            Overrides lowest = smallest_;
            lowest.set(option, goal);
            if (keep_if_it_fails(lowest)) return true;
            bool any = false;
            for (std::uint32_t gap = (value - goal) / 2; gap > 0 && !any; gap /= 2) {
                Overrides less = smallest_;
                less.set(option, value - gap);
                any = keep_if_it_fails(less);
            }
            if (!any) return smaller;
            smaller = true;
        }
    }

    std::uint64_t seed_;
    Overrides smallest_;
    std::string what_;
};

}  // namespace

bool shrink(std::uint64_t seed, Overrides overrides, const char* program) {
    const auto what = failure(seed, overrides);
    if (!what) {
        fmt::print("seed {} does not fail\n", seed);
        return false;
    }
    fmt::print("{}\n", *what);
    Shrinker shrinker(seed, std::move(overrides), *what);
    while (shrinker.round()) {
    }
    fmt::print("smallest:\n{} --seed {}{}\n", program, seed, shrinker.smallest().line());
    return true;
}

}  // namespace failover
