// The documents that the server gives rnbdctl (docs/reference/control-protocol.md). They are made
// anew at each call; nothing is kept.
//
// OWNER: the caller of each function owns the document.
// THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/memory_shortage.h"
#include "rnbd-server/target.h"
#include "rtrs/server.h"

namespace rnbd {

// What the documents are made of.
// OWNER: the daemon (main); it outlives the control server and the metrics server.
struct ServerState {
    rtrs::Reactor& reactor;
    const rtrs::Server& server;
    const Target& target;
    rtrs::Instant started{};
    struct Listening {
        std::string fabric{};
        std::string device{};
        std::string address{};  // "HOST:PORT" with the real port
        std::string clients{};  // "any", "extended" or "kernel"
        std::string reason{};   // why the listener waits; empty: it listens
        rtrs::Instant since{};
        std::optional<rtrs::Instant> next_attempt{};
    };
    std::vector<Listening> listening;
    std::optional<rtrs::Instant> stopping{};  // since when the daemon is stopping; none: it is not
    MemoryShortage shortage{};
};

nlohmann::json server_status(const ServerState& state);
// name: only this export; empty: all exports. The list is empty if no export has this name.
nlohmann::json server_exports(const ServerState& state, const std::string& name);
// The items for daemon/control/statistics.h.
nlohmann::json server_statistics(const ServerState& state);
// Whether the server is draining, and how far it has come.
nlohmann::json server_drain(const ServerState& state);

}  // namespace rnbd
