#include "rnbd-server/listeners.h"

#include <algorithm>
#include <map>
#include <set>

#include "daemon/log/log.h"
#include "rnbd-server/config_diff.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/host.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

constexpr rtrs::Duration retry_interval = std::chrono::seconds(1);

bool is_absent(const Listeners::Failure& failure) {
    return failure.error == std::errc::address_not_available ||
           failure.error == std::errc::address_family_not_supported ||
           failure.error == std::errc::no_such_device;
}

const char* clients_of(const ServerConfig::Listen& listen) {
    return listen.kernel ? "kernel" : listen.fabric == ConfigFabric::rdma ? "extended" : "any";
}

Listeners::Failure in_words(const ServerConfig::Listen& listen, const Listeners::Failure& failure) {
    return {failure.error, std::string("cannot listen on ") + to_word(listen.fabric) + " " +
                               listen.address + ": " + failure.text};
}

}  // namespace

Listeners::Listeners(const Surroundings& surroundings)
    : in_(surroundings),
      retry_timer_(surroundings.reactor, this, rtrs::member_call<&Listeners::try_again>) {}

std::expected<void, Listeners::Failure> Listeners::open_all(
    const std::vector<ServerConfig::Listen>& all) {
    for (const ServerConfig::Listen& listen : all) {
        const std::uint32_t portal = portals_ever_++;
        auto failed = open_by(listen, portal, InUse::waits);
        if (failed) continue;
        if (!is_absent(failed.error())) return std::unexpected(in_words(listen, failed.error()));
        wait_for(listen, portal, failed.error());
    }
    const auto waits = [](const Place& place) { return !place.shown.reason.empty(); };
    if (!places_.empty() && std::ranges::all_of(places_, waits)) {
        const Place& first = places_.front();
        return std::unexpected(
            in_words(first.listen, {rtrs::from_errno(EADDRNOTAVAIL), first.shown.reason}));
    }
    for (const Place& place : places_) {
        if (waits(place)) log_wait(place);
    }
    return {};
}

std::expected<void, Listeners::Failure> Listeners::open(const ServerConfig::Listen& listen,
                                                        Absent absent,
                                                        std::optional<std::uint32_t> again) {
    const std::uint32_t portal = again ? *again : portals_ever_++;
    auto failed = open_by(listen, portal, InUse::fails);
    if (failed) return {};
    if (absent == Absent::fails || !is_absent(failed.error())) {
        return std::unexpected(in_words(listen, failed.error()));
    }
    wait_for(listen, portal, failed.error());
    log_wait(places_.back());
    return {};
}

// Failures of this one are without the place.
std::expected<void, Listeners::Failure> Listeners::open_by(const ServerConfig::Listen& listen,
                                                           std::uint32_t portal, InUse in_use) {
    // The target has to know the portal before anybody comes in by it.
    places_.push_back({listen, portal, {}});
    tell_others();
    auto place = try_open(listen, portal, in_use);
    if (place) {
        places_.back() = std::move(*place);
    } else {
        places_.pop_back();
    }
    tell_others();
    if (!place) return std::unexpected(std::move(place.error()));
    return {};
}

std::expected<Listeners::Place, Listeners::Failure> Listeners::try_open(
    const ServerConfig::Listen& listen, std::uint32_t portal, InUse in_use) {
    rtrs::PortalOptions options{.id = portal};
    rtrs::Fabric* fabric = &in_.tcp;
    if (listen.fabric == ConfigFabric::rdma) {
        const auto device = in_.rdma.at(rtrs::host_of(listen.address));
        if (!device) return std::unexpected(Failure{device.error().code, device.error().text});
        fabric = *device;
        const auto invalidate = invalidation(*fabric);
        if (!invalidate) return std::unexpected(Failure{{}, invalidate.error()});
        options.invalidate = *invalidate;
        if (!listen.kernel) options.clients = rtrs::PortalOptions::Clients::extended;
    }
    const auto timeout = in_use == InUse::waits ? in_use_timeout : rtrs::Duration::zero();
    const auto address =
        while_in_use(timeout, [&] { return in_.server.listen(*fabric, listen.address, options); });
    if (!address) return std::unexpected(Failure{address.error(), address.error().message()});
    logger("rnbd.server")
        .info("listening on {} {}{}{}", to_word(listen.fabric), *address,
              fabric->device().empty() ? "" : " of " + fabric->device(),
              listen.kernel ? ", for kernel clients" : "");
    return Place{listen,
                 portal,
                 {.fabric = to_word(listen.fabric),
                  .device = fabric->device(),
                  .address = *address,
                  .clients = clients_of(listen),
                  .since = in_.reactor.now()}};
}

