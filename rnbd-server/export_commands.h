// The commands of the control socket that show and change exports, and drain the server
// (docs/reference/control-protocol.md).
//
// OWNER: the control server owns the handlers, which refer to target and state.
// THREAD: the reactor's (rtrs/reactor.h), which also calls the handlers.
// ERRORS: a handler answers a request that fails with a ControlFailure (daemon/control/protocol.h);
// all commands but `exports` fail with `stopping` while the daemon stops.
#pragma once

#include "daemon/control/server.h"
#include "rnbd-server/status.h"
#include "rnbd-server/target.h"

namespace rnbd {

// Adds the commands to control. target, state: outlive control.
void add_export_commands(ControlServer& control, Target& target, const ServerState& state);

}  // namespace rnbd
