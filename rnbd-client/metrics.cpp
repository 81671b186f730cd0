#include "rnbd-client/metrics.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "rnbd-client/client_session.h"
#include "rtrs/base/seconds.h"

namespace rnbd {

namespace {

using enum MetricType;

using rtrs::in_seconds;

// Sessions as they are now, by name.
using Sessions = std::map<std::string, rtrs::ClientSessionStatus>;

struct SessionNumber {
    const char* name;
    const char* help;
    std::uint64_t (*value)(const rtrs::ClientSessionStatus& status);
};

constexpr std::array session_numbers{
    SessionNumber{
        "rnbd_client_session_connected", "1 while a path is up.",
        [](const rtrs::ClientSessionStatus& it) -> std::uint64_t { return it.link_up ? 1 : 0; }},
    SessionNumber{
        "rnbd_client_session_queue_depth", "Requests that it may have in flight.",
        [](const rtrs::ClientSessionStatus& it) -> std::uint64_t { return it.queue_depth; }},
    SessionNumber{
        "rnbd_client_session_permits_free", "Requests that could be added at once.",
        [](const rtrs::ClientSessionStatus& it) -> std::uint64_t { return it.permits_free; }},
    SessionNumber{
        "rnbd_client_session_in_flight", "Requests that are not answered yet.",
        [](const rtrs::ClientSessionStatus& it) -> std::uint64_t { return it.in_flight; }},
    SessionNumber{"rnbd_client_session_held",
                  "Requests that wait for a path, or for their volume to be open.",
                  [](const rtrs::ClientSessionStatus& it) -> std::uint64_t { return it.held; }},
    SessionNumber{
        "rnbd_client_session_unsettled", "Permits that wait until older attempts are over.",
        [](const rtrs::ClientSessionStatus& it) -> std::uint64_t { return it.unsettled; }},
};

void add_sessions(MetricsText& text, const Sessions& sessions) {
    for (const SessionNumber& number : session_numbers) {
        text.family({number.name, "", gauge, {"session"}, number.help});
        for (const auto& [name, status] : sessions) text.sample({name}, number.value(status));
    }
}

struct PathNumber {
    const char* name;
    const char* unit;
    MetricType type;
    const char* help;
    std::uint64_t (*value)(const rtrs::PathStatus& path);
};

constexpr std::array path_numbers{
    PathNumber{"rnbd_client_path_connected", "", gauge, "1 if it can carry requests.",
               [](const rtrs::PathStatus& it) -> std::uint64_t {
                   return it.state == rtrs::PathState::connected ? 1 : 0;
               }},
    PathNumber{"rnbd_client_path_in_flight", "", gauge,
               "Unanswered requests that were sent on it last.",
               [](const rtrs::PathStatus& it) -> std::uint64_t { return it.in_flight; }},
    PathNumber{"rnbd_client_path_reconnects", "", counter, "Times that it came back.",
               [](const rtrs::PathStatus& it) { return it.reconnects; }},
    PathNumber{"rnbd_client_path_failed_connects", "", counter, "Attempts to connect that failed.",
               [](const rtrs::PathStatus& it) { return it.attempts_failed; }},
    PathNumber{"rnbd_client_path_attempts", "", counter, "Requests that were sent on it.",
               [](const rtrs::PathStatus& it) { return it.counters.sent; }},
    PathNumber{"rnbd_client_path_answers", "", counter, "Answers that came on it.",
               [](const rtrs::PathStatus& it) { return it.counters.completed; }},
    PathNumber{"rnbd_client_path_failed_over", "", counter,
               "Requests that it lost and other paths took.",
               [](const rtrs::PathStatus& it) { return it.counters.failed_over; }},
    PathNumber{"rnbd_client_path_retries", "", counter,
               "Requests that it took from other paths, or again.",
               [](const rtrs::PathStatus& it) { return it.counters.retried; }},
    PathNumber{"rnbd_client_path_stale_attempts", "", counter,
               "Attempts that the server refused as late.",
               [](const rtrs::PathStatus& it) { return it.counters.stale; }},
    PathNumber{"rnbd_client_path_probes", "", counter,
               "Heartbeats ahead of time because an answer was late.",
               [](const rtrs::PathStatus& it) { return it.counters.probes; }},
    PathNumber{"rnbd_client_path_read", "bytes", counter, "Asked for by reads, messages included.",
               [](const rtrs::PathStatus& it) { return it.counters.read_bytes; }},
    PathNumber{"rnbd_client_path_write", "bytes", counter, "Sent by all others, messages included.",
               [](const rtrs::PathStatus& it) { return it.counters.write_bytes; }},
};

// Of the newest family: emit(session, path) for each.
template <typename Emit>
void each_path(const Sessions& sessions, Emit emit) {
    for (const auto& [name, status] : sessions) {
        for (const rtrs::PathStatus& path : status.paths) emit(name, path);
    }
}

void add_paths(MetricsText& text, const Sessions& sessions) {
    for (const PathNumber& number : path_numbers) {
        text.family({number.name, number.unit, number.type, {"session", "path"}, number.help});
        each_path(sessions, [&](const std::string& session, const rtrs::PathStatus& path) {
            text.sample({session, path.label}, number.value(path));
        });
    }
    text.family({"rnbd_client_path_heartbeat",
                 "seconds",
                 gauge,
                 {"session", "path"},
                 "Round trip of the newest heartbeat; 0 before the first."});
    each_path(sessions, [&](const std::string& session, const rtrs::PathStatus& path) {
        text.sample({session, path.label}, in_seconds(path.latency));
    });
    text.family({"rnbd_client_path_duration",
                 "seconds",
                 histogram,
                 {"session", "path"},
                 "Of requests, from an attempt's post to its answer."});
    each_path(sessions, [&](const std::string& session, const rtrs::PathStatus& path) {
        text.histogram({session, path.label}, path.latencies);
    });
}

struct DeviceNumber {
    const char* name;
    const char* unit;
    MetricType type;
    const char* help;
    std::uint64_t (*value)(Mapping& mapping);
};

constexpr std::array device_numbers{
    DeviceNumber{"rnbd_client_device_open", "", gauge, "1 while its volume is open.",
                 [](Mapping& it) -> std::uint64_t {
                     return it.volume().state() == VolumeState::open ? 1 : 0;
                 }},
    DeviceNumber{"rnbd_client_device_size", "bytes", gauge, "As the server said last.",
                 [](Mapping& it) { return it.volume().geometry().size_bytes; }},
    DeviceNumber{"rnbd_client_device_connections", "", gauge,
                 "NBD connections, those of a kernel device too.",
                 [](Mapping& it) -> std::uint64_t {
                     return it.connections() + (it.kernel() ? it.kernel()->connections() : 0);
                 }},
    DeviceNumber{"rnbd_client_device_lost_caches", "", counter,
                 "Times that a server came back without its cache while that was needed.",
                 [](Mapping& it) { return it.volume().losses().caches; }},
    DeviceNumber{"rnbd_client_device_lost_writes", "", counter,
                 "Acknowledged writes in those that no flush had covered.",
                 [](Mapping& it) { return it.volume().losses().writes; }},
};

struct CommandName {
    nbd::Command command;
    const char* name;
};

constexpr std::array command_names{
    CommandName{nbd::Command::read, "read"},
    CommandName{nbd::Command::write, "write"},
    CommandName{nbd::Command::flush, "flush"},
    CommandName{nbd::Command::trim, "trim"},
    CommandName{nbd::Command::write_zeroes, "write_zeroes"},
    CommandName{nbd::Command::cache, "cache"},
    CommandName{nbd::Command::block_status, "block_status"},
};

// Of the newest family: emit(device, name of the command, its counters) for each.
template <typename Emit>
void each_command(const Client& client, Emit emit) {
    for (const auto& mapping : client.mappings()) {
        for (const auto& [command, name] : command_names) {
            emit(mapping->config().name, name, mapping->device().counters().of(command));
        }
    }
}

void add_devices(MetricsText& text, const Client& client) {
    using Kind = DeviceCounters::Kind;
    for (const DeviceNumber& number : device_numbers) {
        text.family(
            {number.name, number.unit, number.type, {"device", "session", "volume"}, number.help});
        for (const auto& mapping : client.mappings()) {
            const auto& config = mapping->config();
            text.sample({config.name, config.session, config.volume}, number.value(*mapping));
        }
    }
    text.family({"rnbd_client_device_requests",
                 "",
                 counter,
                 {"device", "operation"},
                 "NBD requests that were answered."});
    each_command(client, [&](const std::string& device, const char* name, const Kind& kind) {
        text.sample({device, name}, kind.requests);
    });
    text.family({"rnbd_client_device_errors",
                 "",
                 counter,
                 {"device", "operation"},
                 "NBD requests that were answered with an error."});
    each_command(client, [&](const std::string& device, const char* name, const Kind& kind) {
        text.sample({device, name}, kind.errors);
    });
    text.family({"rnbd_client_device_io",
                 "bytes",
                 counter,
                 {"device", "operation"},
                 "Length of the NBD requests that were answered without an error."});
    each_command(client, [&](const std::string& device, const char* name, const Kind& kind) {
        text.sample({device, name}, kind.bytes);
    });
    text.family({"rnbd_client_device_duration",
                 "seconds",
                 histogram,
                 {"device", "operation"},
                 "From an NBD request's header to its answer, with all waiting in between."});
    each_command(client, [&](const std::string& device, const char* name, const Kind& kind) {
        text.histogram({device, name}, kind.durations);
    });
}

}  // namespace

void add_client_metrics(MetricsText& text, const ClientState& state) {
    Sessions sessions;
    for (const auto& [name, session] : state.client.sessions()) {
        auto& status = sessions.emplace(name, session->remote.rtrs().status()).first->second;
        status.held += session->remote.waiting();
    }
    add_sessions(text, sessions);
    add_paths(text, sessions);
    add_devices(text, state.client);
}

}  // namespace rnbd