void Listeners::wait_for(const ServerConfig::Listen& listen, std::uint32_t portal,
                         const Failure& why) {
    const rtrs::Instant now = in_.reactor.now();
    places_.push_back({listen,
                       portal,
                       {.fabric = to_word(listen.fabric),
                        .address = listen.address,
                        .clients = clients_of(listen),
                        .reason = why.text,
                        .since = now,
                        .next_attempt = now + retry_interval}});
    retry_timer_.arm(now + retry_interval);
    tell_others();
}

void Listeners::log_wait(const Place& place) {
    logger("rnbd.server")
        .warn("not listening on {} {} yet: {}; tried again every second", place.shown.fabric,
              place.shown.address, place.shown.reason);
}

void Listeners::try_again() {
    bool waits = false;
    for (Place& place : places_) {
        if (place.shown.reason.empty()) continue;
        auto opened = try_open(place.listen, place.portal, InUse::fails);
        if (opened) {
            place = std::move(*opened);
            continue;
        }
        waits = true;
        if (opened.error().text != place.shown.reason) {
            place.shown.reason = opened.error().text;
            log_wait(place);
        }
        place.shown.next_attempt = in_.reactor.now() + retry_interval;
    }
    if (waits) retry_timer_.arm(in_.reactor.now() + retry_interval);
    tell_others();
}

// Whether a request's key can be taken back on this device, and what is done if not.
std::expected<rtrs::PortalOptions::Invalidate, std::string> Listeners::invalidation(
    rtrs::Fabric& fabric) {
    using Invalidate = rtrs::PortalOptions::Invalidate;
    const bool if_possible = in_.always_invalidate == AlwaysInvalidate::if_possible;
    if (in_.always_invalidate == AlwaysInvalidate::off || windows_work(fabric)) {
        return if_possible ? Invalidate::if_possible : Invalidate::as_server;
    }
    if (if_possible) {
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

void Listeners::close(std::uint32_t portal) {
    const auto place = place_of(portal);
    const bool waits = !place->shown.reason.empty();
    if (!waits) in_.server.stop_listening(place->portal);
    logger("rnbd.server")
        .info("no longer {} {} {}", waits ? "waiting for" : "listening on", place->shown.fabric,
              place->shown.address);
    places_.erase(place);
    tell_others();
}

bool Listeners::is_last_open(std::uint32_t portal) const {
    const auto open = [](const Place& place) { return place.shown.reason.empty(); };
    return std::ranges::count_if(places_, open) == 1 &&
           std::ranges::find_if(places_, open)->portal == portal;
}

void Listeners::set_kernel(std::uint32_t portal, const KernelListener& kernel) {
    Place& place = *place_of(portal);
    RTRS_ASSERT(place.listen.kernel);
    place.listen.kernel = kernel;
    tell_others();
}

std::optional<std::uint32_t> Listeners::portal_of(const std::string& name) const {
    const auto names = listener_names(configured());
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return std::nullopt;
    return places_[static_cast<std::size_t>(found - names.begin())].portal;
}

std::optional<ServerConfig::Listen> Listeners::find(std::uint32_t portal) const {
    const auto found = std::ranges::find(places_, portal, &Place::portal);
    if (found == places_.end()) return std::nullopt;
    return found->listen;
}

std::vector<ServerConfig::Listen> Listeners::configured() const {
    std::vector<ServerConfig::Listen> listen;
    for (const Place& place : places_) listen.push_back(place.listen);
    return listen;
}

std::vector<Listeners::Place>::iterator Listeners::place_of(std::uint32_t portal) {
    const auto found = std::ranges::find(places_, portal, &Place::portal);
    RTRS_ASSERT(found != places_.end());
    return found;
}

void Listeners::tell_others() {
    std::map<std::uint32_t, KernelListener> portals;
    in_.shown.clear();
    for (const Place& place : places_) {
        if (place.listen.kernel) portals.emplace(place.portal, *place.listen.kernel);
        if (!place.shown.address.empty()) in_.shown.push_back(place.shown);
    }
    std::set<std::uint32_t> in_use;
    for (const rtrs::ServerSession* session : in_.server.sessions())
        in_use.insert(session->portal());
    in_.target.use_kernel_portals(std::move(portals), in_use);
}

}  // namespace rnbd
