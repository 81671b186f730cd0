// The parts of a configuration that both daemons have.
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

// Longest path of a Unix socket (sun_path without its NUL).
constexpr std::size_t socket_path_bytes_max = 107;

// What is said of a daemon as a whole.
struct DaemonSettings {
    // Path of the control socket, at most 107 bytes.
    std::string control;
    // How long the loop may look for news before it sleeps (rtrs/reactor.h): 0 (never) .. 1 ms.
    rtrs::Duration busy_poll = std::chrono::microseconds(100);
    // Sends may leave by a system call of their own (rtrs/reactor.h).
    bool prompt_sends = true;
    // Where the daemon runs; empty: wherever it may.
    CpuList cpus;
    // Threads that carry connections and requests (rtrs/reactor_group.h), 1..64.
    std::uint32_t workers = 1;
    // Where metrics are served: "HOST:PORT", canonical, or "unix:/PATH"; empty: nowhere.
    std::string metrics;
    LogLevel log_level = LogLevel::info;
    // What the files say in vain.
    std::vector<ConfigError> warnings{};
};

// busy_poll, prompt_sends
void read_loop_settings(ConfigMap& map, DaemonSettings& settings);
// cpus, workers, metrics, log; after `control`.
void read_process_settings(ConfigMap& map, DaemonSettings& settings);

// "ro", "rw", "migration".
ConfigType<AccessMode> config_access();
const char* to_word(AccessMode access) noexcept;
ConfigType<LogLevel> config_log_level();
ConfigType<std::string> config_socket_path();

// heartbeat: {interval, timeout}; the timeout is at least twice the interval, which goes by it if
// the file does not say. Whether it says the timeout.
bool read_heartbeat(ConfigMap& map, rtrs::Duration& interval, rtrs::Duration& timeout);

}  // namespace rnbd
