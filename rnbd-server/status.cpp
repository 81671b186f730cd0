#include "rnbd-server/status.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/config/common.h"
#include "daemon/control/seconds_left.h"
#include "daemon/control/workers_status.h"
#include "daemon/version.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;

using rtrs::in_seconds;

const char* kind_of(StorageOptions::Kind kind) {
    switch (kind) {
        case StorageOptions::Kind::path:
            return "path";
        case StorageOptions::Kind::memory:
            return "memory";
        case StorageOptions::Kind::null:
            return "null";
        case StorageOptions::Kind::nbd:
            return "nbd";
    }
    return "?";
}

json last_error(const Volume& volume, rtrs::Instant now) {
    const ExportCounters::LastError& last = volume.counters().last_error;
    if (last.errors == 0) return nullptr;
    return {{"request", last.request},
            {"session", last.session},
            {"error", last.error.message()},
            {"age_s", in_seconds(now - last.at)},
            {"errors", last.errors}};
}

json describe(const Volume& volume, const ServerState& state) {
    const rtrs::Instant now = state.reactor.now();
    const bool leaves = state.target.is_leaving(volume);
    const StorageOptions& storage = volume.config().storage;
    json opens = json::array();
    for (const auto& open : volume.opens()) {
        opens.push_back({{"session", open->session}, {"access", to_word(open->access)}});
    }
    json allow = json::array();
    for (const ServerConfig::Allow& rule : volume.config().allow) {
        allow.push_back({{"session", rule.session},
                         {"address", rule.address ? json(rule.address->to_string()) : json()},
                         {"access", to_word(rule.access)}});
    }
    json shut_out = json::array();
    for (const auto& [session, until] : volume.shut_out()) {
        if (until > now)
            shut_out.push_back({{"session", session}, {"left_s", in_seconds(until - now)}});
    }
    json away = json::array();
    for (const Writers::One& writer : volume.away()) {
        // Who it is just being taken from is listed with what is open still.
        const bool is_listed = std::ranges::any_of(
            volume.opens(), [&](const auto& open) { return open->writer == writer.id; });
        if (!is_listed) away.push_back(writer.session);
    }
    const bool ready = volume.state() == Volume::State::ready;
    const std::string uuid =
        to_text(ready ? volume.geometry().medium.uuid : storage.uuid.value_or(Uuid{}));
    return {{"name", volume.name()},
            {"kind", kind_of(storage.kind)},
            {"path", storage.place()},
            {"delayed", storage.delay.has_value()},
            {"size_bytes", volume.size_bytes()},
            {"configured_size_bytes", storage.size_bytes ? json(*storage.size_bytes) : json()},
            {"block_size", storage.logical_block_bytes},
            {"io", storage.io == StorageOptions::Io::direct ? "direct" : "buffered"},
            {"uuid", uuid.empty() ? json() : json(uuid)},
            {"state", leaves ? "removing" : to_string(volume.state())},
            {"reason", leaves ? Target::why_leaving : volume.reason()},
            {"age_s", in_seconds(now - volume.since())},
            {"next_attempt_s", seconds_left(leaves ? std::nullopt : volume.next_attempt(), now)},
            {"in_flight", volume.in_flight()},
            {"last_error", last_error(volume, now)},
            {"allow", allow},
            {"shut_out", shut_out},
            {"away", away},
            {"opens", opens}};
}

// Not those that are still being asked who they are, or were turned away: they have no name.
std::vector<rtrs::ServerSession*> sessions_let_in(const ServerState& state) {
    std::vector<rtrs::ServerSession*> sessions = state.server.sessions();
    std::erase_if(sessions,
                  [](const rtrs::ServerSession* session) { return session->name().empty(); });
    return sessions;
}

// Extensions of RTRS and RNBD; a kernel's client has none.
json features_in_force(const rtrs::ServerSession& session,
                       const rtrs::ServerSessionStatus& status) {
    const Feature features = Target::features(session);
    return {{"messages", status.messages},
            {"connection_heartbeats", status.connection_heartbeats},
            {"fast_zero", has(features, Feature::fast_zero)},
            {"extents", has(features, Feature::extents)},
            {"epoch", has(features, Feature::epoch)},
            {"writer", has(features, Feature::writer)},
            {"medium", has(features, Feature::medium)}};
}

