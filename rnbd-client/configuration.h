// The client's configuration while it runs: reads the files again, and plans the steps that make
// the client what they say.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/log/level.h"
#include "daemon/reload/config_control.h"
#include "rnbd-client/client.h"
#include "rnbd-client/config.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class ClientConfiguration final : public ConfigSubject {
  public:
    // started: the configuration that the daemon was started with. client: outlives this.
    ClientConfiguration(std::string path, ClientConfig started, Client& client,
                        std::function<void(LogLevel)> use_log_level);

    std::expected<ConfigPlan, std::vector<ConfigError>> plan(Force force) override;
    const std::string& config_path() const noexcept override { return path_; }
    const std::vector<ConfigError>& warnings() const noexcept override { return warnings_; }
    void stop() override;

  private:
    enum class How : std::uint8_t { gently, by_force };

    ClientConfig running() const;
    ConfigPlan plan_towards(const ClientConfig& wanted, How how);
    // A plan that was carried out, and its result.
    struct Applied {
        ClientConfig was, before, wanted;
        std::vector<ConfigChange> changes;
    };
    ConfigPlan plan_back(const Applied& applied);
    static ClientConfig goal_of_rollback(const ClientConfig& now, const Applied& applied,
                                         std::vector<std::string>& kept);
    void find_conflicts(std::vector<ConfigChange>& changes, How how) const;
    // These add steps, in this order: for devices and sessions that are removed, sessions that are
    // added and that stay, paths of the sessions that stay, and devices that are added.
    void add_leaving_steps(ConfigPlan& plan, How how);
    void add_session_steps(ConfigPlan& plan, const ClientConfig& wanted);
    void add_path_steps(ConfigPlan& plan, const ClientConfig& wanted, How how);
    void map(const ClientConfig::Device& device, const std::optional<ClientConfig::Device>& old,
             const ConfigStep::Done& done);
    bool is_coming(const std::string& device) const noexcept;
    void add_device_steps(ConfigPlan& plan, const ClientConfig& wanted);
    void change_session(const ConfigChange& change, const ClientConfig::Session& wanted,
                        const ConfigStep::Done& done);
    void remove_path(const std::string& session, const std::string& label,
                     const ConfigStep::Done& done);
    void wait_for_end(const std::string& session, const std::string& label,
                      const ConfigStep::Done& done);
    struct Replacement;
    void remove_when_replaced(const std::string& session, const std::string& label,
                              const std::shared_ptr<Replacement>& replacement, How how,
                              const ConfigStep::Done& done);
    void keep_path(ClientConfig& wanted, const std::string& object) const;
    // One that was added and could not be made is none of the files' objects yet.
    void forget_path(ClientConfig& wanted, const std::string& object) const;
    void finished(ClientConfig wanted, const std::vector<ConfigChange>& changes);

    std::string path_;
    std::vector<ConfigError> warnings_;
    ClientConfig settings_;  // the lists are not kept here
    ClientConfig before_;
    Client& client_;
    std::function<void(LogLevel)> use_log_level_;
    // Devices that are mapped when those in their place are gone, which may outlast the change.
    std::vector<std::shared_ptr<const ClientConfig::Device>> coming_;
    // A step that has to look repeatedly until its condition is met.
    std::function<void()> again_;
    rtrs::Timer again_timer_;
    bool stopped_ = false;
};

}  // namespace rnbd
