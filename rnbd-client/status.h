// What the client tells rnbdctl: docs/reference/control-protocol.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "rnbd-client/client.h"
#include "rnbd-client/server_views.h"
#include "rtrs/base/clock.h"

namespace rnbd {

struct ClientState {
    rtrs::Reactor& reactor;
    const Client& client;
    rtrs::Instant started{};
    std::optional<rtrs::Instant> stopping{};  // since when
};

// views: what the servers say, if they were asked.
nlohmann::json client_status(const ClientState& state, const ServerViews& views = {});
// Items of daemon/control/statistics.h.
nlohmann::json client_statistics(const ClientState& state);
nlohmann::json client_list(const ClientState& state);
// The sessions of the status, or the one of this name. Null if there is none of it.
nlohmann::json client_paths(const ClientState& state, const std::string& session);

// Parts of the above.
nlohmann::json describe_session(Client::Session& session, rtrs::Instant now,
                                const ServerViews& views = {});
nlohmann::json describe_device(Mapping& mapping, rtrs::Instant now);

}  // namespace rnbd
