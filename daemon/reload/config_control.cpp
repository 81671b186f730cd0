#include "daemon/reload/config_control.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/config/files.h"
#include "daemon/control/arguments.h"
#include "daemon/counted.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;

// A step that takes longer goes on, but the others do not wait for it any more.
constexpr rtrs::Duration step_time_max = std::chrono::seconds(30);
// Between two pieces of a change.
constexpr rtrs::Duration piece_pause = std::chrono::milliseconds(1);
constexpr rtrs::Duration confirm_time_max = std::chrono::hours(24);

bool in_conflict(const std::vector<ConfigChange>& changes) {
    return std::ranges::any_of(changes, [](const auto& one) { return !one.conflict.empty(); });
}

bool failed(const std::vector<ConfigChange>& changes) {
    return std::ranges::any_of(changes, [](const auto& one) { return !one.failure.empty(); });
}

// What cannot come is no reason to take away what is in its place.
void leave_out_conflicts(ConfigPlan& plan) {
    std::erase_if(plan.steps, [&](const ConfigStep& step) {
        return !plan.changes[step.change].conflict.empty();
    });
    for (ConfigChange& change : plan.changes) {
        if (!change.conflict.empty()) change.failure = std::exchange(change.conflict, {});
    }
}

using rtrs::in_seconds;

}  // namespace

struct ConfigControl::Run {
    ConfigPlan plan;
    std::size_t next = 0;
    std::function<void(const std::vector<ConfigChange>&)> done;
};

ConfigControl::ConfigControl(rtrs::Clock& clock, ConfigSubject& subject, std::string daemon,
                             Logger& log, std::function<void()> changed, rtrs::Duration piece_time)
    : clock_(clock),
      subject_(subject),
      daemon_(std::move(daemon)),
      log_(log),
      changed_(std::move(changed)),
      step_timer_(clock, this,
                  [](void* self) {
                      auto& control = *static_cast<ConfigControl*>(self);
                      control.step_done(control.steps_begun_,
                                        "it takes longer than 30 s, and goes on");
                  }),
      piece_time_(piece_time),
      pause_timer_(clock, this, rtrs::member_call<&ConfigControl::next_step>),
      confirm_timer_(clock, this, rtrs::member_call<&ConfigControl::take_back>) {}

ConfigControl::~ConfigControl() = default;

void ConfigControl::add_commands(ControlServer& control) {
    control.add_command("config_check", [this](ControlReply reply) { check(std::move(reply)); });
    control.add_command("config_diff", [this](ControlReply reply) { diff(std::move(reply)); });
    control.add_command("config_confirm",
                        [this](ControlReply reply) { confirm(std::move(reply)); });
    control.add_command("config_apply", [this](const json& arguments, ControlReply reply) {
        apply(arguments, std::move(reply));
    });
}

void ConfigControl::stop() {
    stopped_ = true;
    pending_.reset();
    confirm_timer_.disarm();
    subject_.stop();
}

namespace {

json to_json(const std::vector<ConfigError>& errors) {
    json list = json::array();
    for (const ConfigError& error : errors) {
        list.push_back({{"file", error.file},
                        {"line", error.line},
                        {"column", error.column},
                        {"key", error.key},
                        {"text", error.text}});
    }
    return list;
}

}  // namespace

json ConfigControl::document(const char* state, const std::vector<ConfigError>& errors,
                             const std::vector<ConfigChange>& changes) const {
    json objects = json::array();
    for (const ConfigChange& change : changes) objects.push_back(to_json(change));
    const json left =
        pending_
            ? json(in_seconds(std::max(pending_->until - clock_.now(), rtrs::Duration::zero())))
            : json();
    return {{"daemon", daemon_},
            {"file", subject_.config_path()},
            {"state", state},
            {"confirm_left_s", left},
            {"errors", to_json(errors)},
            {"warnings", to_json(warnings())},
            {"objects", std::move(objects)}};
}

std::vector<ConfigError> ConfigControl::warnings() const {
    std::vector<ConfigError> all = config_files_passed_over(subject_.config_path());
    all.insert(all.end(), subject_.warnings().begin(), subject_.warnings().end());
    return all;
}

