#include "rnbd-client/client_session.h"

#include <algorithm>
#include <utility>

#include "daemon/log/log.h"
#include "rtrs/base/assert.h"

namespace rnbd {

Client::Session::Session(Client& its_client, rtrs::SessionEnvironment environment,
                         rtrs::ClientSessionOptions options, ClientConfig::Session its_config)
    : client(its_client),
      config(std::move(its_config)),
      remote(environment, std::move(options), *this),
      questions(environment.clock, remote),
      connect_timer(environment.clock, this,
                    [](void* self) {
                        auto& session = *static_cast<Session*>(self);
                        session.client.connect_again(session);
                    }),
      awaited(environment.clock, *this) {}

ClientConfig::Path Client::Session::path_of(std::string_view label, rtrs::PathPriority priority) {
    auto path = ClientConfig::Path::parse(label);
    RTRS_ASSERT(path);
    path->priority = priority;
    return std::move(*path);
}

std::vector<ClientConfig::Path> Client::Session::paths() {
    std::vector<ClientConfig::Path> all;
    for (const rtrs::PathStatus& path : remote.rtrs().status().paths) {
        all.push_back(path_of(path.label, path.priority));
    }
    for (const AwaitedPath& one : awaited.all()) all.push_back(path_of(one.label, one.priority));
    return all;
}

bool Client::Session::forget_awaited(std::string_view label) {
    const AwaitedPath* const one = awaited.find(label);
    if (one == nullptr) return false;
    const std::string destination = path_of(label, one->priority).destination;
    awaited.forget(label);
    release_lock(destination);
    return true;
}

std::error_code Client::Session::set_path_priority(const ClientConfig::Path& path) noexcept {
    const std::string label = path.to_string();
    if (awaited.set_priority(label, path.priority)) return {};
    return remote.rtrs().set_path_priority(label, path.priority);
}

void Client::Session::release_lock(const std::string& destination) {
    const auto all = paths();
    const auto found = std::ranges::find(all, destination, &ClientConfig::Path::destination);
    if (found != all.end()) return;
    lock.release(config.name, destination);
}

ClientConfig::Session Client::Session::now() {
    ClientConfig::Session is = config;
    const rtrs::ClientSessionOptions& options = remote.rtrs().options();
    is.policy = remote.rtrs().status().policy;
    is.max_reconnect_attempts = options.reconnect_attempts_max;
    is.paths = paths();
    return is;
}

// Not while its devices are being cut off, until they have gone.
bool Client::Session::may_add_awaited() const noexcept {
    return !client.stopped_ && !closing && cut_off.empty();
}

std::optional<rtrs::RdmaDevices::Error> Client::Session::add_awaited(const AwaitedPath& path) {
    const auto address = client.address_of(config, path_of(path.label, path.priority));
    if (!address) return address.error();
    const std::error_code error = remote.rtrs().add_path(*address);
    // Or it has been added by hand.
    if (!error || error == std::errc::file_exists) return std::nullopt;
    return rtrs::RdmaDevices::Error{error, error.message()};
}

void Client::Session::on_awaited(const AwaitedPath& path) {
    logger("rnbd.client")
        .warn("{}: path {} is not used yet: {}; tried again every second", config.name, path.label,
              path.reason.text);
}

// What it has sent by that path is over: nothing of it lands any more.
void Client::Session::on_session_path_gone(std::string_view label) {
    release_lock(path_of(label, rtrs::PathPriority::prefer).destination);
}

void Client::Session::on_catalog_event(const CatalogEvent& event) {
    auto& log = logger("rnbd.client");
    switch (event.kind) {
        case CatalogEventKind::draining:
            return log.info("{}: the server is being drained", config.name);
        case CatalogEventKind::accepting:
            return log.info("{}: the server lets things be opened again", config.name);
        case CatalogEventKind::ending:
            return log.info("{}: the server is about to end", config.name);
        case CatalogEventKind::added:
        case CatalogEventKind::removed:
            // The first picture is nothing but these.
            return log.debug("{}: export {}: {}", config.name, printable(event.entry.name),
                             to_string(event.kind));
        case CatalogEventKind::resized:
        case CatalogEventKind::access:
        case CatalogEventKind::waiting:
        case CatalogEventKind::ready:
        case CatalogEventKind::taken:
            return log.info("{}: export {}: {}, {} bytes, {}", config.name,
                            printable(event.entry.name), to_string(event.kind),
                            event.entry.size_bytes, event.entry.writable ? "rw" : "ro");
    }
}

}  // namespace rnbd
