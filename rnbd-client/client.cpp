#include "rnbd-client/client.h"

#include <algorithm>
#include <chrono>

#include "daemon/log.h"
#include "daemon/machine_identity.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

std::uint64_t milliseconds_since_epoch() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

Client::Client(rtrs::Reactor& reactor, rtrs::Random& random, rtrs::Tracer& tracer,
               ClientFabrics fabrics)
    : reactor_(reactor),
      random_(random),
      tracer_(tracer),
      fabrics_(fabrics),
      sockets_({reactor, tracer}) {}

Client::~Client() { RTRS_ASSERT(mappings_.empty() && sessions_.empty()); }

std::expected<void, std::string> Client::start(const ClientConfig& config) {
    for (const auto& session : config.sessions) {
        if (auto added = add_session(session); !added) return std::unexpected(added.error());
    }
    for (const auto& device : config.devices) {
        auto mapped = add_mapping(*sessions_.at(device.session), device);
        if (!mapped) return mapped;
    }
    return {};
}

std::expected<Client::Session*, std::string> Client::add_session(
    const ClientConfig::Session& config) {
    rtrs::ClientSessionOptions options{.name = config.name,
                                       .io_connections = config.connections,
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
                                       .life = milliseconds_since_epoch()};
    rtrs::Fabric& fabric = config.data_checksum ? fabrics_.tcp : fabrics_.tcp_unchecked;
    for (const auto& path : config.paths) {
        options.paths.push_back({.fabric = &fabric,
                                 .source = path.source,
                                 .destination = path.destination,
                                 .priority = path.priority});
    }
    auto session = std::make_unique<Session>(
        *this, rtrs::SessionEnvironment{reactor_, random_, tracer_}, std::move(options), config);
    for (const auto& path : config.paths) {
        if (const auto error = session->lock.take(config.name, path.destination)) {
            return std::unexpected("session " + config.name + " to " + path.destination + ": " +
                                   (error == std::errc::address_in_use
                                        ? "another rnbd-client on this machine has it"
                                        : error.message()));
        }
    }
    if (const auto error = session->remote.open()) {
        return std::unexpected("session " + config.name + ": " + error.message());
    }
    return sessions_.emplace(config.name, std::move(session)).first->second.get();
}

std::expected<void, std::string> Client::add_mapping(Session& session,
                                                     const ClientConfig::Device& config) {
    auto& mapping = *mappings_.emplace_back(
        std::make_unique<Mapping>(reactor_, sockets_, session.remote, config, *this));
    return mapping.start();
}

std::expected<void, ControlFailure> Client::map(const ClientConfig::Device& device,
                                                const ClientConfig::Session* new_session) {
    const auto failure = [](ControlError code, std::string message) {
        return std::unexpected(ControlFailure{code, std::move(message)});
    };
    if (stopped_) return failure(ControlError::stopping, "rnbd-client is stopping");
    for (const auto& mapping : mappings_) {
        if (mapping->config().name == device.name) {
            return failure(ControlError::exists, "a device " + device.name + " is mapped already");
        }
    }
    for (const auto& mapping : mappings_) {
        if (mapping->config().session == device.session &&
            mapping->config().volume == device.volume) {
            return failure(ControlError::exists, "volume " + device.volume + " of session " +
                                                     device.session + " is mapped already, as " +
                                                     mapping->config().name);
        }
    }
    Session* session = nullptr;
    if (const auto found = sessions_.find(device.session); found != sessions_.end()) {
        session = found->second.get();
        if (session->closing) {
            return failure(ControlError::busy, "session " + device.session + " is closing");
        }
        if (new_session != nullptr && new_session->paths != session->config.paths) {
            return failure(ControlError::exists,
                           "session " + device.session + " is there already, with other paths");
        }
    } else {
        if (new_session == nullptr) {
            return failure(ControlError::not_found, "there is no session " + device.session +
                                                        "; --path HOST:PORT makes one");
        }
        auto added = add_session(*new_session);
        if (!added) return failure(ControlError::failed, added.error());
        session = *added;
        session->temporary = true;
    }
    if (auto mapped = add_mapping(*session, device); !mapped) {
        return failure(ControlError::failed, mapped.error());
    }
    return {};
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
        return std::unexpected(ControlFailure{ControlError::not_found, std::move(message)});
    }
    if (stopped_ || found->second->closing) {
        return std::unexpected(
            ControlFailure{ControlError::stopping, "session " + name + " is closing"});
    }
    return found->second.get();
}

