#include "rnbd-client/client.h"

#include <algorithm>
#include <set>

#include "daemon/log/log.h"
#include "rnbd-client/client_session.h"
#include "rnbd/identity/session_identity.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

// In any order; what they are preferred by is another matter.
bool same_paths(const std::vector<ClientConfig::Path>& some,
                const std::vector<ClientConfig::Path>& others) {
    std::set<std::string> names, other_names;
    for (const auto& path : some) names.insert(path.to_string());
    for (const auto& path : others) other_names.insert(path.to_string());
    return names == other_names;
}

rtrs::ClientSessionOptions session_options(const ClientConfig::Session& config) {
    return {.name = config.name,
            .io_connections = config.connections,
            .connect_timeout = config.connect_timeout,
            .heartbeat_interval = config.heartbeat_interval,
            .heartbeat_timeout = config.heartbeat_timeout,
            .reconnect_delay_min = config.reconnect_delay_min,
            .reconnect_delay_max = config.reconnect_delay_max,
            .reconnect_attempts_max = config.max_reconnect_attempts,
            .hold_time = config.hold_time,
            .fail_fast_time = config.fail_fast_time,
            .request_deadline = config.request_deadline,
            .probe_timeout = config.probe_timeout,
            .policy = config.policy,
            .identity = machine_identity(),
            .life = session_life(),
            .messages = rtrs::MessageOptions{}};
}

bool has_volume_of(const Mapping& mapping, const ClientConfig::Device& device) {
    return mapping.config().session == device.session && mapping.config().volume == device.volume;
}

std::string why_not_locked(std::error_code error) {
    return error == std::errc::address_in_use ? "another rnbd-client on this machine has it"
                                              : error.message();
}

}  // namespace

Client::Client(rtrs::Reactor& reactor, rtrs::Random& random, rtrs::Tracer& tracer,
               ClientFabrics fabrics, WriterNumbers& writers)
    : reactor_(reactor),
      random_(random),
      tracer_(tracer),
      fabrics_(fabrics),
      writers_(writers),
      sockets_({reactor, tracer}, [this] { finish_if_done(); }) {}

Client::~Client() { RTRS_ASSERT(mappings_.empty() && sessions_.empty() && discoveries_.empty()); }

std::expected<void, std::string> Client::start(const ClientConfig& config) {
    for (const auto& session : config.sessions) {
        if (auto added = add_session(session, Pathless::waits); !added) {
            return std::unexpected(added.error());
        }
    }
    for (const auto& device : config.devices) {
        auto mapped = add_mapping(*sessions_.at(device.session), device).start(InUse::waits);
        if (!mapped) return mapped;
    }
    return {};
}

std::expected<Client::Session*, std::string> Client::add_session(
    const ClientConfig::Session& config, Pathless pathless) {
    const auto path_failure = [&](const ClientConfig::Path& path, const std::string& why) {
        return std::unexpected("session " + config.name + ", path " + path.to_string() + ": " +
                               why);
    };
    rtrs::ClientSessionOptions options = session_options(config);
    std::vector<std::pair<ClientConfig::Path, rtrs::RdmaDevices::Error>> awaited;
    for (const auto& path : config.paths) {
        auto address = address_of(config, path);
        if (address) {
            options.paths.push_back(std::move(*address));
        } else if (AwaitedPaths::may_come(address.error().code)) {
            awaited.emplace_back(path, address.error());
        } else {
            return path_failure(path, address.error().text);
        }
    }
    if (options.paths.empty() && pathless == Pathless::fails) {
        return path_failure(awaited.front().first, awaited.front().second.text);
    }
    auto session = std::make_unique<Session>(
        *this, rtrs::SessionEnvironment{reactor_, random_, tracer_}, std::move(options), config);
    for (const auto& path : config.paths) {
        if (const auto error = session->lock.take(config.name, path.destination)) {
            return std::unexpected("session " + config.name + " to " + path.destination + ": " +
                                   why_not_locked(error));
        }
    }
    if (const auto error = session->remote.open()) {
        return std::unexpected("session " + config.name + ": " + error.message());
    }
    Session* const added = sessions_.emplace(config.name, std::move(session)).first->second.get();
    if (hold_limit_) set_waiting(*added);
    for (auto& [path, reason] : awaited) {
        added->awaited.add(path.to_string(), path.priority, std::move(reason));
    }
    return added;
}

std::expected<rtrs::PathAddress, rtrs::RdmaDevices::Error> Client::address_of(
    const ClientConfig::Session& session, const ClientConfig::Path& path) {
    rtrs::PathAddress address{.source = path.source,
                              .destination = path.destination,
                              .priority = path.priority,
                              .label = path.to_string(),
                              .worker = paths_ever_++};
    address.fabric = session.data_checksum ? &fabrics_.tcp : &fabrics_.tcp_unchecked;
    if (path.fabric == ClientConfig::Path::Fabric::rdma) {
        const auto fabric = fabrics_.rdma.towards(path.source, path.destination);
        if (!fabric) return std::unexpected(fabric.error());
        address.fabric = *fabric;
    }
    return address;
}

