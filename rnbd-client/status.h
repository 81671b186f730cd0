// The documents that the client gives rnbdctl (docs/reference/control-protocol.md). They are made
// anew at each call; nothing is kept.
//
// OWNER: the caller of each function owns the document.
// THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none; what does not exist is null, where the function says so.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "daemon/memory_shortage.h"
#include "rnbd-client/client.h"
#include "rnbd-client/server_views.h"
#include "rtrs/base/clock.h"

namespace rnbd {

// What the documents are made of.
// OWNER: the daemon (main); it outlives the control server and the metrics server.
struct ClientState {
    rtrs::Reactor& reactor;
    const Client& client;
    rtrs::Instant started{};
    std::optional<rtrs::Instant> stopping{};  // since when the daemon is stopping; none: it is not
    MemoryShortage shortage{};
};

// views: the answers of the servers, if they were asked.
nlohmann::json client_status(const ClientState& state, const ServerViews& views = {});
// The items for daemon/control/statistics.h.
nlohmann::json client_statistics(const ClientState& state);
nlohmann::json client_list(const ClientState& state);
// The sessions of client_status(): the one with this name, or all if the name is empty. Null if no
// session has this name.
nlohmann::json client_paths(const ClientState& state, const std::string& session);

// Parts of the documents above.
nlohmann::json describe_session(Client::Session& session, rtrs::Instant now,
                                const ServerViews& views = {});
nlohmann::json describe_device(Mapping& mapping, rtrs::Instant now);

}  // namespace rnbd