std::expected<void, ControlFailure> Client::add_path(const std::string& name,
                                                     const ClientConfig::Path& path) {
    const auto failure = [&](ControlError code, const std::string& message) {
        return std::unexpected(ControlFailure{
            code, "path " + path.to_string() + " of session " + name + ": " + message});
    };
    const auto session = find_session(name);
    if (!session) return std::unexpected(session.error());
    if (const auto error = (*session)->lock.take(name, path.destination)) {
        return failure(ControlError::busy, error == std::errc::address_in_use
                                               ? "another rnbd-client on this machine has it"
                                               : error.message());
    }
    const auto error = (*session)->remote.rtrs().add_path(
        {.fabric = (*session)->config.data_checksum ? &fabrics_.tcp : &fabrics_.tcp_unchecked,
         .source = path.source,
         .destination = path.destination,
         .priority = path.priority});
    if (!error) return {};
    if (error == std::errc::file_exists)
        return failure(ControlError::exists, "it is there already");
    if (error == std::errc::not_connected) {
        return failure(ControlError::failed,
                       "the session has ended: " + (*session)->remote.rtrs().status().reason);
    }
    return failure(ControlError::failed, error.message());
}

std::expected<void, ControlFailure> Client::unmap(const std::string& device, Unmap how,
                                                  std::function<void()> done) {
    for (const auto& mapping : mappings_) {
        if (mapping->config().name != device) continue;
        if (how == Unmap::if_unused && mapping->connections() > 0) {
            return std::unexpected(ControlFailure{
                ControlError::busy, device + " has " + std::to_string(mapping->connections()) +
                                        " NBD clients; --force disconnects them"});
        }
        unmapped_[mapping.get()].push_back(std::move(done));
        mapping->stop();
        return {};
    }
    return std::unexpected(
        ControlFailure{ControlError::not_found, "no device " + device + " is mapped"});
}

void Client::on_mapping_stopped(Mapping& mapping) {
    logger("rnbd.device").info("{}: gone", mapping.config().name);
    const std::string session = mapping.config().session;
    std::vector<std::function<void()>> done;
    if (const auto waiting = unmapped_.find(&mapping); waiting != unmapped_.end()) {
        done = std::move(waiting->second);
        unmapped_.erase(waiting);
    }
    std::erase_if(mappings_, [&](const auto& one) { return one.get() == &mapping; });
    for (const auto& call : done) call();
    const auto found = sessions_.find(session);
    const bool used = std::ranges::any_of(
        mappings_, [&](const auto& one) { return one->config().session == session; });
    if (found != sessions_.end() && !used && (found->second->temporary || stopped_)) {
        found->second->closing = true;
        found->second->remote.close();
    }
}

void Client::session_closed(Session& session) {
    const std::string name = session.config.name;
    sessions_.erase(name);
    finish_if_done();
}

void Client::stop(std::function<void()> done) {
    stopped_ = std::move(done);
    for (const auto& mapping : mappings_) mapping->stop();
    for (const auto& [name, session] : sessions_) {
        const bool used = std::ranges::any_of(
            mappings_, [&](const auto& one) { return one->config().session == name; });
        if (!used && !session->closing) {
            session->closing = true;
            session->remote.close();
        }
    }
    finish_if_done();
}

void Client::finish_if_done() {
    if (!stopped_ || !mappings_.empty() || !sessions_.empty()) return;
    reactor_.post(stopped_);
}

}  // namespace rnbd