json describe(const rtrs::ServerSession& session, rtrs::Instant now) {
    const rtrs::ServerSessionStatus status = session.status();
    const SessionStatistics& done = Target::statistics(session);
    json paths = json::array();
    bool connected = false;
    bool closing = !status.paths.empty();
    for (const rtrs::ServerPathStatus& path : status.paths) {
        connected = connected || path.state == "connected";
        closing = closing && path.state == "closing";
        paths.push_back({{"local", path.local},
                         {"remote", path.remote},
                         {"fabric", path.fabric},
                         {"device", path.device},
                         {"always_invalidate", path.always_invalidate},
                         {"connections", path.connections},
                         {"state", path.state},
                         {"age_s", in_seconds(now - path.since)},
                         {"heartbeat_age_s", in_seconds(now - path.last_received)}});
    }
    return {{"name", status.name},
            {"id", status.id},
            {"peer", status.peer},
            {"state", connected ? "connected"
                      : closing ? "closing"
                                : "connecting"},
            {"age_s", in_seconds(now - status.since)},
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
            {"features", features_in_force(session, status)}};
}

struct LifeOfServer {
    const char* state;
    double age_s;
};

LifeOfServer life_of(const ServerState& state) {
    const bool draining = state.target.draining() == Target::Draining::on;
    const rtrs::Instant since = state.stopping.value_or(state.target.draining_since());
    return {.state = state.stopping ? "stopping"
                     : draining     ? "draining"
                                    : "running",
            .age_s = in_seconds(state.reactor.now() - since)};
}

}  // namespace

json server_status(const ServerState& state) {
    const rtrs::Instant now = state.reactor.now();
    json listen = json::array();
    for (const auto& portal : state.listening) {
        listen.push_back({{"fabric", portal.fabric},
                          {"device", portal.device},
                          {"address", portal.address},
                          {"clients", portal.clients},
                          {"state", portal.reason.empty() ? "listening" : "waiting"},
                          {"reason", portal.reason},
                          {"age_s", in_seconds(now - portal.since)},
                          {"next_attempt_s", seconds_left(portal.next_attempt, now)}});
    }
    json exports = json::array();
    for (const auto& volume : state.target.volumes()) exports.push_back(describe(*volume, state));
    json sessions = json::array();
    for (const rtrs::ServerSession* session : sessions_let_in(state)) {
        sessions.push_back(describe(*session, now));
    }
    const LifeOfServer life = life_of(state);
    return {{"daemon", "rnbd-server"},
            {"version", version()},
            {"pid", ::getpid()},
            {"uptime_s", in_seconds(now - state.started)},
            {"state", life.state},
            {"age_s", life.age_s},
            {"workers", describe_workers(state.reactor)},
            {"memory_shortage",
             {{"io_flusher", state.shortage.io_flusher}, {"locked", state.shortage.locked}}},
            {"listen", listen},
            {"exports", exports},
            {"sessions", sessions}};
}

json server_statistics(const ServerState& state) {
    json items = json::array();
    for (const rtrs::ServerSession* session : sessions_let_in(state)) {
        const SessionStatistics& done = Target::statistics(*session);
        items.push_back({{"kind", "session"},
                         {"name", session->name()},
                         {"reads", done.reads},
                         {"read_bytes", done.read_bytes},
                         {"writes", done.writes},
                         {"write_bytes", done.write_bytes},
                         {"others", done.other},
                         {"errors", done.errors}});
    }
    return items;
}

json server_exports(const ServerState& state, const std::string& name) {
    json exports = json::array();
    for (const auto& volume : state.target.volumes()) {
        if (name.empty() || volume->name() == name) {
            exports.push_back(describe(*volume, state));
        }
    }
    const LifeOfServer life = life_of(state);
    return {{"daemon", "rnbd-server"},
            {"state", life.state},
            {"age_s", life.age_s},
            {"exports", exports}};
}

json server_drain(const ServerState& state) {
    std::uint64_t opens = 0;
    for (const auto& volume : state.target.volumes()) opens += volume->opens().size();
    std::uint64_t in_flight = 0;
    const auto sessions = sessions_let_in(state);
    for (const rtrs::ServerSession* session : sessions) in_flight += session->status().in_flight;
    const bool draining = state.target.draining() == Target::Draining::on;
    return {{"daemon", "rnbd-server"},
            {"draining", draining},
            {"done", draining && opens == 0 && in_flight == 0},
            {"sessions", sessions.size()},
            {"opens", opens},
            {"in_flight", in_flight}};
}

}  // namespace rnbd
