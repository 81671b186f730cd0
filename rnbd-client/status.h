// What the client tells rnbdctl: docs/reference/control-protocol.md.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "rnbd-client/client.h"
#include "rtrs/base/clock.h"

namespace rnbd {

struct ClientState {
    const rtrs::Reactor& reactor;
    const Client& client;
    rtrs::Instant started{};
    bool stopping = false;
};

nlohmann::json client_status(const ClientState& state);
nlohmann::json client_list(const ClientState& state);

}  // namespace rnbd
