// The server's configuration while it runs: reads the files again, and plans the steps that make
// the server what they say.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/log/level.h"
#include "daemon/reload/config_control.h"
#include "rnbd-server/config.h"
#include "rnbd-server/listeners.h"
#include "rnbd-server/target.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class ServerConfiguration final : public ConfigSubject {
  public:
    // started: the configuration that the daemon was started with. All references outlive this.
    ServerConfiguration(rtrs::Clock& clock, std::string path, ServerConfig started, Target& target,
                        Listeners& listeners, std::function<void(LogLevel)> use_log_level);

    std::expected<ConfigPlan, std::vector<ConfigError>> plan(Force force) override;
    const std::string& config_path() const noexcept override { return path_; }
    const std::vector<ConfigError>& warnings() const noexcept override { return warnings_; }
    void stop() override;

  private:
    class Exports;
    class Staying;
    enum class How : std::uint8_t { gently, by_force, back };

    ServerConfig running() const;
    ConfigPlan plan_towards(const ServerConfig& wanted, How how);
    // A plan that was carried out, and its result.
    struct Applied {
        ServerConfig was, before, wanted;
        std::vector<ConfigChange> changes;
    };
    ConfigPlan plan_back(const Applied& applied);
    void find_conflicts(std::vector<ConfigChange>& changes, const Exports& wanted, How how);
    std::string conflict_of(const ConfigChange& change, const ServerConfig::Export* wanted,
                            How how);
    // These add the steps for listeners, for exports that are removed, for exports that stay, and
    // for exports that are added.
    void add_listener_steps(ConfigPlan& plan, const ServerConfig& wanted, Listeners::Absent absent);
    std::vector<std::uint32_t> in_the_way_of(const ConfigChange& coming,
                                             const ServerConfig::Listen& listen,
                                             const std::vector<ConfigChange>& changes) const;
    void open_in_place_of(const std::vector<std::uint32_t>& in_the_way,
                          const ServerConfig::Listen& listen, Listeners::Absent absent,
                          const ConfigStep::Done& done);
    struct Closed {
        std::uint32_t portal = 0;
        ServerConfig::Listen listen;
    };
    void open_again(std::vector<Closed> closed, std::string failure, const ConfigStep::Done& done);
    void open_listener(const ServerConfig::Listen& listen, Listeners::Absent absent,
                       std::optional<std::uint32_t> again, rtrs::Instant deadline,
                       const ConfigStep::Done& done);
    void add_leaving_steps(ConfigPlan& plan, How how);
    void add_changing_steps(ConfigPlan& plan, const Exports& wanted);
    void add_coming_steps(ConfigPlan& plan, const Exports& wanted);
    void change_export(const ConfigChange& change, const ServerConfig::Export& wanted,
                       const ConfigStep::Done& done);
    void finished(ServerConfig wanted, const std::vector<ConfigChange>& changes);

    rtrs::Clock& clock_;
    std::string path_;
    std::vector<ConfigError> warnings_;
    // Settings that cannot change at run time are those of the start. Lists are not kept here.
    ServerConfig settings_;
    ServerConfig before_;
    Target& target_;
    Listeners& listeners_;
    std::function<void(LogLevel)> use_log_level_;
    // Tries again to open a listener whose address is still in use.
    std::function<void()> again_;
    rtrs::Timer again_timer_;
    bool stopped_ = false;
};

}  // namespace rnbd
