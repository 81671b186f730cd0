// Commands of the control socket that look at and change exports, and drain the server
// (docs/reference/control-protocol.md).
#pragma once

#include "daemon/control/server.h"
#include "rnbd-server/status.h"
#include "rnbd-server/target.h"

namespace rnbd {

// target, state: outlive the control server.
void add_export_commands(ControlServer& control, Target& target, const ServerState& state);

}  // namespace rnbd
