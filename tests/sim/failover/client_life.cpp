#include "tests/sim/failover/client_life.h"

#include <fmt/format.h>

#include <algorithm>

namespace failover {

ClientLife::ClientLife(const Surroundings& surroundings, rtrs::SimHost& its_host,
                       const rtrs::ClientSessionOptions& options, Counters& its_counters,
                       const std::vector<ServerVolume*>& volumes)
    : host(its_host),
      counters(its_counters),
      number(static_cast<std::uint32_t>(options.life)),
      session({its_host.clock(), surroundings.world.random(), surroundings.tracer}, options, *this),
      patience_(failover_patience(surroundings.options)) {
    for (ServerVolume* volume : volumes) {
        users.push_back(std::make_unique<VolumeUser>(surroundings, *this, *volume));
    }
    if (const auto error = session.open()) {
        surroundings.findings.add("a session cannot be opened", error.message());
    }
}

void ClientLife::begin_close() {
    if (closing) return;
    closing = true;
    for (const auto& user : users) user->close();
}

bool ClientLife::continue_close() {
    if (session_closed) return true;
    if (users.empty()) return false;
    if (!std::ranges::all_of(users, [](const auto& user) { return user->closed(); })) return false;
    users.clear();
    session.close();
    return false;
}

bool ClientLife::idle() const {
    return std::ranges::all_of(users, [](const auto& user) { return user->idle(); });
}

bool ClientLife::ready() const {
    if (!std::ranges::all_of(users, [](const auto& user) { return user->open(); })) return false;
    const auto status = const_cast<rnbd::RemoteSession&>(session).rtrs().status();
    return std::ranges::all_of(status.paths, [](const rtrs::PathStatus& path) {
        return path.state == rtrs::PathState::connected;
    });
}

std::string ClientLife::complaint() const {
    const auto status = const_cast<rnbd::RemoteSession&>(session).rtrs().status();
    std::string text = fmt::format(
        "{}: {} in flight, {} held, {} of {} permits free, {} unsettled;", session.name(),
        status.in_flight, status.held, status.permits_free, status.queue_depth, status.unsettled);
    for (const auto& path : status.paths) {
        text += fmt::format(" path {} {} {};", path.label, to_string(path.state), path.reason);
    }
    for (const auto& user : users) {
        text += fmt::format(" volume {} {} outstanding {};", user->open() ? "open" : "not open",
                            user->outstanding(), user->reason());
    }
    return text;
}

Instant ClientLife::oldest() const {
    Instant oldest = Instant::max();
    for (const auto& user : users) oldest = std::min(oldest, user->oldest());
    return oldest;
}

std::vector<ClientLife::Wait> ClientLife::take_long_waits(Instant now) {
    note_wait({std::min(oldest(), now), now});
    return std::exchange(long_waits_, {});
}

}  // namespace failover
