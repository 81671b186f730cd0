// What the server tells rnbdctl: docs/reference/control-protocol.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rnbd-server/target.h"
#include "rtrs/server.h"

namespace rnbd {

// What a document is made of; owned by main, alive as long as the documents are asked for.
struct ServerState {
    const rtrs::Reactor& reactor;
    const rtrs::Server& server;
    const Target& target;
    rtrs::Instant started{};
    std::vector<std::string> addresses;  // "HOST:PORT" with real ports
    bool stopping = false;
};

nlohmann::json server_status(const ServerState& state);
nlohmann::json server_list(const ServerState& state);

}  // namespace rnbd