ClientConfig::Path::Fabric Client::fabric_towards(const ClientConfig::Path& path) {
    return fabrics_.rdma.towards(path.source, path.destination) ? ClientConfig::Path::Fabric::rdma
                                                                : ClientConfig::Path::Fabric::tcp;
}

// What uses it may have outlived this daemon's former life, which ended without an unmap.
Mapping& Client::add_mapping(Session& session, const ClientConfig::Device& config) {
    const WriterNumbers::Life former = writers_.former(config.session, config.volume);
    Mapping& made = *mappings_.emplace_back(std::make_unique<Mapping>(
        reactor_, sockets_, session.remote, session.shares, config, free_number(), former, *this));
    on_mapping_changed(made);
    return made;
}

void Client::on_mapping_changed(Mapping& mapping) {
    const ClientConfig::Device& config = mapping.config();
    if (mapping.stopping()) return;
    const WriterNumbers::Life life = mapping.life();
    if (life != WriterNumbers::Life{} && writers_.keep(config.session, config.volume, life)) {
        writers_changed();
    }
}

// One write for all that start or end in a turn. It is soon enough: nobody holds anything before
// the server has answered.
void Client::writers_changed() {
    if (std::exchange(writers_write_posted_, true)) return;
    reactor_.post([this] {
        writers_write_posted_ = false;
        const std::error_code error = writers_.write();
        // Once for as long as it goes wrong.
        if (error == std::exchange(writers_error_, error) || !error) return;
        logger("rnbd.client")
            .warn(
                "{}: {}; if this daemon is killed, and another machine writes to a volume before "
                "it is back, servers will not recognise what was held here as old",
                writers_.path(), error.message());
    });
}

std::uint32_t Client::free_number() const noexcept {
    std::uint32_t number = 0;
    while (
        std::ranges::any_of(mappings_, [&](const auto& one) { return one->number() == number; })) {
        ++number;
    }
    return number;
}

void Client::limit_holding(std::optional<rtrs::Duration> limit) {
    hold_limit_ = limit;
    limited_at_ = reactor_.now();
    for (const auto& [name, session] : sessions_) set_waiting(*session);
}

void Client::set_waiting(Session& session) {
    std::optional<rtrs::ClientSessionOptions::HoldLimit> limit;
    if (hold_limit_) limit = {*hold_limit_, limited_at_};
    session.remote.set_waiting(session.config.hold_time, session.config.fail_fast_time, limit);
}

std::expected<Client::Session*, ControlFailure> Client::session_for(
    const ClientConfig::Device& device, const ClientConfig::Session* new_session) {
    if (const auto found = sessions_.find(device.session); found != sessions_.end()) {
        Session* const session = found->second.get();
        if (session->closing) {
            return command_failed(ControlError::busy, "session " + device.session + " is closing");
        }
        if (new_session != nullptr && !same_paths(new_session->paths, session->paths())) {
            return command_failed(ControlError::exists, "session " + device.session +
                                                            " is there already, with other paths");
        }
        return session;
    }
    if (new_session == nullptr) {
        return command_failed(ControlError::not_found, "there is no session " + device.session +
                                                           "; --path HOST:PORT makes one");
    }
    const auto added = add_session(*new_session, Pathless::fails);
    if (!added) return command_failed(ControlError::failed, added.error());
    (*added)->temporary = true;
    return *added;
}

void Client::map(const ClientConfig::Device& device, const ClientConfig::Session* new_session,
                 Mapped done) {
    const auto failed = [&](ControlError code, std::string message) {
        done(command_failed(code, std::move(message)));
    };
    if (stopped_) return failed(ControlError::stopping, "rnbd-client is stopping");
    for (const auto& mapping : mappings_) {
        if (mapping->config().name != device.name || mapping->stopping()) continue;
        return failed(ControlError::exists, "a device " + device.name + " is mapped already");
    }
    for (const auto& mapping : mappings_) {
        if (!has_volume_of(*mapping, device) || mapping->stopping()) continue;
        return failed(ControlError::exists, "volume " + device.volume + " of session " +
                                                device.session + " is mapped already, as " +
                                                mapping->config().name);
    }
    if (const Mapping* const former = leaving(device)) {
        return failed(ControlError::busy,
                      "device " + former->config().name + " is still being unmapped");
    }
    const auto session = session_for(device, new_session);
    if (!session) return done(std::unexpected(session.error()));
    if ((*session)->taken_over()) return map_on_successor(**session, device, std::move(done));
    Mapping& mapping = add_mapping(**session, device);
    const auto started = mapping.start(InUse::fails);
    if (started) return done({});
    const ControlFailure failure{ControlError::failed, started.error()};
    // It ends, and has to close what it may have open at the server.
    if (std::ranges::find(mappings_, &mapping, &std::unique_ptr<Mapping>::get) == mappings_.end())
        return done(std::unexpected(failure));
    unmapped_[&mapping].push_back(
        [done = std::move(done), failure](const std::expected<Gone, ControlFailure>&) {
            done(std::unexpected(failure));
        });
}

