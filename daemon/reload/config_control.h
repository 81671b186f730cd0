// Checks, compares, applies and takes back the configuration of a running daemon.
//
// It has the commands config_check, config_diff, config_apply and config_confirm of the control
// socket (docs/reference/control-protocol.md), and the reload that SIGHUP asks for. If the files
// have an error, or a change that must not be made, nothing is changed. A change that waits for its
// confirmation is taken back when the time is over, whoever is connected.
//
// OWNER: the daemon's frame. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/config/error.h"
#include "daemon/control/server.h"
#include "daemon/log/log.h"
#include "daemon/reload/config_change.h"
#include "rtrs/base/clock.h"

namespace rnbd {

// The daemon whose configuration is controlled.
class ConfigSubject {
  public:
    enum class Force : std::uint8_t { no, yes };
    // Reads the files and compares them with what runs; changes nothing. Without force, an object
    // that is in use may not be removed: its change then has a conflict.
    virtual std::expected<ConfigPlan, std::vector<ConfigError>> plan(Force force) = 0;
    // The main file.
    virtual const std::string& config_path() const noexcept = 0;
    // Settings without effect in the files that plan() has read last.
    virtual const std::vector<ConfigError>& warnings() const noexcept = 0;
    // The daemon ends: a step that looks repeatedly for its condition stops doing so, and fails.
    virtual void stop() = 0;

  protected:
    ~ConfigSubject() = default;
};

class ConfigControl {
  public:
    // changed: called after a change, and after a change was taken back. All arguments outlive
    // this.
    // piece_time: the work of a change that takes longer is done in pieces, between which the
    // daemon does its own.
    static constexpr rtrs::Duration piece_time_default = std::chrono::milliseconds(50);
    ConfigControl(rtrs::Clock& clock, ConfigSubject& subject, std::string daemon, Logger& log,
                  std::function<void()> changed, rtrs::Duration piece_time = piece_time_default);
    ~ConfigControl();
    ConfigControl(const ConfigControl&) = delete;
    ConfigControl& operator=(const ConfigControl&) = delete;

    // ASSUMES: this outlives the control server.
    void add_commands(ControlServer& control);
    // A change that is under way is finished first. The result is logged; done is called in any
    // case.
    void reload(std::function<void()> done);
    // From now on no change begins, and none is taken back. Steps of a change under way that were
    // not tried yet count as failed.
    void stop();

  private:
    struct Run;
    // A change that waits for its confirmation.
    struct Pending {
        std::function<ConfigPlan()> undo;
        rtrs::Instant until{};
    };

    std::vector<ConfigError> warnings() const;
    // As the subject's plan(); but objects that would be removed because a file has lost its text
    // stay.
    std::expected<ConfigPlan, std::vector<ConfigError>> checked_plan(ConfigSubject::Force force);
    void check(ControlReply reply);
    void diff(ControlReply reply);
    void apply(const nlohmann::json& arguments, ControlReply reply);
    void await_confirmation(const std::function<ConfigPlan()>& undo);
    void confirm(ControlReply reply);
    void reload_now(std::function<void()> done);
    // Carries out the plan; done gets the changes with their results.
    void run(ConfigPlan plan, std::function<void(const std::vector<ConfigChange>& changes)> done);
    void next_step();
    void step_done(std::uint64_t number, const ConfigStep::Result& result);
    void run_over();
    void fail_untried_steps(Run& run) const;
    void take_back();
    nlohmann::json document(const char* state, const std::vector<ConfigError>& errors,
                            const std::vector<ConfigChange>& changes) const;
    void log_changes(const std::vector<ConfigChange>& changes) const;
    void log_refusal(const std::vector<ConfigError>& errors,
                     const std::vector<ConfigChange>& changes) const;

    rtrs::Clock& clock_;
    ConfigSubject& subject_;
    std::string daemon_;
    Logger& log_;
    std::function<void()> changed_;
    std::unique_ptr<Run> run_;
    // The state of the newest step of the run; begins: its function has not returned yet.
    enum class Step : std::uint8_t { begins, waits, over };
    Step step_ = Step::over;
    std::uint64_t steps_begun_ = 0;
    rtrs::Timer step_timer_;
    const rtrs::Duration piece_time_;
    rtrs::Timer pause_timer_;  // between two steps
    // How long the change under way will wait for its confirmation when it is done; zero: not at
    // all.
    rtrs::Duration confirm_within_{};
    std::optional<Pending> pending_;
    rtrs::Timer confirm_timer_;
    std::vector<std::function<void()>> reloads_;  // asked for while a change was under way
    bool stopped_ = false;
};

}  // namespace rnbd
