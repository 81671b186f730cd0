#include "rnbd-client/explain.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "rnbd-client/client_session.h"
#include "rnbd-client/next_event.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;
using rtrs::in_seconds;
using Stage = rtrs::RequestStatus::Stage;

// What a permit carries: which device's request, and which.
struct Carried {
    Mapping* mapping;
    VolumeRequestStatus request;
};

json describe(const std::vector<NextEvent>& all) {
    json list = json::array();
    for (const NextEvent& one : all) {
        list.push_back({{"event", to_string(one.kind)},
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
              const std::vector<NextEvent>& next, rtrs::Instant now) {
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
json describe_waiting(const Carried& carried, Stage stage, const std::vector<NextEvent>& next,
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
            {"next", describe(std::vector{next_event(stall, now)})}};
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
            all_.push_back(
                describe(request, carried,
                         next_events(request, status_, session_.options(), fails_at, now_), now_));
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
        const auto next =
            next_events_of_held(status_, session_.options(), fails_at_of(*carried.mapping), now_);
        const Stage stage = status_.link_up ? Stage::owner : Stage::no_path;
        all_.push_back(describe_waiting(carried, stage, next, now_));
    }

    // RemoteVolume fails what it and the session hold when it has not been open for so long.
    std::optional<rtrs::Instant> fails_at_of(Mapping& mapping) const {
        const RemoteVolume& volume = mapping.volume();
        const bool waits =
            volume.state() == VolumeState::opening || volume.state() == VolumeState::reopening;
        return waits ? session_.options().hold_until(volume.since()) : std::nullopt;
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
    return {{"hold_time_s", optional_seconds(options.longest_hold())},
            {"fail_fast_time_s", optional_seconds(options.longest_fail_fast())},
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
