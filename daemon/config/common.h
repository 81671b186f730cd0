// The parts of a configuration that both daemons have in common.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/config/cpu_list.h"
#include "daemon/config/reader.h"
#include "daemon/log/level.h"
#include "rnbd/messages.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// The longest path of a Unix socket (sun_path without its NUL).
constexpr std::size_t socket_path_bytes_max = 107;

// The settings of a daemon as a whole.
struct DaemonSettings {
    // Path of the control socket, at most 107 bytes.
    std::string control;
    // How long the loop may poll for events before it sleeps (rtrs/reactor.h): 0 (never) .. 1 ms.
    rtrs::Duration busy_poll = std::chrono::microseconds(100);
    // Sends may use a system call of their own (rtrs/reactor.h).
    bool prompt_sends = true;
    // The loop's thread is of SCHED_BATCH while that helps (rtrs/reactor.h).
    bool batch_scheduling = true;
    // The processors that the daemon uses; empty: all that it may use.
    CpuList cpus;
    // Threads that carry connections and requests (rtrs/reactor_group.h), 1..64.
    std::uint32_t workers = 1;
    // The address at which metrics are served: "HOST:PORT", canonical, or "unix:/PATH"; empty:
    // none.
    std::string metrics;
    LogLevel log_level = LogLevel::info;
    // Settings in the files that have no effect.
    std::vector<ConfigError> warnings{};
};

// Reads busy_poll, prompt_sends and batch_scheduling.
void read_loop_settings(ConfigMap& map, DaemonSettings& settings);
// Reads cpus, workers, metrics and log; called after `control` was read.
void read_process_settings(ConfigMap& map, DaemonSettings& settings);

// "ro", "rw", "migration".
ConfigType<AccessMode> config_access();
const char* to_word(AccessMode access) noexcept;
ConfigType<LogLevel> config_log_level();
ConfigType<std::string> config_socket_path();

// Reads heartbeat: {interval, timeout}. The timeout is at least twice the interval; if the file
// does not give the interval, it is derived from the timeout. Returns whether the file gives the
// timeout.
bool read_heartbeat(ConfigMap& map, rtrs::Duration& interval, rtrs::Duration& timeout);

}  // namespace rnbd
