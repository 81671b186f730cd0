// The command that shows and sets the log levels of a running daemon.
#pragma once

#include <string>

#include "daemon/control/server.h"

namespace rnbd {

// Adds the command `log`. daemon: "rnbd-server" or "rnbd-client".
void add_log_command(ControlServer& control, std::string daemon);

}  // namespace rnbd
