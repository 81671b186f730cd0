// The differences between two configurations of the client. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/reload/config_change.h"
#include "rnbd-client/config.h"

namespace rnbd {

// The objects of the changes are "session", "path" (of sessions that stay, as "host-a
// 10.0.0.1:1235"; only paths that differ), "device" and "setting". running, before, wanted: see
// daemon/reload/config_change.h. The changes have no conflicts, because what is in use is not known
// here.
std::vector<ConfigChange> client_config_diff(const ClientConfig& running,
                                             const ClientConfig& before,
                                             const ClientConfig& wanted);

// The object name of a path, and the reverse.
std::string path_object_name(const std::string& session, const ClientConfig::Path& path);
std::pair<std::string, std::string> session_and_label(const std::string& path_object);

}  // namespace rnbd
