#include "rnbd-client/explain.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;
using Event = Upcoming::Event;
using Stage = rtrs::RequestStatus::Stage;
using rtrs::PathState;

using rtrs::in_seconds;

rtrs::Duration left(rtrs::Instant until, rtrs::Instant now) {
    return std::max(until - now, rtrs::Duration::zero());
}

const rtrs::PathStatus* find(const rtrs::ClientSessionStatus& session, const std::string& label) {
    const auto found = std::ranges::find(session.paths, label, &rtrs::PathStatus::label);
    return found == session.paths.end() ? nullptr : &*found;
}

std::optional<Upcoming> connect_of(const rtrs::PathStatus& path, rtrs::Instant now) {
    switch (path.state) {
        case PathState::closing:
        case PathState::closed:
            return std::nullopt;
        case PathState::backoff:
            return Upcoming{Event::connect, path.label, left(path.next_attempt.value_or(now), now)};
        case PathState::idle:
        case PathState::connecting:
        case PathState::exchanging:
        case PathState::connected:
        case PathState::draining:
            return Upcoming{Event::connect, path.label, std::nullopt};
    }
    return std::nullopt;
}

// The path that may be connected first.
Upcoming first_connect(const rtrs::ClientSessionStatus& session, rtrs::Instant now) {
    std::optional<Upcoming> best;
    for (const auto& path : session.paths) {
        if (path.state == PathState::idle) continue;
        const auto one = connect_of(path, now);
        const auto delay = [](const Upcoming& what) {
            return what.in.value_or(rtrs::Duration::zero());
        };
        if (one && (!best || delay(*one) < delay(*best))) best = one;
    }
    return best.value_or(Upcoming{Event::no_attempt, "", std::nullopt});
}

void add_in_flight(std::vector<Upcoming>& all, const rtrs::RequestStatus& request,
                   const rtrs::PathStatus* path, const rtrs::ClientSessionOptions& options,
                   rtrs::Instant now) {
    if (path == nullptr || path->state != PathState::connected) {
        all.push_back({Event::path_drained, request.path, std::nullopt});
        return;
    }
    const rtrs::Instant probe = request.posted + options.request_deadline;
    if (probe > now) {
        all.push_back({Event::probe, path->label, probe - now});
    } else if (now - probe > options.probe_timeout) {
        // Without a word from the server it would have lost the path by now.
        all.push_back({Event::answer, path->label, std::nullopt});
    }
    if (path->dead_at) all.push_back({Event::path_dead, path->label, left(*path->dead_at, now)});
}

// What ends the waiting whatever happens to paths.
void add_limit(std::vector<Upcoming>& all, const rtrs::ClientSessionOptions& options,
               std::optional<rtrs::Instant> until, rtrs::Instant now) {
    if (until) {
        all.push_back({Event::fail, "", left(*until, now)});
    } else if (!options.hold_time) {
        all.push_back({Event::held_for_ever, "", std::nullopt});
    }
}

std::optional<rtrs::Instant> earlier(std::optional<rtrs::Instant> a,
                                     std::optional<rtrs::Instant> b) {
    return a && b ? std::min(*a, *b) : a ? a : b;
}

}  // namespace

const char* to_string(Event event) noexcept {
    switch (event) {
        case Event::probe:
            return "probe";
        case Event::answer:
            return "answer";
        case Event::path_dead:
            return "path_dead";
        case Event::path_drained:
            return "path_drained";
        case Event::connect:
            return "connect";
        case Event::no_attempt:
            return "no_attempt";
        case Event::reopen:
            return "reopen";
        case Event::fence:
            return "fence";
        case Event::fail:
            return "fail";
        case Event::held_for_ever:
            return "held_for_ever";
        case Event::payload:
            return "payload";
        case Event::own_answers:
            return "own_answers";
        case Event::permit:
            return "permit";
        case Event::left_behind:
            return "left_behind";
        case Event::taken:
            return "taken";
    }
    return "?";
}

const char* word_of(DeviceStall::Stage stage) noexcept {
    switch (stage) {
        case DeviceStall::Stage::payload:
            return "payload";
        case DeviceStall::Stage::own_share:
            return "own_share";
        case DeviceStall::Stage::permit:
            return "permit";
        case DeviceStall::Stage::left_behind:
            return "left_behind";
        case DeviceStall::Stage::answered:
            return "answered";
    }
    return "?";
}

const char* word_of(Stage stage) noexcept {
    switch (stage) {
        case Stage::in_flight:
            return "in_flight";
        case Stage::no_path:
            return "no_path";
        case Stage::owner:
            return "reopening";
        case Stage::lost_path:
            return "lost_path";
        case Stage::settling:
            return "settling";
        case Stage::failing:
            return "failing";
    }
    return "?";
}

