// The attributes of sessions and paths.

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "daemon/attributes/machine.h"
#include "daemon/attributes/table.h"
#include "daemon/attributes/values.h"
#include "daemon/log/log.h"
#include "rnbd-client/attributes.h"
#include "rnbd-client/attributes_map.h"
#include "rnbd-client/client_session.h"
#include "rtrs/base/host.h"

namespace rnbd {
namespace {

using rtrs::PathState;
using rtrs::PathStatus;
using PathOperation = rtrs::ClientSession::PathOperation;

// The kernel's limit for this attribute. SOURCE: MAX_MAX_RECONN_ATT of Linux 6.12,
// drivers/infiniband/ulp/rtrs/rtrs-clt-sysfs.c.
constexpr int kernel_reconnect_attempts_max = 9999;

using attribute_table::expected_one;
using attribute_table::fail;
using attribute_table::gone;
using attribute_table::is_one;
using attribute_table::item_named;

std::unexpected<AttributeError> failed(std::error_code error, std::string message) {
    return fail(rtrs::to_errno(error), std::move(message));
}

struct PolicyName {
    rtrs::PathPolicy policy;
    std::string_view name, abbreviation;
};
// By the kernel's numbers.
constexpr PolicyName policies[] = {
    {rtrs::PathPolicy::round_robin, "round-robin", "RR"},
    {rtrs::PathPolicy::min_inflight, "min-inflight", "MI"},
    {rtrs::PathPolicy::min_latency, "min-latency", "ML"},
    {rtrs::PathPolicy::service_time, "service-time", "ST"},
};

bool begins_with(std::string_view text, std::string_view name) {
    return text.size() >= name.size() && ::strncasecmp(text.data(), name.data(), name.size()) == 0;
}

std::optional<rtrs::PathPolicy> parse_policy(std::string_view text) {
    const auto number = parse_attribute_int(text);
    if (number && *number >= 0 && *number < std::ssize(policies)) return policies[*number].policy;
    if (text.ends_with('\n')) text.remove_suffix(1);
    for (const auto& [policy, name, abbreviation] : policies) {
        const bool short_form =
            text.size() == abbreviation.size() && begins_with(text, abbreviation);
        if (short_form || begins_with(text, name)) return policy;
    }
    return std::nullopt;
}

std::string port_of(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// The port of paths that are added without one.
std::string session_port(const Client::Session& session) {
    return port_of(session.config.paths.front().destination);
}

std::string source_of(const PathStatus& path) {
    if (!path.local_host.empty()) return path.local_host;
    if (!path.source.empty()) return path.source;
    return path.destination.starts_with('[') ? "::" : "0.0.0.0";
}

// "ip:SRC@ip:DST"; with "#PORT" where that is not the session's.
std::vector<std::string> names_of(const Client::Session& session,
                                  const rtrs::ClientSessionStatus& status) {
    std::vector<std::string> names;
    for (const PathStatus& path : status.paths) {
        std::string name = attribute_address(source_of(path)) + "@" +
                           attribute_address(rtrs::host_of(path.destination));
        const std::string port = port_of(path.destination);
        if (port != session_port(session)) name += "#" + port;
        names.push_back(std::move(name));
    }
    return unique_names(std::move(names));
}

// By the label: nothing if it is gone.
std::optional<PathStatus> path_of(const rtrs::ClientSession& session, const std::string& label) {
    auto paths = session.status().paths;
    const auto found = std::ranges::find(paths, label, &PathStatus::label);
    return found == paths.end() ? std::nullopt : std::optional(std::move(*found));
}

}  // namespace

std::vector<std::string> ClientAttributes::session_names() const {
    std::vector<std::string> names;
    for (const auto& [name, session] : client_.sessions()) {
        if (!session->closing) names.push_back(name);
    }
    return names;
}

std::expected<Client::Session*, AttributeError> ClientAttributes::session(
    const std::string& name) const {
    const auto found = client_.sessions().find(name);
    if (found == client_.sessions().end() || found->second->closing) return gone();
    return found->second.get();
}

std::vector<std::string> ClientAttributes::path_names(const std::string& name) const {
    const auto found = session(name);
    if (!found) return {};
    return names_of(**found, (*found)->remote.rtrs().status());
}

std::expected<ClientAttributes::PathPlace, AttributeError> ClientAttributes::path(
    AttributeScope scope) const {
    const auto found = session(scope[0]);
    if (!found) return std::unexpected(found.error());
    auto status = (*found)->remote.rtrs().status();
    const auto names = names_of(**found, status);
    auto path = item_named(names, scope[1], std::move(status.paths));
    if (!path) return std::unexpected(path.error());
    return PathPlace{(*found)->remote.rtrs(), std::move(*path)};
}

// --- Of a session.

AttributeValue ClientAttributes::read_reconnect_attempts(AttributeScope scope) const {
    const auto found = session(scope[0]);
    if (!found) return std::unexpected(found.error());
    const auto& attempts = (*found)->remote.rtrs().options().reconnect_attempts_max;
    return fmt::format("{}\n", attempts ? static_cast<std::int64_t>(*attempts) : -1);
}

AttributeWritten ClientAttributes::write_reconnect_attempts(AttributeScope scope,
                                                            std::string_view value) {
    const auto found = session(scope[0]);
    if (!found) return std::unexpected(found.error());
    const auto attempts = parse_attribute_int(value);
    if (!attempts) return fail(attempts.error(), "expected a number");
    if (*attempts < -1 || *attempts > kernel_reconnect_attempts_max) {
        return fail(EINVAL, fmt::format("expected -1 to {}", kernel_reconnect_attempts_max));
    }
    (*found)->remote.rtrs().set_reconnect_attempts_max(
        *attempts < 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(*attempts)));
    logger("rnbd.client").info("{}: max_reconnect_attempts {}", scope[0], *attempts);
    return {};
}

AttributeValue ClientAttributes::read_policy(AttributeScope scope) const {
    const auto found = session(scope[0]);
    if (!found) return std::unexpected(found.error());
    const auto now = (*found)->remote.rtrs().status().policy;
    int number = 0;
    for (const auto& [policy, name, abbreviation] : policies) {
        if (policy == now) return fmt::format("{} ({}: {})\n", name, abbreviation, number);
        ++number;
    }
    return fmt::format("Unknown ({})\n", static_cast<int>(now));
}

AttributeWritten ClientAttributes::write_policy(AttributeScope scope, std::string_view value) {
    const auto found = session(scope[0]);
    if (!found) return std::unexpected(found.error());
    const auto policy = parse_policy(value);
    if (!policy) {
        return fail(EINVAL, "expected round-robin, min-inflight, min-latency or service-time");
    }
    (*found)->remote.rtrs().set_policy(*policy);
    logger("rnbd.client").info("{}: policy {}", scope[0], rtrs::to_string(*policy));
    return {};
}

void ClientAttributes::add_path(AttributeScope scope, std::string_view value, Done done) {
    const auto found = session(scope[0]);
    if (!found) return done(std::unexpected(found.error()));
    const auto address = parse_attribute_path(value);
    if (!address) {
        return done(fail(address.error(), address.error() == ENODEV
                                              ? "there is no fabric with GIDs"
                                              : "expected [ip:ADDRESS@]ip:ADDRESS"));
    }
    const int port = std::atoi(session_port(**found).c_str());
    auto path = ClientConfig::Path::parse(configured_path(*address, port));
    if (!path) return done(fail(EINVAL, "source and destination do not fit together"));
    path->fabric = (*found)->config.paths.front().fabric;
    for (const PathStatus& other : (*found)->remote.rtrs().status().paths) {
        const bool same =
            other.destination == path->destination &&
            (path->source.empty() ? other.source.empty() : source_of(other) == path->source);
        if (same) return done(fail(EEXIST, "it is there already"));
    }
    if (const auto added = client_.add_path(scope[0], *path); !added) {
        return done(std::unexpected(attribute_error(added.error())));
    }
    // Until it is connected; or its first attempt has failed, and it is gone again.
    const auto failure = std::make_shared<std::optional<AttributeError>>();
    const std::string& name = scope[0];
    const std::string label = path->to_string();
    waits_.wait(
        [this, name, label, failure]() -> std::optional<Written> {
            const auto now = session(name);
            if (!now) return std::unexpected(now.error());
            rtrs::ClientSession& rtrs = (*now)->remote.rtrs();
            const auto it = path_of(rtrs, label);
            if (!it) return failure->has_value() ? std::unexpected(**failure) : gone();
            if (*failure) return std::nullopt;
            if (it->state == PathState::connected) return Written{};
            if (it->attempts_failed == 0 && it->state != PathState::closed) return std::nullopt;
            *failure = AttributeError{rtrs::to_errno(it->error), it->reason};
            if ((*failure)->number == 0) (*failure)->number = ENOTCONN;
            if (rtrs.operate_path(label, PathOperation::remove)) return std::unexpected(**failure);
            return std::nullopt;
        },
        done);
}

// --- Of a path: operations.

void ClientAttributes::reconnect(AttributeScope scope, std::string_view value, Done done) {
    const auto place = path(scope);
    if (!place) return done(std::unexpected(place.error()));
    if (!is_one(value)) return done(expected_one());
    const std::string label = place->path.label;
    if (const auto error = place->session.operate_path(label, PathOperation::reconnect)) {
        return done(failed(error, rtrs::to_string(place->path.state)));
    }
    waits_.wait(
        [this, name = scope[0], label,
         failed = place->path.attempts_failed]() -> std::optional<Written> {
            const auto now = session(name);
            if (!now) return std::unexpected(now.error());
            const auto it = path_of((*now)->remote.rtrs(), label);
            if (!it) return gone();
            if (it->state == PathState::connected) return Written{};
            if (it->attempts_failed == failed && it->state != PathState::closed) {
                return std::nullopt;
            }
            return fail(ENOTCONN, it->reason);
        },
        done);
}

void ClientAttributes::disconnect(AttributeScope scope, std::string_view value, Done done) {
    const auto place = path(scope);
    if (!place) return done(std::unexpected(place.error()));
    if (!is_one(value)) return done(expected_one());
    const std::string label = place->path.label;
    if (const auto error = place->session.operate_path(label, PathOperation::disconnect)) {
        return done(failed(error, ""));
    }
    waits_.wait(
        [this, name = scope[0], label]() -> std::optional<Written> {
            const auto now = session(name);
            if (!now) return std::unexpected(now.error());
            const auto it = path_of((*now)->remote.rtrs(), label);
            if (!it) return gone();
            return it->state == PathState::closed ? std::optional(Written{}) : std::nullopt;
        },
        done);
}

void ClientAttributes::remove_path(AttributeScope scope, std::string_view value, Done done) {
    const auto place = path(scope);
    if (!place) return done(std::unexpected(place.error()));
    if (!is_one(value)) return done(expected_one());
    if (const auto error = place->session.operate_path(place->path.label, PathOperation::remove)) {
        return done(failed(error, error == std::errc::device_or_resource_busy
                                      ? "it is the session's last path"
                                      : ""));
    }
    waits_.wait(
        [this, name = scope[0], id = place->path.id]() -> std::optional<Written> {
            const auto now = session(name);
            if (!now) return Written{};
            const auto paths = (*now)->remote.rtrs().status().paths;
            const bool there = std::ranges::find(paths, id, &PathStatus::id) != paths.end();
            return there ? std::nullopt : std::optional(Written{});
        },
        done);
}

// --- Of a path: what it is.

AttributeValue ClientAttributes::read_hca_name(AttributeScope scope) const {
    return read_at(path(scope), [](const PathPlace& place) {
        if (!place.path.device.empty()) return place.path.device + "\n";
        const std::string interface = interface_of(source_of(place.path));
        return (interface.empty() ? place.path.fabric : interface) + "\n";
    });
}

AttributeValue ClientAttributes::read_source(AttributeScope scope) const {
    return read_at(path(scope), [](const PathPlace& place) {
        return attribute_address(source_of(place.path)) + "\n";
    });
}

// --- Of a path: statistics.

// Those of paths that are gone are forgotten on the way.
ClientAttributes::Baseline& ClientAttributes::baseline(const PathStatus& path) {
    std::erase_if(baselines_, [this](const auto& entry) {
        return std::ranges::none_of(client_.sessions(), [&](const auto& session) {
            const auto paths = session.second->remote.rtrs().status().paths;
            return std::ranges::find(paths, entry.first, &PathStatus::id) != paths.end();
        });
    });
    return baselines_[path.id];
}

ClientAttributes::Baseline ClientAttributes::known_baseline(const PathStatus& path) const {
    const auto found = baselines_.find(path.id);
    return found == baselines_.end() ? Baseline{} : found->second;
}

AttributeValue ClientAttributes::read_traffic(AttributeScope scope) const {
    return read_at(path(scope), [this](const PathPlace& place) {
        const rtrs::PathCounters& now = place.path.counters;
        const rtrs::PathCounters then = known_baseline(place.path).counters;
        return fmt::format("{} {} {} {} {} {}\n", now.reads - then.reads,
                           now.read_bytes - then.read_bytes, now.writes - then.writes,
                           now.write_bytes - then.write_bytes, place.path.in_flight,
                           now.retried - then.retried);
    });
}

AttributeValue ClientAttributes::read_reconnects(AttributeScope scope) const {
    return read_at(path(scope), [this](const PathPlace& place) {
        const Baseline then = known_baseline(place.path);
        return fmt::format("{} {}\n", place.path.reconnects - then.reconnects,
                           place.path.attempts_failed - then.attempts_failed);
    });
}

AttributeWritten ClientAttributes::reset_traffic(AttributeScope scope, std::string_view value) {
    const auto place = path(scope);
    if (!place) return std::unexpected(place.error());
    if (!is_one(value)) return expected_one();
    baseline(place->path).counters = place->path.counters;
    return {};
}

AttributeWritten ClientAttributes::reset_reconnects(AttributeScope scope, std::string_view value) {
    const auto place = path(scope);
    if (!place) return std::unexpected(place.error());
    if (!is_one(value)) return expected_one();
    Baseline& then = baseline(place->path);
    then.reconnects = place->path.reconnects;
    then.attempts_failed = place->path.attempts_failed;
    return {};
}

// There is never anything but zeroes.
AttributeWritten ClientAttributes::reset_migrations(AttributeScope, std::string_view value) {
    if (!is_one(value)) return expected_one();
    return {};
}

AttributeWritten ClientAttributes::reset_all(AttributeScope scope, std::string_view value) {
    if (const auto reset = reset_traffic(scope, value); !reset) return reset;
    return reset_reconnects(scope, value);
}

}  // namespace rnbd
