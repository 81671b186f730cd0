// The parts of a configuration that both daemons have.
#pragma once

#include <string>

#include "daemon/config/cpu_list.h"
#include "daemon/config/reader.h"
#include "daemon/log/level.h"
#include "rnbd/messages.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// Longest path of a Unix socket (sun_path without its NUL).
constexpr std::size_t socket_path_bytes_max = 107;

// "ro", "rw", "migration".
ConfigType<AccessMode> config_access();
const char* to_word(AccessMode access) noexcept;
ConfigType<LogLevel> config_log_level();
ConfigType<std::string> config_socket_path();

// heartbeat: {interval, timeout}; the timeout is at least twice the interval.
void read_heartbeat(ConfigMap& map, rtrs::Duration& interval, rtrs::Duration& timeout);
// log: {level}
void read_log(ConfigMap& map, LogLevel& level);
// busy_poll: 0us to 1ms (rtrs::Reactor::set_busy_poll).
ConfigType<rtrs::Duration> config_busy_poll();
// cpus: "0-3,8".
ConfigType<CpuList> config_cpus();
// workers: 1..64 (rtrs::ReactorGroup).
ConfigType<std::uint32_t> config_workers();
// metrics: {listen}. "HOST:PORT", canonical, or "unix:/PATH"; empty: nowhere.
void read_metrics(ConfigMap& map, std::string& listen);
// Two sockets have two paths. control: the path of the daemon's.
void check_metrics_apart(ConfigMap& map, const std::string& listen, const std::string& control);

}  // namespace rnbd
