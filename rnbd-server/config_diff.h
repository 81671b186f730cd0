// The differences between two configurations of the server. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/reload/config_change.h"
#include "rnbd-server/config.h"

namespace rnbd {

// The objects of the changes are "listener" ("tcp 0.0.0.0:1235"), "export" and "setting". running,
// before, wanted: see daemon/reload/config_change.h. A size that was changed at run time is a
// difference only if the file gives another size than before. The changes have no conflicts,
// because what is in use is not known here.
std::vector<ConfigChange> server_config_diff(const ServerConfig& running,
                                             const ServerConfig& before,
                                             const ServerConfig& wanted);

// The names of the listeners, as "tcp 0.0.0.0:1235". If several have the same address and port 0,
// the second one is "tcp 0.0.0.0:0 (2)".
std::vector<std::string> listener_names(const std::vector<ServerConfig::Listen>& listen);

}  // namespace rnbd