std::expected<ConfigPlan, std::vector<ConfigError>> ConfigControl::checked_plan(
    ConfigSubject::Force force) {
    // Before the plan and after it: a file may get its text, or lose it, while the plan is made.
    std::vector<ConfigError> without_text = config_files_without_text(subject_.config_path());
    auto plan = subject_.plan(force);
    if (!plan) return plan;
    const bool takes = std::ranges::any_of(plan->changes, [](const ConfigChange& one) {
        return one.kind == ConfigChange::Kind::removed;
    });
    if (!takes) return plan;
    if (without_text.empty()) without_text = config_files_without_text(subject_.config_path());
    if (!without_text.empty()) return std::unexpected(std::move(without_text));
    return plan;
}

void ConfigControl::check(ControlReply reply) {
    const auto plan = checked_plan(ConfigSubject::Force::no);
    if (!plan) return reply.succeed(document("refused", plan.error(), {}));
    reply.succeed(document("good", {}, {}));
}

void ConfigControl::diff(ControlReply reply) {
    const auto plan = checked_plan(ConfigSubject::Force::no);
    if (!plan) return reply.succeed(document("refused", plan.error(), {}));
    const bool same = std::ranges::all_of(plan->changes, [](const auto& one) {
        return one.kind == ConfigChange::Kind::unchanged && one.drift.empty();
    });
    reply.succeed(document(same ? "same" : "differs", {}, plan->changes));
}

void ConfigControl::apply(const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const bool force = arguments.flag("force");
    const rtrs::Duration within =
        arguments.seconds("confirm_within_s", rtrs::Duration::zero(), confirm_time_max);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    if (stopped_) return reply.fail(ControlError::stopping, daemon_ + " is stopping");
    if (run_) {
        return reply.fail(ControlError::busy, "a change of the configuration is under way");
    }
    if (pending_) {
        return reply.fail(ControlError::busy,
                          "the last change waits for its confirmation: rnbdctl config confirm, or "
                          "wait until it is taken back");
    }
    auto plan = checked_plan(force ? ConfigSubject::Force::yes : ConfigSubject::Force::no);
    if (!plan || in_conflict(plan->changes)) {
        const std::vector<ConfigError> none;
        const auto& errors = plan ? none : plan.error();
        const auto changes = plan ? plan->changes : std::vector<ConfigChange>{};
        log_refusal(errors, changes);
        return reply.succeed(document("refused", errors, changes));
    }
    // What fails may have been done in part, or go on: that is taken back, too.
    const bool acts =
        std::ranges::any_of(plan->changes, [](const auto& one) { return one.acts(); });
    confirm_within_ = acts ? within : rtrs::Duration::zero();
    // The reply outlives this call: it is given when all is done. Nobody needs to wait for it.
    const auto later = std::make_shared<ControlReply>(std::move(reply));
    auto undo = plan->undo;
    run(std::move(*plan),
        [this, later, undo = std::move(undo)](const std::vector<ConfigChange>& changes) {
            log_changes(changes);
            await_confirmation(undo);
            later->succeed(document(failed(changes) ? "incomplete" : "applied", {}, changes));
        });
}

// The time counts from when all is done: nobody can judge a change before.
void ConfigControl::await_confirmation(const std::function<ConfigPlan()>& undo) {
    const rtrs::Duration within = std::exchange(confirm_within_, {});
    if (stopped_ || within == rtrs::Duration::zero()) return;
    pending_ = Pending{undo, clock_.now() + within};
    confirm_timer_.arm(pending_->until);
    log_.info("configuration: taken back in {:.9g} s, if it is not confirmed by then",
              rtrs::in_seconds(within));
}

void ConfigControl::confirm(ControlReply reply) {
    if (confirm_within_ > rtrs::Duration::zero()) {
        return reply.fail(ControlError::busy,
                          "the change is under way: it can be confirmed when it is done");
    }
    if (!pending_) {
        return reply.fail(ControlError::not_found, "no change waits for a confirmation");
    }
    pending_.reset();
    confirm_timer_.disarm();
    log_.info("configuration: confirmed");
    reply.succeed(document("confirmed", {}, {}));
}

void ConfigControl::reload(std::function<void()> done) {
    if (stopped_) return done();
    if (run_) return reloads_.push_back(std::move(done));
    reload_now(std::move(done));
}

void ConfigControl::reload_now(std::function<void()> done) {
    if (pending_) {
        log_.error("configuration: not read again: the last change waits for its confirmation");
        return done();
    }
    auto plan = checked_plan(ConfigSubject::Force::no);
    if (!plan || in_conflict(plan->changes)) {
        log_refusal(plan ? std::vector<ConfigError>{} : plan.error(),
                    plan ? plan->changes : std::vector<ConfigChange>{});
        return done();
    }
    run(std::move(*plan), [this, done = std::move(done)](const std::vector<ConfigChange>& changes) {
        log_changes(changes);
        done();
    });
}

