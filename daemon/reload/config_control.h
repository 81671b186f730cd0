// The configuration of a running daemon: looked at, compared, applied, taken back.
//
// Commands config_check, config_diff, config_apply and config_confirm of the control socket
// (docs/reference/control-protocol.md), and the reload that SIGHUP asks for. Files with an error or
// with a change that must not be made change nothing. A change that waits for its confirmation is
// taken back when the time is over, whoever is connected.
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

// What the daemon is to this.
class ConfigSubject {
  public:
    enum class Force : std::uint8_t { no, yes };
    // Reads the files and compares them with what runs. Nothing is changed. Without force what is
    // in use may not go: that is a conflict of its change.
    virtual std::expected<ConfigPlan, std::vector<ConfigError>> plan(Force force) = 0;
    // The main file.
    virtual const std::string& config_path() const noexcept = 0;
    // What the files that plan() has read last say in vain.
    virtual const std::vector<ConfigError>& warnings() const noexcept = 0;
    // The daemon ends: a step that looks again and again does so no more, and fails.
    virtual void stop() = 0;

  protected:
    ~ConfigSubject() = default;
};

class ConfigControl {
  public:
    // changed: after a change, and after one was taken back. All outlive this.
    ConfigControl(rtrs::Clock& clock, ConfigSubject& subject, std::string daemon, Logger& log,
                  std::function<void()> changed);
    ~ConfigControl();
    ConfigControl(const ConfigControl&) = delete;
    ConfigControl& operator=(const ConfigControl&) = delete;

    // ASSUMES: this outlives the control server.
    void add_commands(ControlServer& control);
    // What goes on is finished first. Results go to the log; done is called in any case.
    void reload(std::function<void()> done);
    // From now on nothing begins, and nothing is taken back. Steps of what goes on that were not
    // tried yet have failed.
    void stop();

  private:
    struct Run;
    // A change that waits for its confirmation.
    struct Pending {
        std::function<ConfigPlan()> undo;
        rtrs::Instant until{};
    };

    std::vector<ConfigError> warnings() const;
    // As the subject's; but what goes because a file has lost its text stays.
    std::expected<ConfigPlan, std::vector<ConfigError>> checked_plan(ConfigSubject::Force force);
    void check(ControlReply reply);
    void diff(ControlReply reply);
    void apply(const nlohmann::json& arguments, ControlReply reply);
    void await_confirmation(const std::function<ConfigPlan()>& undo);
    void confirm(ControlReply reply);
    void reload_now(std::function<void()> done);
    // Carries it out; done gets the changes with what became of them.
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
    // The newest step of the run; begins: its function has not returned.
    enum class Step : std::uint8_t { begins, waits, over };
    Step step_ = Step::over;
    std::uint64_t steps_begun_ = 0;
    rtrs::Timer step_timer_;
    // Of the change under way: how long it waits for its confirmation when it is done; zero: it
    // does not.
    rtrs::Duration confirm_within_{};
    std::optional<Pending> pending_;
    rtrs::Timer confirm_timer_;
    std::vector<std::function<void()>> reloads_;  // asked for while a change was under way
    bool stopped_ = false;
};

}  // namespace rnbd
