// What the server tells rnbdctl: docs/reference/control-protocol.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rnbd-server/target.h"
#include "rtrs/server.h"

namespace rnbd {

// What a document is made of; owned by main, alive as long as the documents are asked for.
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
        std::string reason{};   // why it waits; empty: it listens
        rtrs::Instant since{};
        std::optional<rtrs::Instant> next_attempt{};
    };
    std::vector<Listening> listening;
    std::optional<rtrs::Instant> stopping{};  // since when
};

nlohmann::json server_status(const ServerState& state);
// name: only this export; empty: all.
nlohmann::json server_exports(const ServerState& state, const std::string& name);
// Items of daemon/control/statistics.h.
nlohmann::json server_statistics(const ServerState& state);
// How far draining is.
nlohmann::json server_drain(const ServerState& state);

}  // namespace rnbd