void ConfigControl::run(ConfigPlan plan,
                        std::function<void(const std::vector<ConfigChange>&)> done) {
    for (const ConfigError& one : warnings()) log_.warn("{}", printable(to_string(one)));
    run_ = std::make_unique<Run>(Run{std::move(plan), 0, std::move(done)});
    next_step();
}

// A loop, and no recursion: thousands of exports may come at once.
void ConfigControl::next_step() {
    const auto pause_at = std::chrono::steady_clock::now() + piece_time_;
    while (!stopped_ && run_->next < run_->plan.steps.size()) {
        if (std::chrono::steady_clock::now() >= pause_at) {
            return pause_timer_.arm(clock_.now() + piece_pause);
        }
        const std::uint64_t number = ++steps_begun_;
        step_timer_.arm(clock_.now() + step_time_max);
        step_ = Step::begins;
        run_->plan.steps[run_->next].run(
            [this, number](const ConfigStep::Result& result) { step_done(number, result); });
        if (step_ == Step::begins) {
            step_ = Step::waits;
            return;
        }
    }
    run_over();
}

// number: of the step; one that ends after its time is not waited for any more.
void ConfigControl::step_done(std::uint64_t number, const ConfigStep::Result& result) {
    if (!run_ || number != steps_begun_ || step_ == Step::over) return;
    step_timer_.disarm();
    ConfigChange& change = run_->plan.changes[run_->plan.steps[run_->next].change];
    const auto add = [](std::string& known, const std::string& more) {
        if (!more.empty()) known += (known.empty() ? "" : "; ") + more;
    };
    add(change.failure, result.failure);
    add(change.loss, result.loss);
    ++run_->next;
    if (std::exchange(step_, Step::over) == Step::waits) next_step();
}

void ConfigControl::run_over() {
    const auto over = std::move(run_);
    fail_untried_steps(*over);
    over->plan.finished(over->plan.changes);
    over->done(over->plan.changes);
    changed_();
    if (stopped_) {
        for (const auto& done : std::exchange(reloads_, {})) done();
        return;
    }
    // Those that were asked for meanwhile are one.
    if (reloads_.empty()) return;
    reload_now([all = std::exchange(reloads_, {})] {
        for (const auto& done : all) done();
    });
}

// The daemon stops: else there are none.
void ConfigControl::fail_untried_steps(Run& run) const {
    const std::string why = daemon_ + " is stopping";
    for (; run.next < run.plan.steps.size(); ++run.next) {
        std::string& known = run.plan.changes[run.plan.steps[run.next].change].failure;
        if (known.empty()) known = why;
    }
}

void ConfigControl::take_back() {
    log_.warn("configuration: not confirmed in time: the change is taken back");
    const auto undo = std::move(pending_->undo);
    pending_.reset();
    ConfigPlan back = undo();
    leave_out_conflicts(back);
    for (const std::string& one : back.kept) {
        log_.warn("configuration: {}: changed by rnbdctl since, and stays as it is",
                  printable(one));
    }
    run(std::move(back),
        [this](const std::vector<ConfigChange>& changes) { log_changes(changes); });
}

void ConfigControl::log_changes(const std::vector<ConfigChange>& changes) const {
    std::size_t unchanged = 0;
    std::size_t failed = 0;
    for (const ConfigChange& change : changes) {
        const bool fails = !change.failure.empty() || !change.loss.empty();
        if (fails) ++failed;
        if (change.kind == ConfigChange::Kind::unchanged)
            ++unchanged;
        else if (fails)
            log_.error("configuration: {}", printable(to_string(change)));
        else
            log_.info("configuration: {}", printable(to_string(change)));
    }
    if (failed > 0)
        log_.error("configuration: applied, but not all of it: {} failed",
                   counted(failed, "change"));
    else
        log_.info("configuration: applied, {} unchanged", counted(unchanged, "object"));
}

void ConfigControl::log_refusal(const std::vector<ConfigError>& errors,
                                const std::vector<ConfigChange>& changes) const {
    for (const ConfigError& error : errors) log_.error("{}", printable(to_string(error)));
    for (const ConfigChange& change : changes) {
        if (!change.conflict.empty()) log_.error("configuration: {}", printable(to_string(change)));
    }
    log_.error("configuration: refused; nothing is changed");
}

}  // namespace rnbd
