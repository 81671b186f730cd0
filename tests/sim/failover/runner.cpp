#include "tests/sim/failover/runner.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "rtrs/base/assert.h"

namespace failover {
namespace {

// A process leaves behind what its dead processes had; after so many runs a fresh one begins.
constexpr std::uint64_t batch_seeds = 50;
// A run takes milliseconds; only one that never ends is ended by the clock.
constexpr unsigned hang_seconds = 100;

class Silence final : public Listener {
  public:
    bool silent() const noexcept override { return true; }
    void begin(const rtrs::SimWorld&) override {}
    void trace(rtrs::TraceLevel, std::string_view, std::string_view, std::string_view) override {}
};

// What a child leaves its parent.
struct Note {
    Totals totals;
    std::uint64_t current = 0;
};

class SharedNote {
  public:
    SharedNote() {
        void* at = ::mmap(nullptr, sizeof(Note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0);
        RTRS_ASSERT(at != MAP_FAILED);
        note_ = new (at) Note;
        errors_ = ::memfd_create("stderr", MFD_CLOEXEC);
    }
    ~SharedNote() {
        ::munmap(note_, sizeof(Note));
        ::close(errors_);
    }
    SharedNote(const SharedNote&) = delete;
    SharedNote& operator=(const SharedNote&) = delete;
    Note& operator*() noexcept { return *note_; }
    Note* operator->() noexcept { return note_; }

    void redirect_errors() const { ::dup2(errors_, STDERR_FILENO); }
    // What it said last.
    std::string last_words() const {
        std::string text(400, '\0');
        const off_t bytes = ::lseek(errors_, 0, SEEK_END);
        const off_t from = std::max<off_t>(0, bytes - static_cast<off_t>(text.size()));
        const ssize_t got = ::pread(errors_, text.data(), text.size(), from);
        text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        std::ranges::replace(text, '\n', ' ');
        return text;
    }

  private:
    Note* note_;
    int errors_;
};

void take_rare_counts([[maybe_unused]] Sums& sums) {
#ifdef RTRS_PLANTED
    for (std::size_t i = 0; i < rare_branches; ++i) sums.rare[i] = rtrs::rare_counts[i];
#endif
}

void run_one(const Job& job, std::uint64_t seed, Totals& totals) {
    Silence silence;
    const Options options = job.overrides.apply(Options::from_seed(seed));
    Outcome outcome = run(options, silence);
    if (job.check == Job::Check::repeatable && outcome.findings.empty()) {
        const Outcome again = run(options, silence);
        if (again.hash != outcome.hash) {
            outcome.findings.push_back({"the same seed gave another run", ""});
        }
    }
    totals.add(seed, outcome);
}

// In the child. ends: inclusive.
[[noreturn]] void work(const Job& job, std::uint64_t first, std::uint64_t last, SharedNote& note) {
    // A run that is broken off leaves nobody behind.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    note.redirect_errors();
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        note->current = seed;
        ::alarm(hang_seconds);
        run_one(job, seed, note->totals);
        take_rare_counts(note->totals.sums);
        if (job.after_finding == Job::After::stop && note->totals.findings > 0) break;
    }
    note->current = last + 1;
    ::_exit(0);
}

struct Child {
    std::uint64_t begin = 0;  // of the batch, in which it may be the second child
    std::uint64_t last = 0;
    std::unique_ptr<SharedNote> note;
};

class Runner {
  public:
    explicit Runner(const Job& job) : job_(job), next_(job.first), done_to_(job.first) {}
    Totals operator()();

  private:
    void start(std::uint64_t first, std::uint64_t last, std::uint64_t begin);
    void reap();
    void finish(Child& child, int status);
    void merge();
    // Of another job nothing is taken over.
    std::string what_runs() const { return "runs with" + job_.overrides.line(); }
    void load_state();
    void save_state() const;
    bool stopping() const {
        return job_.after_finding == Job::After::stop && (totals_.findings > 0 || found_);
    }

