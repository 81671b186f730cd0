#include "rnbd-client/status.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "daemon/config/common.h"
#include "daemon/control/seconds_left.h"
#include "daemon/control/workers_status.h"
#include "daemon/version.h"
#include "rnbd-client/client_session.h"
#include "rnbd-client/not_open.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;

using rtrs::in_seconds;

double microseconds(rtrs::Duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
}

json describe(const rtrs::PathStatus& path, rtrs::Instant now) {
    return {{"label", path.label},
            {"source", path.source},
            {"destination", path.destination},
            {"fabric", path.fabric},
            {"device", path.device},
            {"priority", rtrs::to_string(path.priority)},
            {"state", rtrs::to_string(path.state)},
            {"reason", path.reason},
            {"age_s", in_seconds(now - path.since)},
            {"next_attempt_s", seconds_left(path.next_attempt, now)},
            {"gives_up_s", seconds_left(path.fails_at, now)},
            {"dead_s", seconds_left(path.dead_at, now)},
            {"attempts", path.attempts},
            {"reconnects", path.reconnects},
            {"reconnects_failed", path.attempts_failed},
            {"in_flight", path.in_flight},
            {"sent", path.counters.sent},
            {"completed", path.counters.completed},
            {"failed_over", path.counters.failed_over},
            {"retried", path.counters.retried},
            {"stale", path.counters.stale},
            {"probes", path.counters.probes},
            {"latency_us", microseconds(path.latency)},
            {"request_p50_us", microseconds(path.latency_p50)},
            {"request_p99_us", microseconds(path.latency_p99)},
            {"request_max_us", microseconds(path.latency_max)}};
}

json describe(const AwaitedPath& one, rtrs::Instant now) {
    const ClientConfig::Path addresses = Client::Session::path_of(one.label, one.priority);
    rtrs::PathStatus path;
    path.label = one.label;
    path.source = addresses.source;
    path.destination = addresses.destination;
    path.fabric = "rdma";
    path.state = rtrs::PathState::backoff;
    path.reason = one.reason.text;
    path.since = one.since;
    path.next_attempt = one.next_attempt;
    path.attempts = one.attempts;
    path.priority = one.priority;
    return describe(path, now);
}

json describe_kernel(const KernelDevice* kernel, rtrs::Instant now) {
    if (kernel == nullptr) return nullptr;
    return {{"path", kernel->path()},
            {"state", to_string(kernel->state())},
            {"reason", kernel->reason()},
            {"age_s", in_seconds(now - kernel->since())},
            {"name", "/dev/" + kernel->options().identifier},
            {"connections", kernel->connections()}};
}

// Of a session that is well.
const char* what_is_meant(std::optional<ServerIntent> intent) {
    switch (intent.value_or(ServerIntent::serve)) {
        case ServerIntent::serve:
            return "";
        case ServerIntent::drain:
            return "the server is being drained: nothing more can be opened";
        case ServerIntent::end:
            return "the server is about to end";
    }
    return "";
}

std::string reason_of(Client::Session& session, const rtrs::ClientSessionStatus& status) {
    if (!status.link_up && !session.closing) return why_not_connected(status);
    return status.reason.empty() ? what_is_meant(session.remote.catalog().intent()) : status.reason;
}

// Whatever it was that its geometry says before that is known.
bool was_open(const RemoteVolume& volume) {
    const bool is_open =
        volume.state() == VolumeState::open || volume.state() == VolumeState::reopening;
    return is_open || volume.geometry().size_bytes > 0;
}

json describe(const ServerView& view) {
    if (!view.reason.empty()) return {{"reason", view.reason}};
    const StatisticsResponse& statistics = view.statistics;
    return {{"reason", ""},
            {"queue_depth", statistics.queue_depth},
            {"in_flight", statistics.in_flight},
            {"reads", statistics.reads},
            {"read_bytes", statistics.read_bytes},
            {"writes", statistics.writes},
            {"write_bytes", statistics.write_bytes},
            {"others", statistics.others},
            {"refused", statistics.refused},
            {"storage_errors", statistics.storage_errors},
            {"stale", statistics.stale},
            {"p50_us", microseconds(statistics.p50)},
            {"p99_us", microseconds(statistics.p99)},
            {"max_us", microseconds(statistics.longest)}};
}

json sessions_of(const ClientState& state, const ServerViews& views = {}) {
    json sessions = json::array();
    for (const auto& [name, session] : state.client.sessions()) {
        sessions.push_back(describe_session(*session, state.reactor.now(), views));
    }
    return sessions;
}

json devices_of(const ClientState& state) {
    json devices = json::array();
    for (const auto& mapping : state.client.mappings()) {
        devices.push_back(describe_device(*mapping, state.reactor.now()));
    }
    return devices;
}

}  // namespace

