// Simulates clients, servers, storages and everything that can go wrong between them, one run per
// seed. See --help.
#include <fmt/format.h>
#include <malloc.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "tests/sim/failover/bugs.h"
#include "tests/sim/failover/runner.h"
#include "tests/sim/failover/shrink.h"

namespace failover {
namespace {

constexpr const char* help = R"(usage: sim --seeds A..B [options]    run these seeds
       sim --seed N [options]        run one, say what it is made of
       sim --seed N --shrink         make a failing run smaller
       sim --find-planted            plant each bug, see that it is found (sim_planted)
Seeds from 1000001 on are of wide runs, with more kinds of faults and users.
  --jobs N             processes at a time (the CPUs)
  --verbose            with --seed: every decision, with its time
  --summary FILE       write the sums there too
  --state FILE         remember there how far it came, and go on from there
  --twice              run each seed twice: it must be the same run
  --stop               after the first finding
  --require-rare       fail if a rare branch was never taken (sim_planted)
  --plant BUG          (sim_planted)
  --no-fault FAULT     leave one kind of fault out; any number of times
)";

class Printer final : public Listener {
  public:
    bool silent() const noexcept override { return false; }
    void begin(const rtrs::SimWorld& world) override { world_ = &world; }
    void trace(rtrs::TraceLevel level, std::string_view subsystem, std::string_view subject,
               std::string_view text) override {
        constexpr char levels[] = {'d', 'i', 'W', 'E'};
        const std::chrono::duration<double> at = world_->now().time_since_epoch();
        fmt::print("{:12.6f} {} {} {}: {}\n", at.count(), levels[static_cast<int>(level)],
                   subsystem, subject, text);
    }

  private:
    const rtrs::SimWorld* world_ = nullptr;
};

struct Command {
    Job job;
    std::optional<std::uint64_t> seed;
    bool seeds = false;
    bool verbose = false;
    bool shrink = false;
    bool require_rare = false;
    bool find_planted = false;
    std::string planted;
    std::string summary_file;
    std::string error;
};

std::optional<std::uint64_t> number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool take_range(const std::string& text, Job& job) {
    const std::size_t dots = text.find("..");
    if (dots == std::string::npos) return false;
    const auto first = number(std::string_view(text).substr(0, dots));
    const auto last = number(std::string_view(text).substr(dots + 2));
    if (!first || !last || *first > *last) return false;
    job.first = *first;
    job.last = *last;
    return true;
}

bool take_flag(const std::string& word, Command& command) {
    if (word == "--verbose") return command.verbose = true;
    if (word == "--shrink") return command.shrink = true;
    if (word == "--require-rare") return command.require_rare = true;
    if (word == "--find-planted") return command.find_planted = true;
    if (word == "--twice") {
        command.job.check = Job::Check::repeatable;
        return true;
    }
    if (word == "--stop") {
        command.job.after_finding = Job::After::stop;
        return true;
    }
    return false;
}

std::string take_value(const std::string& word, const std::string& value, Command& command) {
    if (word == "--seeds") {
        command.seeds = take_range(value, command.job);
        return command.seeds ? "" : "--seeds takes A..B";
    }
    if (word == "--seed") {
        command.seed = number(value);
        return command.seed ? "" : "--seed takes a number";
    }
    if (word == "--jobs") {
        const auto jobs = number(value);
        if (!jobs || *jobs < 1 || *jobs > 1024) return "--jobs takes a number from 1 to 1024";
        command.job.jobs = static_cast<unsigned>(*jobs);
        return {};
    }
    if (word == "--summary") {
        command.summary_file = value;
        return {};
    }
    if (word == "--state") {
        command.job.state_file = value;
        return {};
    }
    if (word == "--plant") {
        command.planted = " --plant " + value;
        return plant(value) ? "" : "this program cannot plant " + value;
    }
    return command.job.overrides.add(word, value);
}

Command parse(int count, char** words) {
    Command command;
    command.job.jobs = std::max(1u, std::thread::hardware_concurrency());
    for (int i = 1; i < count && command.error.empty(); ++i) {
        const std::string word = words[i];
        if (take_flag(word, command)) continue;
        if (i + 1 == count) {
            command.error = "unknown option, or nothing follows " + word;
        } else {
            command.error = take_value(word, words[++i], command);
        }
    }
    return command;
}

int run_one(const Command& command, const std::string& program) {
    const Options options = command.job.overrides.apply(Options::from_seed(*command.seed));
    if (!command.verbose) {
        const Totals totals = run_isolated(options);
        fmt::print("{}", describe(options));
        for (std::size_t i = 0; i < totals.findings; ++i) {
            fmt::print("{}: {}\nrepeat with: {} --seed {}{}{}\n", totals.found[i].what.data(),
                       totals.found[i].particulars.data(), program, *command.seed, command.planted,
                       command.job.overrides.line());
        }
        if (totals.findings > 0) return 1;
        fmt::print("{}", summary(totals, 0, program));
        return 0;
    }
    fmt::print("{}", describe(options));
    Printer printer;
    const Outcome outcome = run(options, printer);
    for (const Finding& finding : outcome.findings) {
        fmt::print("{}: {}\n", finding.what, finding.particulars);
    }
    fmt::print("hash {:016x}\n", outcome.hash);
    return outcome.findings.empty() ? 0 : 1;
}

int run_many(const Command& command, const std::string& program) {
    const auto began = std::chrono::steady_clock::now();
    const Totals totals = run_seeds(command.job);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const std::string text =
        summary(totals, took.count(), program + command.planted + command.job.overrides.line());
    fmt::print("{}", text);
    if (!command.summary_file.empty()) std::ofstream(command.summary_file) << text;
    if (totals.sums.failed_seeds > 0 || totals.findings > 0) return 1;
    if (!command.require_rare) return 0;
    if (!counts_rare_branches) {
        fmt::print("this program does not count rare branches\n");
        return 2;
    }
    const std::string missing = untaken(totals.sums);
    if (missing.empty()) return 0;
    fmt::print("rare branches that were never taken:{}\n", missing);
    return 1;
}

// Each run's memory goes to the next one, not back to the kernel: that took a fifth of the time.
void keep_memory() {
    static_cast<void>(::mallopt(M_TRIM_THRESHOLD, 1 << 30));
    static_cast<void>(::mallopt(M_MMAP_THRESHOLD, 32 << 20));
}

int main(int count, char** words) {
    keep_memory();
    const Command command = parse(count, words);
    if (!command.error.empty() || (!command.seed && !command.seeds && !command.find_planted)) {
        fmt::print(stderr, "{}{}{}", command.error, command.error.empty() ? "" : "\n", help);
        return 2;
    }
    const std::string program = words[0];
    if (command.find_planted) return find_all_planted_bugs(command.job.jobs) ? 0 : 1;
    if (!command.seed) return run_many(command, program);
    if (!command.shrink) return run_one(command, program);
    return shrink(*command.seed, command.job.overrides, (program + command.planted).c_str()) ? 0
                                                                                             : 1;
}

}  // namespace
}  // namespace failover

int main(int count, char** words) { return failover::main(count, words); }