    const Job& job_;
    std::uint64_t next_;
    std::uint64_t done_to_;  // every seed before it is in totals_
    Totals totals_;
    std::map<std::uint64_t, std::pair<std::uint64_t, Totals>> pending_;  // by begin: end, sums
    std::map<std::uint64_t, Totals> partial_;  // batches of which a child died, by begin
    std::map<pid_t, Child> children_;
    bool found_ = false;
};

void Runner::start(std::uint64_t first, std::uint64_t last, std::uint64_t begin) {
    Child child{begin, last, std::make_unique<SharedNote>()};
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    RTRS_ASSERT(pid >= 0);
    if (pid == 0) work(job_, first, last, *child.note);
    children_.emplace(pid, std::move(child));
}

void Runner::reap() {
    int status = 0;
    const pid_t pid = ::wait(&status);
    const auto found = children_.find(pid);
    if (found == children_.end()) return;
    Child child = std::move(found->second);
    children_.erase(found);
    finish(child, status);
}

void Runner::finish(Child& child, int status) {
    Note& note = **child.note;
    Totals& sums = partial_[child.begin];
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        FoundText text;
        const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        text.set(note.current, hung ? "a run never ends" : "a run was aborted",
                 child.note->last_words());
        note.totals.add(text);
        ++note.totals.sums.seeds;
        ++note.totals.sums.failed_seeds;
    }
    sums.add(note.totals);
    if (note.totals.findings > 0) found_ = true;
    const std::uint64_t ran_to = std::max(note.current, child.begin) + 1;
    if (ran_to <= child.last && !stopping()) return start(ran_to, child.last, child.begin);
    pending_[child.begin] = {child.last + 1, sums};
    partial_.erase(child.begin);
    merge();
}

// In order, so that the state file can name one seed up to which all is done.
void Runner::merge() {
    while (!pending_.empty() &&
           (pending_.begin()->first == done_to_ || job_.after_finding == Job::After::stop)) {
        const auto batch = pending_.extract(pending_.begin());
        totals_.add(batch.mapped().second);
        done_to_ = batch.mapped().first;
    }
    save_state();
}

void Runner::load_state() {
    if (job_.state_file.empty()) return;
    std::ifstream file(job_.state_file);
    std::string what;
    std::string word;
    if (!std::getline(file, what) || what != what_runs()) return;
    std::uint64_t first = 0;
    std::uint64_t next = 0;
    if (!(file >> word >> first >> word >> next) || first != job_.first) return;
    const std::string rest((std::istreambuf_iterator<char>(file)), {});
    if (!from_text(rest, totals_.sums)) {
        totals_ = {};
        return;
    }
    next_ = done_to_ = next;
}

void Runner::save_state() const {
    if (job_.state_file.empty()) return;
    const std::string fresh = job_.state_file + ".new";
    {
        std::ofstream file(fresh);
        file << what_runs() << "\nfirst " << job_.first << "\nnext " << done_to_ << "\n"
             << to_text(totals_.sums);
        // Findings are for people: the seeds tell the rest.
        for (std::size_t i = 0; i < totals_.findings; ++i) {
            file << "found-" << totals_.found[i].seed << " 1\n";
        }
    }
    static_cast<void>(std::rename(fresh.c_str(), job_.state_file.c_str()));
}

Totals Runner::operator()() {
    load_state();
    while (next_ <= job_.last || !children_.empty()) {
        while (next_ <= job_.last && children_.size() < job_.jobs && !stopping()) {
            const std::uint64_t last = std::min(next_ + batch_seeds - 1, job_.last);
            start(next_, last, next_);
            next_ = last + 1;
        }
        if (children_.empty()) break;
        reap();
    }
    return totals_;
}

}  // namespace

Totals run_seeds(const Job& job) { return Runner(job)(); }

Totals run_isolated(const Options& options) {
    SharedNote note;
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    RTRS_ASSERT(pid >= 0);
    if (pid == 0) {
        note.redirect_errors();
        ::alarm(hang_seconds);
        Silence silence;
        note->totals.add(options.seed, run(options, silence));
        take_rare_counts(note->totals.sums);
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        FoundText text;
        text.set(options.seed, "a run was aborted", note.last_words());
        note->totals.add(text);
    }
    return note->totals;
}

}  // namespace failover
