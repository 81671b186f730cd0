// The frame: the life of a daemon, the same for both. Command line, configuration, log, reactor,
// signals, control socket, notifications to the service manager, the loop, reloads, an orderly
// stop.
//
//   int main(int argc, char** argv) {
//       return run_daemon<ServerConfig, Daemon>({.description = {...}, ...}, argc, argv);
//   }
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/command_line.h"
#include "daemon/config/common.h"
#include "daemon/config/error.h"
#include "daemon/config/files.h"
#include "daemon/control/server.h"
#include "daemon/log/level.h"
#include "daemon/memory_shortage.h"
#include "daemon/metrics/text.h"
#include "daemon/reload/config_control.h"
#include "rtrs/reactor.h"

namespace rnbd {

// What the frame provides for the work.
struct DaemonContext {
    rtrs::Reactor& reactor;  // the first, if there are several workers
    std::string config_path;
    // Applies the log level of a new configuration. A level on the command line takes precedence.
    std::function<void(LogLevel)> use_log_level;
    MemoryShortage shortage;
};

// What a daemon does between its start and its end. THREAD: the reactor's (rtrs/reactor.h).
class DaemonWork {
  public:
    virtual ~DaemonWork() = default;
    // Adds its commands and begins to serve. The error is a sentence that names what could not be
    // set up, and the process ends at once. control: outlives stop().
    virtual std::expected<void, std::string> start(ControlServer& control) = 0;
    // One line for `systemctl status`. Called once the daemon has started.
    virtual std::string status() const = 0;
    virtual ConfigSubject& configuration() noexcept = 0;
    // Makes the files of its Unix sockets anew that others have removed, and logs that.
    virtual void listen_again() {}
    // Removes the files of its Unix sockets, when the daemon could not start and ends without
    // stop().
    virtual void remove_files() noexcept {}
    // Finishes requests in flight, then calls done. Called once.
    virtual void stop(std::function<void()> done) = 0;
    // Adds its metric families with their present values.
    virtual void metrics(MetricsText& text) = 0;
};

struct DaemonProgram {
    DaemonDescription description;
    // The subsystem that the frame logs as: "rnbd.server".
    std::string log;
    // All areas that the daemon may log as (daemon/log/log.h), so that the level of each can be set
    // before it has said anything.
    std::vector<std::string> log_areas;
    // Whether its memory is to stay in memory.
    LockMemory lock_memory = LockMemory::no;
    // With how many requests in flight its workers poll before they sleep (busy_poll).
    rtrs::Reactor::InFlight polls_for{};
};

// What the frame has to know about the types Config and Work below.
struct DaemonTypes {
    // Reads the configuration and keeps it for the others.
    std::function<std::expected<DaemonSettings, std::vector<ConfigError>>(const std::string& path)>
        load;
    // Called after load(): the options for each worker's reactor.
    std::function<rtrs::Reactor::Options()> reactor_options;
    // Makes the work. Called after load(), and after the log was set up.
    std::function<std::unique_ptr<DaemonWork>(const DaemonContext& context)> make;
};
int run_daemon(const DaemonProgram& program, const DaemonTypes& types, int argc,
               const char* const* argv);

// Config: DaemonSettings and further settings, for load_config(). Work: a DaemonWork that is made
// of a DaemonContext and a Config, which outlives it; it has Work::reactor_options(Config).
//
// Returns the exit code when the daemon has stopped or could not start.
// ASSUMES: no thread was started yet.
template <typename Config, typename Work>
int run_daemon(const DaemonProgram& program, int argc, const char* const* argv) {
    std::optional<Config> config;
    const DaemonTypes types{
        .load = [&](const std::string& path)
            -> std::expected<DaemonSettings, std::vector<ConfigError>> {
            auto loaded = load_config<Config>(path, PipeEnd::awaited);
            if (!loaded) return std::unexpected(std::move(loaded.error()));
            config = std::move(*loaded);
            return DaemonSettings(*config);
        },
        .reactor_options = [&] { return Work::reactor_options(*config); },
        .make =
            [&](const DaemonContext& context) { return std::make_unique<Work>(context, *config); }};
    return run_daemon(program, types, argc, argv);
}

}  // namespace rnbd