std::vector<Upcoming> upcoming(const rtrs::RequestStatus& request,
                               const rtrs::ClientSessionStatus& session,
                               const rtrs::ClientSessionOptions& options,
                               std::optional<rtrs::Instant> fails_at, rtrs::Instant now) {
    std::vector<Upcoming> all;
    const rtrs::PathStatus* const path = find(session, request.path);
    // The path comes back, or the server says over another one that it has finished with it.
    const auto path_over = [&] {
        const bool asked = std::ranges::any_of(session.paths, [](const rtrs::PathStatus& one) {
            return one.state == PathState::connected;
        });
        const auto connect = path == nullptr ? std::nullopt : connect_of(*path, now);
        if (connect) all.push_back(*connect);
        if (asked) all.push_back({Event::fence, "", std::nullopt});
        if (all.empty()) all.push_back({Event::no_attempt, request.path, std::nullopt});
    };
    switch (request.stage) {
        case Stage::in_flight:
            add_in_flight(all, request, path, options, now);
            break;
        case Stage::no_path:
            all.push_back(first_connect(session, now));
            add_limit(all, options, earlier(session.hold_until, fails_at), now);
            break;
        case Stage::owner:
            all.push_back({Event::reopen, "", std::nullopt});
            add_limit(all, options, fails_at, now);
            break;
        case Stage::lost_path:
            path_over();
            add_limit(all, options, fails_at, now);
            break;
        case Stage::settling:
            if (session.protection == rtrs::Protection::exactly_once) {
                all.push_back({Event::fence, "", std::nullopt});
            } else {
                path_over();
            }
            break;
        case Stage::failing:
            all.push_back({Event::fail, "", rtrs::Duration::zero()});
            break;
    }
    // Of two timers the one that is due first is first.
    if (all.size() == 2 && all[0].in && all[1].in && *all[1].in < *all[0].in) {
        std::swap(all[0], all[1]);
    }
    return all;
}

namespace {

// What a permit carries: which device's request, and which.
struct Carried {
    Mapping* mapping;
    VolumeRequestStatus request;
};

json describe(const std::vector<Upcoming>& all) {
    json list = json::array();
    for (const Upcoming& one : all) {
        list.push_back({{"event", to_string(one.event)},
                        {"path", one.path},
                        {"in_s", one.in ? json(in_seconds(*one.in)) : json(nullptr)}});
    }
    return list;
}

json operation_of(const Carried* carried) {
    if (carried == nullptr) return {{"device", ""}, {"offset", nullptr}};
    const bool ranged = carried->request.operation != VolumeOperation::flush;
    return {{"device", carried->mapping->config().name},
            {"offset", ranged ? json(carried->request.offset) : json(nullptr)}};
}

json describe(const rtrs::RequestStatus& request, const Carried* carried,
              const std::vector<Upcoming>& next, rtrs::Instant now) {
    json document = operation_of(carried);
    const char* const direction = request.direction == rtrs::Direction::read ? "read" : "write";
    document["operation"] = carried ? to_string(carried->request.operation) : direction;
    document["bytes"] = carried ? carried->request.bytes : request.payload_bytes;
    document["permit"] = static_cast<std::uint32_t>(request.permit);
    document["sequence"] = request.sequence;
    document["stage"] = word_of(request.stage);
    document["age_s"] = in_seconds(now - request.submitted);
    document["attempts"] = request.attempts;
    document["attempt_age_s"] =
        request.attempts > 0 ? json(in_seconds(now - request.posted)) : json(nullptr);
    document["path"] = request.path;
    document["next"] = describe(next);
    return document;
}

// One that its volume holds: the session has not seen it.
json describe_waiting(const Carried& carried, Stage stage, const std::vector<Upcoming>& next,
                      rtrs::Instant now) {
    json document = operation_of(&carried);
    document["operation"] = to_string(carried.request.operation);
    document["bytes"] = carried.request.bytes;
    document["permit"] = static_cast<std::uint32_t>(carried.request.permit);
    document["sequence"] = 0;
    document["stage"] = word_of(stage);
    document["age_s"] = in_seconds(now - carried.request.since);
    document["attempts"] = 0;
    document["attempt_age_s"] = nullptr;
    document["path"] = "";
    document["next"] = describe(next);
    return document;
}

Event event_of(DeviceStall::Stage stage) {
    switch (stage) {
        case DeviceStall::Stage::payload:
            return Event::payload;
        case DeviceStall::Stage::own_share:
            return Event::own_answers;
        case DeviceStall::Stage::permit:
            return Event::permit;
        case DeviceStall::Stage::left_behind:
            return Event::left_behind;
        case DeviceStall::Stage::answered:
            return Event::taken;
    }
    return Event::taken;
}

// As VolumeOperation, for what NBD asks.
const char* operation_of(nbd::Command command) {
    switch (command) {
        case nbd::Command::read:
            return "read";
        case nbd::Command::write:
            return "write";
        case nbd::Command::flush:
            return "flush";
        case nbd::Command::trim:
            return "discard";
        case nbd::Command::write_zeroes:
            return "write_zeroes";
        case nbd::Command::cache:
            return "cache";
        case nbd::Command::block_status:
            return "block_status";
        case nbd::Command::disconnect:
            break;
    }
    return "?";
}

// One that its NBD client, or its device, holds: the volume has not seen it, or has answered it.
json describe(const DeviceStall& stall, const std::string& device, rtrs::Instant now) {
    const bool ranged = stall.command != nbd::Command::flush;
    std::optional<rtrs::Duration> in;
    if (stall.until) in = left(*stall.until, now);
    return {{"device", device},
            {"operation", operation_of(stall.command)},
            {"offset", ranged ? json(stall.offset) : json(nullptr)},
            {"bytes", stall.bytes},
            {"permit", nullptr},
            {"sequence", 0},
            {"stage", word_of(stall.stage)},
            {"age_s", in_seconds(now - stall.since)},
            {"attempts", 0},
            {"attempt_age_s", nullptr},
            {"path", ""},
            {"next", describe(std::vector{Upcoming{event_of(stall.stage), "", in}})}};
}

// Collects the requests of a session and of the volumes on it.
class Requests {
  public:
    Requests(const Client& client, Client::Session& session, rtrs::Instant now)
        : now_(now), session_(session.remote.rtrs()), status_(session_.status()) {
        for (const auto& mapping : client.mappings()) {
            if (mapping->config().session == session.config.name) add(*mapping);
        }
    }

