// How much a daemon says, shown and set while it runs.
#pragma once

#include <string>

#include "daemon/control/server.h"

namespace rnbd {

// `log`. daemon: "rnbd-server" or "rnbd-client".
void add_log_command(ControlServer& control, std::string daemon);

}  // namespace rnbd
