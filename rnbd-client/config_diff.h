// What differs between two configurations of the client. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/reload/config_change.h"
#include "rnbd-client/config.h"

namespace rnbd {

// Objects "session", "path" (of sessions that stay: "host-a 10.0.0.1:1235"; only what differs),
// "device" and "setting". running, before, wanted: daemon/reload/config_change.h. No conflicts:
// what is in use is not known here.
std::vector<ConfigChange> client_config_diff(const ClientConfig& running,
                                             const ClientConfig& before,
                                             const ClientConfig& wanted);

// The name of a path's object, and back.
std::string path_object_name(const std::string& session, const ClientConfig::Path& path);
std::pair<std::string, std::string> session_and_label(const std::string& path_object);

}  // namespace rnbd