const Mapping* Client::leaving(const ClientConfig::Device& device) const noexcept {
    const auto found = std::ranges::find_if(mappings_, [&](const auto& one) {
        return one->stopping() &&
               (one->config().name == device.name || has_volume_of(*one, device));
    });
    return found == mappings_.end() ? nullptr : found->get();
}

// To map something anew is to take the name back, unless there are devices still that knew the
// volumes before: what they hold must not be written now.
void Client::map_on_successor(Session& session, const ClientConfig::Device& device, Mapped done) {
    const std::string& name = session.config.name;
    for (const auto& mapping : mappings_) {
        if (mapping->config().session != name) continue;
        return done(command_failed(ControlError::busy, "session " + name + " has ended (" +
                                                           session.remote.rtrs().status().reason +
                                                           "): unmap its device " +
                                                           mapping->config().name + " first"));
    }
    const auto close_and_go_on =
        [this, config = session.now(), temporary = session.temporary, device,
         done = std::move(done)](const std::expected<void, ControlFailure>& closed) {
            if (!closed) return done(std::unexpected(closed.error()));
            if (const auto made = make_session(config); !made)
                return done(std::unexpected(made.error()));
            sessions_.at(config.name)->temporary = temporary;
            map(device, nullptr, done);
        };
    close_session(name, close_and_go_on);
}

std::expected<void, ControlFailure> Client::make_session(const ClientConfig::Session& config) {
    if (stopped_) {
        return command_failed(ControlError::stopping, "rnbd-client is stopping");
    }
    if (sessions_.contains(config.name)) {
        return command_failed(ControlError::exists, "session " + config.name + " is there already");
    }
    const auto added = add_session(config, Pathless::waits);
    if (!added) return command_failed(ControlError::failed, added.error());
    logger("rnbd.client").info("{}: added", config.name);
    return {};
}

void Client::close_session(const std::string& name, Closed done) {
    const auto session = find_session(name);
    if (!session) return done(std::unexpected(session.error()));
    for (const auto& mapping : mappings_) {
        if (mapping->config().session != name) continue;
        return done(command_failed(ControlError::busy,
                                   "device " + mapping->config().name + " is on session " + name));
    }
    logger("rnbd.client").info("{}: being removed", name);
    (*session)->closed = std::move(done);
    (*session)->closing = true;
    (*session)->remote.close();
}

void Client::keep_session(const ClientConfig::Session& config) {
    const auto found = sessions_.find(config.name);
    if (found == sessions_.end() || found->second->closing) return;
    found->second->temporary = false;
    found->second->config.paths = config.paths;
}

std::expected<Client::Session*, ControlFailure> Client::find_session(
    const std::string& name) const {
    const auto found = sessions_.find(name);
    if (found == sessions_.end()) {
        std::string message = "there is no session " + name + "; rnbd-client has ";
        for (const auto& [other, session] : sessions_) {
            message += (session == sessions_.begin()->second ? "" : ", ") + other;
        }
        if (sessions_.empty()) message += "none";
        return command_failed(ControlError::not_found, std::move(message));
    }
    if (stopped_ || found->second->closing) {
        return command_failed(ControlError::stopping, "session " + name + " is closing");
    }
    return found->second.get();
}

std::expected<void, ControlFailure> Client::add_path(const std::string& name,
                                                     const ClientConfig::Path& path) {
    const auto failure = [&](ControlError code, const std::string& message) {
        return command_failed(code,
                              "path " + path.to_string() + " of session " + name + ": " + message);
    };
    const auto session = find_session(name);
    if (!session) return std::unexpected(session.error());
    if (const auto error = (*session)->lock.take(name, path.destination)) {
        return failure(ControlError::busy, why_not_locked(error));
    }
    const auto address = address_of((*session)->config, path);
    if (!address) {
        (*session)->release_lock(path.destination);
        return failure(ControlError::failed, address.error().text);
    }
    const auto error = (*session)->remote.rtrs().add_path(*address);
    if (!error) {
        (*session)->forget_awaited(path.to_string());
        return {};
    }
    (*session)->release_lock(path.destination);
    if (error == std::errc::file_exists)
        return failure(ControlError::exists, "it is there already");
    if (error == std::errc::not_connected) {
        return failure(ControlError::failed,
                       "the session has ended: " + (*session)->remote.rtrs().status().reason);
    }
    return failure(ControlError::failed, error.message());
}

}  // namespace rnbd
