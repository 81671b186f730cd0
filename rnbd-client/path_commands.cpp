#include "rnbd-client/path_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/control/arguments.h"
#include "rnbd-client/client_session.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;
using Kind = PathCommands::Kind;
using Need = ControlArguments::Need;

// How often the paths are looked at while somebody waits for one.
constexpr rtrs::Duration look_interval = std::chrono::milliseconds(10);
constexpr rtrs::Duration timeout_default = std::chrono::seconds(10);
constexpr rtrs::Duration timeout_max = std::chrono::hours(24);

using rtrs::in_seconds;

struct Request {
    std::string session;
    ClientConfig::Path path;
    rtrs::Duration timeout{};
    bool force = false;
};

std::expected<Request, ControlFailure> parse(Kind kind, const json& given) {
    ControlArguments arguments(given);
    Request request;
    request.session = arguments.text("session", Need::required, "a name");
    request.path = arguments
                       .word("path", ClientConfig::Path::parse,
                             "[rdma:][SOURCE@]HOST:PORT, numeric", Need::required)
                       .value_or(ClientConfig::Path{});
    if (kind == Kind::add) {
        request.path.priority =
            arguments.word("priority", rtrs::parse_path_priority, "prefer or standby")
                .value_or(request.path.priority);
    }
    if (kind == Kind::remove) request.force = arguments.flag("force");
    request.timeout = arguments.seconds("timeout_s", timeout_default, timeout_max);
    if (const auto failure = arguments.failure()) return std::unexpected(*failure);
    return request;
}

std::string labels_of(const rtrs::ClientSessionStatus& status) {
    std::string text;
    for (const auto& path : status.paths) text += (text.empty() ? "" : ", ") + path.label;
    return text;
}

// "backoff (cannot connect: Connection refused), next attempt in 0.4 s"
std::string words_of(const rtrs::PathStatus& path, rtrs::Instant now) {
    std::string text = rtrs::to_string(path.state);
    if (!path.reason.empty()) text += " (" + path.reason + ")";
    if (path.next_attempt) {
        text += fmt::format(", next attempt in {:.1f} s",
                            std::max(in_seconds(*path.next_attempt - now), 0.0));
    }
    return text;
}

// The other paths with their states, if this one alone carries what the session has to do.
std::string left_without(const rtrs::ClientSessionStatus& status, const std::string& label,
                         rtrs::Instant now) {
    std::string others;
    for (const rtrs::PathStatus& path : status.paths) {
        const bool connected = path.state == rtrs::PathState::connected;
        if (connected != (path.label == label)) return {};
        if (!connected)
            others += (others.empty() ? "" : "; ") + path.label + ": " + words_of(path, now);
    }
    return others;
}

std::string last_path_text(const std::string& label, const std::string& session) {
    return fmt::format("{} is the last path of session {}", label, session);
}

const char* goal_of(Kind kind) {
    switch (kind) {
        case Kind::add:
        case Kind::reconnect:
            return "connected";
        case Kind::remove:
            return "gone";
        case Kind::disconnect:
            return "closed";
    }
    return "?";
}

rtrs::ClientSession::PathOperation operation_of(Kind kind) {
    using Operation = rtrs::ClientSession::PathOperation;
    return kind == Kind::remove       ? Operation::remove
           : kind == Kind::disconnect ? Operation::disconnect
                                      : Operation::reconnect;
}

}  // namespace

PathCommands::PathCommands(Client& client)
    : client_(client), timer_(client.clock(), this, rtrs::member_call<&PathCommands::check_all>) {}

void PathCommands::start(Kind kind, const json& arguments, ControlReply reply) {
    const auto request = parse(kind, arguments);
    if (!request) return reply.fail(request.error());
    if (kind == Kind::add) {
        if (const auto added = client_.add_path(request->session, request->path); !added) {
            return reply.fail(added.error());
        }
    }
    const rtrs::Instant now = client_.clock().now();
    waits_.push_back({.kind = kind,
                      .session = request->session,
                      .label = request->path.to_string(),
                      .started = now,
                      .deadline = now + request->timeout,
                      .begun = kind == Kind::add,
                      .force = request->force,
                      .reply = std::move(reply)});
    if (check(waits_.back())) waits_.pop_back();
    if (!waits_.empty() && !timer_.armed()) timer_.arm(now + look_interval);
}

void PathCommands::check_all() {
    std::erase_if(waits_, [this](Wait& wait) { return check(wait); });
    if (!waits_.empty()) timer_.arm(client_.clock().now() + look_interval);
}

