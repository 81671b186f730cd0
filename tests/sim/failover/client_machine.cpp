#include "tests/sim/failover/client_machine.h"

#include <fmt/format.h>

#include <algorithm>

namespace failover {

ClientMachine::ClientMachine(const Surroundings& surroundings, rtrs::SimHost& first,
                             rtrs::SimHost& second, std::uint32_t number,
                             std::vector<std::string> servers,
                             std::vector<ServerVolume*> its_volumes)
    : surroundings_(surroundings),
      hosts_{&first, &second},
      number_(number),
      servers_(std::move(servers)),
      volumes_(std::move(its_volumes)) {}

rtrs::ClientSessionOptions ClientMachine::session_options() {
    const Options& options = surroundings_.options;
    rtrs::ClientSessionOptions made{.name = fmt::format("client-{}", number_),
                                    .io_connections = options.io_connections,
                                    .connect_timeout = milliseconds(options.connect_timeout_ms),
                                    .heartbeat_interval = milliseconds(options.heartbeat_ms),
                                    .heartbeat_timeout = milliseconds(options.heartbeat_timeout_ms),
                                    .reconnect_delay_max = milliseconds(options.reconnect_max_ms),
                                    .request_deadline = request_deadline(options),
                                    .probe_timeout = probe_timeout(options),
                                    .policy = static_cast<rtrs::PathPolicy>(options.policy),
                                    .identity = options.identity != 0 ? number_ + 1000 : 0,
                                    .life = ++lives_,
                                    .protection = options.client_failover != 0
                                                      ? rtrs::Protection::exactly_once
                                                      : rtrs::Protection::fenced};
    if (options.messages != 0) made.messages = rtrs::MessageOptions{};
    if (options.attempts_max != 0) made.reconnect_attempts_max = options.attempts_max;
    if (options.hold_ms != 0) made.hold_time = milliseconds(options.hold_ms);
    if (options.fail_fast_ms != 0) {
        made.fail_fast_time = std::min(Duration(milliseconds(options.fail_fast_ms)),
                                       made.hold_time.value_or(Duration::max()));
    }
    for (const std::string& server : servers_) {
        made.paths.push_back({.fabric = &host().fabric(), .source = "", .destination = server});
    }
    // A standby path now and then.
    if (made.paths.size() > 1 && surroundings_.random.chance(1, 4)) {
        made.paths.back().priority = rtrs::PathPriority::standby;
    }
    return made;
}

void ClientMachine::start() {
    if (life_ != nullptr || !host().up()) return;
    life_ = new ClientLife(surroundings_, host(), session_options(), counters, volumes_);
}

void ClientMachine::crash(rtrs::SimHost::CrashSeen seen) {
    if (life_ == nullptr) return;
    host().crash(seen);
    bury(std::exchange(life_, nullptr));
    died = true;
}

void ClientMachine::restart() {
    host().restart();
    start();
}

void ClientMachine::start_twin() {
    if (life_ == nullptr || old_ != nullptr || life_->closing) return;
    life_->superseded = true;
    for (const auto& user : life_->users) user->give_up_unanswered_writes();
    old_ = std::exchange(life_, nullptr);
    current_ = 1 - current_;
    host().restart();
    start();
}

void ClientMachine::end_old() {
    if (old_ != nullptr) old_->begin_close();
}

bool ClientMachine::poll_old() {
    if (old_ == nullptr) return true;
    if (!old_->closing || !old_->continue_close()) return false;
    delete std::exchange(old_, nullptr);
    return true;
}

void ClientMachine::crash_old() {
    if (old_ == nullptr) return;
    other_host().crash(rtrs::SimHost::CrashSeen::by_reset);
    bury(std::exchange(old_, nullptr));
    died = true;
}

void ClientMachine::change_a_path() {
    if (life_ == nullptr || life_->closing) return;
    rtrs::Random& random = surroundings_.random;
    rtrs::ClientSession& session = life_->session.rtrs();
    const auto paths = session.status().paths;
    using Operation = rtrs::ClientSession::PathOperation;
    if (surroundings_.options.operators != 0 && random.chance(1, 3) && !paths.empty()) {
        return change_settings(session);
    }
    if (random.chance(1, 6)) {
        return session.set_policy(static_cast<rtrs::PathPolicy>(random.below(4)));
    }
    const std::string& server = servers_[random.below(servers_.size())];
    if (random.chance(1, 3) || paths.empty()) {
        // Mostly there already.
        static_cast<void>(
            session.add_path({.fabric = &host().fabric(), .source = "", .destination = server}));
        return;
    }
    const std::string label = paths[random.below(paths.size())].label;
    static_cast<void>(session.operate_path(label, static_cast<Operation>(random.below(3))));
}

void ClientMachine::change_settings(rtrs::ClientSession& session) {
    rtrs::Random& random = surroundings_.random;
    const auto paths = session.status().paths;
    const auto priority =
        random.chance(1, 2) ? rtrs::PathPriority::prefer : rtrs::PathPriority::standby;
    static_cast<void>(session.set_path_priority(paths[random.below(paths.size())].label, priority));
    // Only where requests may fail for it.
    const std::uint32_t hold_ms = surroundings_.options.hold_ms;
    if (hold_ms == 0) return;
    const auto some = [&] {
        return milliseconds(1 + static_cast<std::uint32_t>(random.below(2 * hold_ms)));
    };
    const Duration hold = some();
    const Duration fail_fast = std::min(hold, some());
    life_->session.set_waiting(random.chance(3, 4) ? std::optional(hold) : std::nullopt,
                               random.chance(1, 2) ? std::optional(fail_fast) : std::nullopt);
}

void ClientMachine::remap_a_volume(std::uint32_t which) {
    if (life_ == nullptr || life_->closing) return;
    life_->users[which % life_->users.size()]->remap();
}

void ClientMachine::reconnect(std::uint32_t network) {
    if (life_ == nullptr || life_->closing) return;
    rtrs::ClientSession& session = life_->session.rtrs();
    for (const rtrs::PathStatus& path : session.status().paths) {
        if (path.destination != servers_[network]) continue;
        static_cast<void>(
            session.operate_path(path.label, rtrs::ClientSession::PathOperation::reconnect));
    }
}

bool ClientMachine::exchanges(std::uint32_t network) const {
    if (life_ == nullptr) return false;
    const auto paths = life_->session.rtrs().status().paths;
    return std::ranges::any_of(paths, [&](const rtrs::PathStatus& path) {
        return path.destination == servers_[network] && path.state == rtrs::PathState::exchanging;
    });
}

std::optional<Instant> ClientMachine::connected_since(std::uint32_t network) const {
    const auto paths = life_->session.rtrs().status().paths;
    const auto path = std::ranges::find_if(paths, [&](const rtrs::PathStatus& each) {
        return each.destination == servers_[network] && each.state == rtrs::PathState::connected;
    });
    return path == paths.end() ? std::nullopt : std::optional(path->since);
}

bool ClientMachine::restore_paths() {
    if (life_ == nullptr || life_->closing) return true;
    rtrs::ClientSession& session = life_->session.rtrs();
    for (const std::string& server : servers_) {
        static_cast<void>(
            session.add_path({.fabric = &host().fabric(), .source = "", .destination = server}));
    }
    bool all = true;
    for (const rtrs::PathStatus& path : session.status().paths) {
        if (path.state == rtrs::PathState::closing) all = false;
        if (path.state != rtrs::PathState::closed) continue;
        // Refused if it is being removed: it has to be added when it is gone.
        if (session.operate_path(path.label, rtrs::ClientSession::PathOperation::reconnect)) {
            all = false;
        }
    }
    return all;
}

void ClientMachine::remove() { delete std::exchange(life_, nullptr); }

}  // namespace failover
