// What rnbdctl may ask of rnbd-client: docs/reference/control-protocol.md.
#pragma once

#include <string>

#include "daemon/control/server.h"
#include "rnbd-client/client.h"
#include "rnbd-client/status.h"

namespace rnbd {

// state, client: outlive control. socket_folder: where a mapped device's socket goes that names no
// address.
void add_client_commands(ControlServer& control, Client& client, const ClientState& state,
                         std::string socket_folder);

}  // namespace rnbd