json describe_session(Client::Session& session, rtrs::Instant now, const ServerViews& views) {
    const rtrs::ClientSessionStatus status = session.remote.rtrs().status();
    json paths = json::array();
    for (const auto& path : status.paths) paths.push_back(describe(path, now));
    for (const auto& one : session.awaited.all()) paths.push_back(describe(one, now));
    const auto view = views.find(session.config.name);
    const auto intent = session.remote.catalog().intent();
    const char* state = session.closing ? "closing" : status.link_up ? "connected" : "disconnected";
    return {{"name", session.config.name},
            {"state", state},
            {"reason", reason_of(session, status)},
            {"server", intent ? json(to_string(*intent)) : json()},
            {"remote", view != views.end() ? describe(view->second) : json()},
            {"age_s", in_seconds(now - status.since)},
            {"queue_depth", status.queue_depth},
            {"max_io_bytes", status.max_io_bytes},
            {"permits_free", status.permits_free},
            {"in_flight", status.in_flight},
            {"held", status.held + session.remote.waiting()},
            {"unsettled", status.unsettled},
            {"hold_left_s", seconds_left(status.hold_until, now)},
            // What the server can is not known before it was reached.
            {"protection", status.protection ? json(rtrs::to_string(*status.protection)) : json()},
            {"policy", rtrs::to_string(status.policy)},
            {"paths", paths}};
}

json describe_device(Mapping& mapping, rtrs::Instant now) {
    RemoteVolume& volume = mapping.volume();
    const DeviceCounters& counters = mapping.device().counters();
    const auto& reads = counters.of(nbd::Command::read);
    const auto& writes = counters.of(nbd::Command::write);
    std::uint64_t errors = 0;
    for (const auto& kind : counters.by_command) errors += kind.errors;
    const std::string uuid = to_text(volume.medium().uuid);
    return {{"name", mapping.config().name},
            {"session", mapping.config().session},
            {"volume", mapping.config().volume},
            {"access", to_word(mapping.config().access)},
            {"state", mapping.stopping() ? "stopping" : to_string(volume.state())},
            {"reason", why_not_open(volume)},
            {"age_s", in_seconds(now - volume.since())},
            {"next_attempt_s", seconds_left(volume.next_attempt(), now)},
            {"size_bytes", volume.geometry().size_bytes},
            {"block_size", was_open(volume) ? volume.geometry().logical_block_bytes : 0},
            {"uuid", uuid.empty() ? json() : json(uuid)},
            {"nbd", mapping.nbd_addresses()},
            {"connections", mapping.connections()},
            {"kernel", describe_kernel(mapping.kernel(), now)},
            {"reads", reads.requests},
            {"writes", writes.requests},
            {"read_bytes", reads.bytes},
            {"write_bytes", writes.bytes},
            {"errors", errors},
            {"left_behind", mapping.device().left_behind().requests},
            {"waiting_for_these", mapping.device().left_behind().waiting},
            {"lost_caches", volume.losses().caches},
            {"lost_writes", volume.losses().writes}};
}

json client_status(const ClientState& state, const ServerViews& views) {
    return {{"daemon", "rnbd-client"},
            {"version", version()},
            {"pid", ::getpid()},
            {"uptime_s", in_seconds(state.reactor.now() - state.started)},
            {"state", state.stopping ? "stopping" : "running"},
            {"age_s", in_seconds(state.reactor.now() - state.stopping.value_or(state.started))},
            {"workers", describe_workers(state.reactor)},
            {"memory_shortage",
             {{"io_flusher", state.shortage.io_flusher}, {"locked", state.shortage.locked}}},
            {"sessions", sessions_of(state, views)},
            {"devices", devices_of(state)}};
}

json client_statistics(const ClientState& state) {
    json items = json::array();
    for (const json& device : devices_of(state)) {
        json item{{"kind", "device"}};
        for (const char* key : {"name", "reads", "read_bytes", "writes", "write_bytes", "errors"})
            item[key] = device[key];
        items.push_back(std::move(item));
    }
    return items;
}

json client_list(const ClientState& state) {
    return {{"daemon", "rnbd-client"}, {"devices", devices_of(state)}};
}

json client_paths(const ClientState& state, const std::string& session) {
    if (session.empty()) return {{"daemon", "rnbd-client"}, {"sessions", sessions_of(state)}};
    const auto found = state.client.sessions().find(session);
    if (found == state.client.sessions().end()) return nullptr;
    return {{"daemon", "rnbd-client"},
            {"sessions", {describe_session(*found->second, state.reactor.now())}}};
}

}  // namespace rnbd
