// The commands that rnbdctl can send to rnbd-client (docs/reference/control-protocol.md).
//
// OWNER: the control server owns the handlers, which refer to client and state.
// THREAD: the reactor's (rtrs/reactor.h), which also calls the handlers.
// ERRORS: a handler answers a request that fails with a ControlFailure (daemon/control/protocol.h).
#pragma once

#include <string>

#include "daemon/control/server.h"
#include "rnbd-client/client.h"
#include "rnbd-client/status.h"

namespace rnbd {

// Adds the commands to control. state, client: outlive control. socket_folder: the folder for the
// socket of a mapped device whose request names no address.
void add_client_commands(ControlServer& control, Client& client, const ClientState& state,
                         std::string socket_folder);

}  // namespace rnbd
