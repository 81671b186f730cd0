#include "rnbd-server/listeners.h"

#include <algorithm>

#include "daemon/log.h"
#include "rnbd-server/config_diff.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

std::string host_of(const std::string& address) {
    std::string host = address.substr(0, address.rfind(':'));
    return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

std::expected<void, Listeners::Failure> Listeners::open(const ServerConfig::Listen& listen,
                                                        InUse in_use,
                                                        std::optional<std::uint32_t> again) {
    const std::uint32_t door = again ? *again : doors_ever_++;
    // The target has to know the door before anybody comes in by it.
    places_.push_back({listen, door, {}});
    tell_others();
    auto place = try_open(listen, door, in_use);
    if (!place) {
        places_.pop_back();
        tell_others();
        place.error().text = std::string("cannot listen on ") + to_word(listen.fabric) + " " +
                             listen.address + ": " + place.error().text;
        return std::unexpected(std::move(place.error()));
    }
    places_.back() = std::move(*place);
    tell_others();
    return {};
}

std::expected<Listeners::Place, Listeners::Failure> Listeners::try_open(
    const ServerConfig::Listen& listen, std::uint32_t door, InUse in_use) {
    using Clients = rtrs::DoorOptions::Clients;
    rtrs::DoorOptions options{.id = door};
    rtrs::Fabric* fabric = &in_.tcp;
    if (listen.fabric == ConfigFabric::rdma) {
        const auto device = in_.rdma.at(host_of(listen.address));
        if (!device) return std::unexpected(Failure{{}, device.error().text});
        fabric = *device;
        const auto invalidate = invalidation(*fabric);
        if (!invalidate) return std::unexpected(Failure{{}, invalidate.error()});
        options.invalidate = *invalidate;
        if (!listen.kernel) options.clients = Clients::extended;
    }
    const auto patience = in_use == InUse::waits ? in_use_patience : rtrs::Duration::zero();
    const auto address =
        while_in_use(patience, [&] { return in_.server.listen(*fabric, listen.address, options); });
    if (!address) return std::unexpected(Failure{address.error(), address.error().message()});
    const char* const clients = listen.kernel                     ? "kernel"
                                : options.clients == Clients::any ? "any"
                                                                  : "extended";
    logger("rnbd.server")
        .info("listening on {} {}{}{}", to_word(listen.fabric), *address,
              fabric->device().empty() ? "" : " of " + fabric->device(),
              listen.kernel ? ", for kernel clients" : "");
    return Place{listen, door, {to_word(listen.fabric), fabric->device(), *address, clients}};
}

// Whether a request's key can be taken back on this device, and what is done if not.
std::expected<rtrs::DoorOptions::Invalidate, std::string> Listeners::invalidation(
    rtrs::Fabric& fabric) {
    using Invalidate = rtrs::DoorOptions::Invalidate;
    if (in_.always_invalidate == AlwaysInvalidate::off || windows_work(fabric)) {
        return Invalidate::as_server;
    }
    if (in_.always_invalidate == AlwaysInvalidate::if_possible) {
        logger("rnbd.server")
            .warn(
                "{} has no memory windows: always_invalidate is off there, and a client can "
                "write into its requests' memory at any time",
                fabric.device());
        return Invalidate::never;
    }
    return std::unexpected(fabric.device() +
                           " has no memory windows, which always_invalidate is made of; say "
                           "always_invalidate: if-possible, or false");
}

void Listeners::close(std::uint32_t door) {
    const auto place = place_of(door);
    in_.server.stop_listening(place->door);
    logger("rnbd.server")
        .info("no longer listening on {} {}", place->shown.fabric, place->shown.address);
    places_.erase(place);
    tell_others();
}

void Listeners::set_kernel(std::uint32_t door, const KernelListener& kernel) {
    Place& place = *place_of(door);
    RTRS_ASSERT(place.listen.kernel);
    place.listen.kernel = kernel;
    tell_others();
}

std::optional<std::uint32_t> Listeners::door_of(const std::string& name) const {
    const auto names = listener_names(configured());
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return std::nullopt;
    return places_[static_cast<std::size_t>(found - names.begin())].door;
}

std::optional<ServerConfig::Listen> Listeners::find(std::uint32_t door) const {
    const auto found = std::ranges::find(places_, door, &Place::door);
    if (found == places_.end()) return std::nullopt;
    return found->listen;
}

std::vector<ServerConfig::Listen> Listeners::configured() const {
    std::vector<ServerConfig::Listen> listen;
    for (const Place& place : places_) listen.push_back(place.listen);
    return listen;
}

std::vector<Listeners::Place>::iterator Listeners::place_of(std::uint32_t door) {
    const auto found = std::ranges::find(places_, door, &Place::door);
    RTRS_ASSERT(found != places_.end());
    return found;
}

void Listeners::tell_others() {
    std::map<std::uint32_t, KernelListener> doors;
    in_.shown.clear();
    for (const Place& place : places_) {
        if (place.listen.kernel) doors.emplace(place.door, *place.listen.kernel);
        if (!place.shown.address.empty()) in_.shown.push_back(place.shown);
    }
    in_.target.use_kernel_doors(std::move(doors));
}

}  // namespace rnbd