    json describe_all() {
        for (const auto& request : session_.requests()) {
            const auto found = carried_.find(static_cast<std::uint32_t>(request.permit));
            const Carried* const carried = found == carried_.end() ? nullptr : &found->second;
            const auto fails_at = carried ? fails_at_of(*carried->mapping) : std::nullopt;
            all_.push_back(describe(request, carried,
                                    upcoming(request, status_, session_.options(), fails_at, now_),
                                    now_));
        }
        std::ranges::stable_sort(all_, [](const json& a, const json& b) {
            return a["age_s"].get<double>() > b["age_s"].get<double>();
        });
        return all_;
    }

  private:
    void add(Mapping& mapping) {
        for (const DeviceStall& stall : mapping.device().stalls()) {
            all_.push_back(describe(stall, mapping.config().name, now_));
        }
        for (const auto& request : mapping.volume().requests()) {
            const Carried carried{&mapping, request};
            if (request.stage == VolumeRequestStatus::Stage::waiting) {
                add_waiting(carried);
            } else {
                carried_.emplace(static_cast<std::uint32_t>(request.permit), carried);
            }
        }
    }

    void add_waiting(const Carried& carried) {
        std::vector<Upcoming> next;
        next.push_back(status_.link_up ? Upcoming{Event::reopen, "", std::nullopt}
                                       : first_connect(status_, now_));
        add_limit(next, session_.options(), fails_at_of(*carried.mapping), now_);
        const Stage stage = status_.link_up ? Stage::owner : Stage::no_path;
        all_.push_back(describe_waiting(carried, stage, next, now_));
    }

    // RemoteVolume fails what it and the session hold when it has not been open for so long.
    std::optional<rtrs::Instant> fails_at_of(Mapping& mapping) const {
        const RemoteVolume& volume = mapping.volume();
        const bool waits =
            volume.state() == VolumeState::opening || volume.state() == VolumeState::reopening;
        if (!waits || !session_.options().hold_time) return std::nullopt;
        return volume.since() + *session_.options().hold_time;
    }

    rtrs::Instant now_;
    rtrs::ClientSession& session_;
    rtrs::ClientSessionStatus status_;
    std::map<std::uint32_t, Carried> carried_;  // by permit
    std::vector<json> all_;
};

json optional_seconds(const std::optional<rtrs::Duration>& duration) {
    return duration ? json(in_seconds(*duration)) : json(nullptr);
}

json describe(const rtrs::ClientSessionOptions& options) {
    return {{"hold_time_s", optional_seconds(options.hold_time)},
            {"fail_fast_time_s", optional_seconds(options.fail_fast_time)},
            {"connect_timeout_s", in_seconds(options.connect_timeout)},
            {"request_deadline_s", in_seconds(options.request_deadline)},
            {"probe_timeout_s", in_seconds(options.probe_timeout)},
            {"heartbeat_interval_s", in_seconds(options.heartbeat_interval)},
            {"heartbeat_timeout_s", in_seconds(options.heartbeat_timeout)}};
}

}  // namespace

json client_explain(const ClientState& state, const std::string& device) {
    const auto& mappings = state.client.mappings();
    const auto mapping = std::ranges::find_if(
        mappings, [&](const auto& one) { return one->config().name == device; });
    if (mapping == mappings.end()) return nullptr;
    Client::Session& session = *state.client.sessions().at((*mapping)->config().session);
    const rtrs::Instant now = state.reactor.now();
    return {{"daemon", "rnbd-client"},
            {"device", describe_device(**mapping, now)},
            {"session", describe_session(session, now)},
            {"settings", describe(session.remote.rtrs().options())},
            {"requests", Requests(state.client, session, now).describe_all()}};
}

}  // namespace rnbd
