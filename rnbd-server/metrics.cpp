#include "rnbd-server/metrics.h"

#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "rtrs/base/seconds.h"

namespace rnbd {

namespace {

using enum MetricType;

using rtrs::in_seconds;

// A session as it is now.
struct SessionView {
    rtrs::ServerSessionStatus status;
    SessionStatistics done;
};

std::vector<SessionView> sessions_of(const ServerState& state) {
    std::vector<SessionView> all;
    for (const rtrs::ServerSession* session : state.server.sessions()) {
        if (session->name().empty()) continue;  // nobody knows yet who it is
        all.push_back({session->status(), Target::statistics(*session)});
    }
    return all;
}

struct SessionNumber {
    const char* name;
    MetricType type;
    const char* help;
    std::uint64_t (*value)(const SessionView& view);
};

constexpr std::array session_numbers{
    SessionNumber{"rnbd_server_session_paths", gauge, "Paths of the session that are connected.",
                  [](const SessionView& it) -> std::uint64_t {
                      std::uint64_t connected = 0;
                      for (const auto& path : it.status.paths) {
                          if (path.state == "connected") ++connected;
                      }
                      return connected;
                  }},
    SessionNumber{"rnbd_server_session_queue_depth", gauge, "Requests that it may have in flight.",
                  [](const SessionView& it) -> std::uint64_t { return it.status.queue_depth; }},
    SessionNumber{"rnbd_server_session_in_flight", gauge, "Requests that are not answered yet.",
                  [](const SessionView& it) -> std::uint64_t { return it.status.in_flight; }},
    SessionNumber{"rnbd_server_session_errors", counter, "Requests answered with an error.",
                  [](const SessionView& it) { return it.done.errors; }},
    SessionNumber{"rnbd_server_session_stale_attempts", counter,
                  "Attempts of a request that came late and were refused.",
                  [](const SessionView& it) { return it.status.stale; }},
    SessionNumber{"rnbd_server_session_answered_retries", counter,
                  "Retries that were answered without running again.",
                  [](const SessionView& it) { return it.status.answered; }},
    SessionNumber{"rnbd_server_session_waited_attempts", counter,
                  "Attempts that waited for an earlier one of the same request.",
                  [](const SessionView& it) { return it.status.waited; }},
};

void add_sessions(MetricsText& text, const std::vector<SessionView>& sessions) {
    for (const SessionNumber& number : session_numbers) {
        text.family({number.name, "", number.type, {"session", "peer", "id"}, number.help});
        for (const SessionView& it : sessions) {
            text.sample({it.status.name, it.status.peer, it.status.id}, number.value(it));
        }
    }
    text.family({"rnbd_server_session_requests",
                 "",
                 counter,
                 {"session", "peer", "id", "operation"},
                 "Requests answered without an error. other: flush, discard, write zeroes."});
    for (const SessionView& it : sessions) {
        const auto& [name, id, peer] = std::tie(it.status.name, it.status.id, it.status.peer);
        text.sample({name, peer, id, "read"}, it.done.reads);
        text.sample({name, peer, id, "write"}, it.done.writes);
        text.sample({name, peer, id, "other"}, it.done.other);
    }
    text.family({"rnbd_server_session_io",
                 "bytes",
                 counter,
                 {"session", "peer", "id", "operation"},
                 "Payload of the requests answered without an error."});
    for (const SessionView& it : sessions) {
        const auto& [name, id, peer] = std::tie(it.status.name, it.status.id, it.status.peer);
        text.sample({name, peer, id, "read"}, it.done.read_bytes);
        text.sample({name, peer, id, "write"}, it.done.write_bytes);
    }
}

struct PathNumber {
    const char* name;
    const char* unit;
    MetricType type;
    const char* help;
    double (*value)(const rtrs::ServerPathStatus& path, rtrs::Instant now);
};

constexpr std::array path_numbers{
    PathNumber{"rnbd_server_path_connected", "", gauge, "1 if it can carry requests.",
               [](const rtrs::ServerPathStatus& it, rtrs::Instant) {
                   return it.state == "connected" ? 1.0 : 0.0;
               }},
    PathNumber{"rnbd_server_path_connections", "", gauge, "Connections that it is made of.",
               [](const rtrs::ServerPathStatus& it, rtrs::Instant) {
                   return static_cast<double>(it.connections);
               }},
    PathNumber{"rnbd_server_path_silence", "seconds", gauge,
               "Time since anything was received, heartbeats too.",
               [](const rtrs::ServerPathStatus& it, rtrs::Instant now) {
                   return in_seconds(now - it.last_received);
               }},
};

void add_paths(MetricsText& text, const std::vector<SessionView>& sessions, rtrs::Instant now) {
    for (const PathNumber& number : path_numbers) {
        text.family({number.name,
                     number.unit,
                     number.type,
                     {"session", "local", "remote", "fabric"},
                     number.help});
        for (const SessionView& session : sessions) {
            for (const auto& it : session.status.paths) {
                text.sample({session.status.name, it.local, it.remote, it.fabric},
                            number.value(it, now));
            }
        }
    }
}

struct ExportNumber {
    const char* name;
    const char* unit;
    const char* help;
    std::uint64_t (*value)(const Volume& volume);
};

constexpr std::array export_numbers{
    ExportNumber{"rnbd_server_export_ready", "",
                 "1 if it can be opened, 0 while its storage is away.",
                 [](const Volume& it) -> std::uint64_t {
                     return it.state() == Volume::State::ready ? 1 : 0;
                 }},
    ExportNumber{"rnbd_server_export_flushes_fail", "",
                 "1 while acknowledged writes are lost and each flush fails until it is opened "
                 "again.",
                 [](const Volume& it) -> std::uint64_t { return it.flushes_fail() ? 1 : 0; }},
    ExportNumber{"rnbd_server_export_size", "bytes", "Its size; 0 while it is not ready.",
                 [](const Volume& it) -> std::uint64_t {
                     return it.state() == Volume::State::ready ? it.geometry().size_bytes : 0;
                 }},
    ExportNumber{"rnbd_server_export_opens", "", "Sessions that have it open.",
                 [](const Volume& it) -> std::uint64_t { return it.opens().size(); }},
    ExportNumber{"rnbd_server_export_in_flight", "", "Requests that its storage has.",
                 [](const Volume& it) { return it.in_flight(); }},
};

struct OperationName {
    Operation operation;
    const char* name;
};

constexpr std::array operation_names{
    OperationName{Operation::read, "read"},
    OperationName{Operation::write, "write"},
    OperationName{Operation::flush, "flush"},
    OperationName{Operation::discard, "discard"},
    OperationName{Operation::write_zeroes, "write_zeroes"},
};

// Of the newest family: emit(volume, name of the operation, its counters) for each.
template <typename Emit>
void each_operation(const Target& target, Emit emit) {
    for (const auto& volume : target.volumes()) {
        for (const auto& [operation, name] : operation_names) {
            emit(volume->name(), name, volume->counters().of(operation));
        }
    }
}

void add_exports(MetricsText& text, const Target& target) {
    using Kind = ExportCounters::Kind;
    for (const ExportNumber& number : export_numbers) {
        text.family({number.name, number.unit, gauge, {"export"}, number.help});
        for (const auto& volume : target.volumes()) {
            text.sample({volume->name()}, number.value(*volume));
        }
    }
    text.family({"rnbd_server_export_requests",
                 "",
                 counter,
                 {"export", "operation"},
                 "Requests that its storage has answered."});
    each_operation(target, [&](const std::string& volume, const char* name, const Kind& kind) {
        text.sample({volume, name}, kind.requests);
    });
    text.family({"rnbd_server_export_errors",
                 "",
                 counter,
                 {"export", "operation"},
                 "Requests that its storage has answered with an error."});
    each_operation(target, [&](const std::string& volume, const char* name, const Kind& kind) {
        text.sample({volume, name}, kind.errors);
    });
    text.family({"rnbd_server_export_io",
                 "bytes",
                 counter,
                 {"export", "operation"},
                 "Length of the requests that its storage has answered without an error."});
    each_operation(target, [&](const std::string& volume, const char* name, const Kind& kind) {
        text.sample({volume, name}, kind.bytes);
    });
    text.family({"rnbd_server_export_duration",
                 "seconds",
                 histogram,
                 {"export", "operation"},
                 "From a request's arrival to its storage's answer."});
    each_operation(target, [&](const std::string& volume, const char* name, const Kind& kind) {
        text.histogram({volume, name}, kind.durations);
    });
}

}  // namespace

void add_server_metrics(MetricsText& text, const ServerState& state) {
    text.family({"rnbd_server_draining", "", gauge, {}, "1 while nobody is let in."});
    text.sample({}, std::uint64_t{state.target.draining() == Target::Draining::on ? 1u : 0u});
    text.family({"rnbd_server_prompt_storage",
                 "",
                 counter,
                 {"call"},
                 "With prompt_storage: system calls inside a turn that gave requests to a disk "
                 "(submit), or read from and wrote to a file in memory (read, write)."});
    text.sample({"submit"}, state.reactor.statistics().early_submits);
    text.sample({"read"}, state.reactor.statistics().early_reads);
    text.sample({"write"}, state.reactor.statistics().early_writes);
    text.family({"rnbd_server_polled_io",
                 "",
                 counter,
                 {},
                 "With polled_io: reads and writes of a device that was asked for their end."});
    text.sample({}, state.reactor.statistics().polled);
    text.family({"rnbd_server_zero_copy_sends",
                 "",
                 counter,
                 {"stage"},
                 "With zero_copy_sends: sends that were to leave without a copy (begun), and those "
                 "of them that the kernel reported it copied all the same (copied)."});
    std::uint64_t begun = 0;
    std::uint64_t copied = 0;
    for (std::uint32_t i = 0; i < state.reactor.members(); ++i) {
        begun += state.reactor.member(i).statistics().zero_copies;
        copied += state.reactor.member(i).statistics().zero_copies_copied;
    }
    text.sample({"begun"}, begun);
    text.sample({"copied"}, copied);
    text.family({"rnbd_server_listener_open",
                 "",
                 gauge,
                 {"fabric", "address"},
                 "1 while it listens, 0 while it waits for its address."});
    for (const auto& portal : state.listening) {
        text.sample({portal.fabric, portal.address}, std::uint64_t{portal.reason.empty()});
    }
    const std::vector<SessionView> sessions = sessions_of(state);
    add_sessions(text, sessions);
    add_paths(text, sessions, state.reactor.now());
    add_exports(text, state.target);
}

}  // namespace rnbd