bool PathCommands::check(Wait& wait) {
    const auto session = client_.find_session(wait.session);
    if (!session) {
        wait.reply.fail(session.error().code, session.error().message);
        return true;
    }
    rtrs::ClientSession& rtrs = (*session)->remote.rtrs();
    if (const auto* awaited = wait.begun ? nullptr : (*session)->awaited.find(wait.label)) {
        if (wait.kind != Kind::remove) {
            wait.reply.fail(ControlError::failed,
                            fmt::format("path {} of session {} is not used yet: {}", wait.label,
                                        wait.session, awaited->reason.text));
            return true;
        }
        if ((*session)->paths().size() == 1) {
            wait.reply.fail(ControlError::busy, last_path_text(wait.label, wait.session));
            return true;
        }
        (*session)->forget_awaited(wait.label);
        wait.begun = true;
    }
    if (!wait.begun && begin(wait, rtrs)) return true;
    const rtrs::ClientSessionStatus status = rtrs.status();
    const rtrs::PathStatus* const path = status.path(wait.label);
    const bool closed = path != nullptr && path->state == rtrs::PathState::closed;
    const bool connected = path != nullptr && path->state == rtrs::PathState::connected;
    const rtrs::Instant now = client_.clock().now();
    if (wait.begun && wait.kind == Kind::remove && path == nullptr) {
        return succeed(wait, status, "removed"), true;
    }
    if (wait.begun && wait.kind == Kind::disconnect && closed) {
        return succeed(wait, status, "closed"), true;
    }
    const bool dials = wait.kind == Kind::add || wait.kind == Kind::reconnect;
    if (wait.begun && dials && connected) return succeed(wait, status, "connected"), true;
    if (path == nullptr || (wait.begun && dials && closed)) {
        wait.reply.fail(ControlError::failed,
                        fmt::format("path {} of session {} is {}", wait.label, wait.session,
                                    path == nullptr ? "gone" : words_of(*path, now)));
        return true;
    }
    if (now < wait.deadline) return false;
    wait.reply.fail(ControlError::timed_out,
                    fmt::format("path {} of session {} is not {} yet: {}", wait.label, wait.session,
                                goal_of(wait.kind), words_of(*path, now)));
    return true;
}

// Tells the session. Later if it is busy: an attempt to connect is what a reconnect wants anyway.
bool PathCommands::begin(Wait& wait, rtrs::ClientSession& session) {
    if (wait.kind == Kind::remove && !wait.force) {
        const std::string others =
            left_without(session.status(), wait.label, client_.clock().now());
        if (!others.empty()) {
            wait.reply.fail(ControlError::busy,
                            fmt::format("{} is the only path of session {} that is connected ({}); "
                                        "--force removes it all the same",
                                        wait.label, wait.session, others));
            return true;
        }
    }
    const auto error = session.operate_path(wait.label, operation_of(wait.kind));
    wait.begun = !error;
    if (!error) return false;
    const rtrs::ClientSessionStatus status = session.status();
    if (error == std::errc::no_such_file_or_directory) {
        wait.reply.fail(ControlError::not_found,
                        fmt::format("session {} has no path {}; it has {}", wait.session,
                                    wait.label, labels_of(status)));
        return true;
    }
    if (error == std::errc::device_or_resource_busy) {
        if (wait.kind == Kind::remove) {
            wait.reply.fail(ControlError::busy, last_path_text(wait.label, wait.session));
            return true;
        }
        const rtrs::PathStatus* const path = status.path(wait.label);
        wait.begun = path != nullptr && path->state != rtrs::PathState::closing;
        return false;
    }
    wait.reply.fail(ControlError::failed,
                    error == std::errc::not_connected
                        ? fmt::format("session {} has ended: {}; to take its name back, unmap "
                                      "its devices, and map them again",
                                      wait.session, status.reason)
                        : error.message());
    return true;
}

void PathCommands::succeed(Wait& wait, const rtrs::ClientSessionStatus& status,
                           std::string_view state) {
    const auto up =
        std::ranges::count(status.paths, rtrs::PathState::connected, &rtrs::PathStatus::state);
    wait.reply.succeed({{"session", wait.session},
                        {"path", wait.label},
                        {"state", state},
                        {"paths", status.paths.size()},
                        {"paths_connected", up},
                        {"took_s", in_seconds(client_.clock().now() - wait.started)}});
}

}  // namespace rnbd
