// What differs between two configurations of the server. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/reload/config_change.h"
#include "rnbd-server/config.h"

namespace rnbd {

// Objects "listener" ("tcp 0.0.0.0:1235"), "export" and "setting". running, before, wanted:
// daemon/reload/config_change.h. A size that was changed at run time counts only if the file says
// another one than before. No conflicts: what is in use is not known here.
std::vector<ConfigChange> server_config_diff(const ServerConfig& running,
                                             const ServerConfig& before,
                                             const ServerConfig& wanted);

// "tcp 0.0.0.0:1235"; where several have port 0, the second of an address is "tcp 0.0.0.0:0 (2)".
std::vector<std::string> listener_names(const std::vector<ServerConfig::Listen>& listen);

}  // namespace rnbd
