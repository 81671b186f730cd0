#include "rnbd-server/status.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "daemon/version.h"

namespace rnbd {
namespace {

using nlohmann::json;

double seconds(rtrs::Duration duration) { return std::chrono::duration<double>(duration).count(); }

const char* kind_of(StorageOptions::Kind kind) {
    switch (kind) {
        case StorageOptions::Kind::path:
            return "path";
        case StorageOptions::Kind::memory:
            return "memory";
        case StorageOptions::Kind::null:
            return "null";
    }
    return "?";
}

json describe(const Volume& volume, rtrs::Instant now) {
    const StorageOptions& storage = volume.config().storage;
    json opens = json::array();
    for (const auto& open : volume.opens()) {
        opens.push_back({{"session", open->session}, {"access", to_string(open->access)}});
    }
    const bool ready = volume.state() == Volume::State::ready;
    return {{"name", volume.name()},
            {"kind", kind_of(storage.kind)},
            {"path", storage.path},
            {"delayed", storage.delay.has_value()},
            {"size_bytes", ready ? volume.geometry().size_bytes : storage.size_bytes.value_or(0)},
            {"block_size", storage.logical_block_bytes},
            {"io", storage.io == StorageOptions::Io::direct ? "direct" : "buffered"},
            {"state", to_string(volume.state())},
            {"reason", volume.reason()},
            {"age_s", seconds(now - volume.since())},
            {"opens", opens}};
}

json describe(const rtrs::ServerSession& session, rtrs::Instant now) {
    const rtrs::ServerSessionStatus status = session.status();
    const SessionStatistics& done = Target::statistics(session);
    json paths = json::array();
    bool connected = false;
    for (const rtrs::ServerPathStatus& path : status.paths) {
        connected = connected || path.state == "connected";
        paths.push_back({{"local", path.local},
                         {"remote", path.remote},
                         {"fabric", path.fabric},
                         {"connections", path.connections},
                         {"state", path.state},
                         {"age_s", seconds(now - path.since)},
                         {"heartbeat_age_s", seconds(now - path.last_received)}});
    }
    return {{"name", status.name},
            {"id", status.id},
            {"peer", status.peer},
            {"state", connected ? "connected" : "connecting"},
            {"age_s", seconds(now - status.since)},
            {"paths", paths},
            {"queue_depth", status.queue_depth},
            {"max_io_bytes", status.max_io_bytes},
            {"in_flight", status.in_flight},
            {"protection", rtrs::to_string(status.protection)},
            {"stale", status.stale},
            {"answered", status.answered},
            {"waited", status.waited},
            {"reads", done.reads},
            {"writes", done.writes},
            {"others", done.other},
            {"read_bytes", done.read_bytes},
            {"write_bytes", done.write_bytes},
            {"errors", done.errors},
            {"features", json::object()}};
}

}  // namespace

json server_status(const ServerState& state) {
    const rtrs::Instant now = state.reactor.now();
    json listen = json::array();
    for (const std::string& address : state.addresses) {
        listen.push_back({{"fabric", "tcp"}, {"address", address}});
    }
    json exports = json::array();
    for (const auto& volume : state.target.volumes()) exports.push_back(describe(*volume, now));
    json sessions = json::array();
    for (const rtrs::ServerSession* session : state.server.sessions()) {
        sessions.push_back(describe(*session, now));
    }
    return {{"daemon", "rnbd-server"},
            {"version", version()},
            {"pid", ::getpid()},
            {"uptime_s", seconds(now - state.started)},
            {"state", state.stopping ? "stopping" : "running"},
            {"listen", listen},
            {"exports", exports},
            {"sessions", sessions}};
}

json server_list(const ServerState& state) {
    json exports = json::array();
    for (const auto& volume : state.target.volumes()) {
        exports.push_back(describe(*volume, state.reactor.now()));
    }
    return {{"daemon", "rnbd-server"}, {"exports", exports}};
}

}  // namespace rnbd
