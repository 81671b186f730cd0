#include "rtrs/fabric/sim/sim_fabric.h"

#include <algorithm>
#include <cerrno>

#include "rtrs/base/assert.h"
#include "rtrs/base/host.h"
#include "rtrs/fabric/sim/sim_connection.h"

namespace rtrs::sim {

std::string SocketAddress::text() const { return join_host_port(host, port); }

std::string parse_host(const std::string& text) {
    const std::string_view host = without_brackets(text);
    const bool bracketed = host.size() != text.size();
    const auto four = bracketed ? std::nullopt : canonical_host(host, IpVersion::four);
    return four ? *four : canonical_host(host, IpVersion::six).value_or("");
}

std::optional<SocketAddress> parse_address(const std::string& text) {
    const auto parts = split_host_port(text);
    if (!parts) return std::nullopt;
    auto host = canonical_host(parts->host, parts->version());
    if (!host) return std::nullopt;
    return SocketAddress{.host = std::move(*host), .port = parts->port};
}

// --- ProcessClock

void ProcessClock::arm(Timer& timer, Instant deadline) {
    if (stopped_) return;
    timers_.arm(timer, deadline);
    schedule_wake(deadline);
}

void ProcessClock::schedule_wake(Instant deadline) {
    if (deadline >= wake_at_) return;
    wake_at_ = deadline;
    world_.schedule(deadline, *this, ++wake_);
}

void ProcessClock::on_event(std::uint64_t wake) {
    if (stopped_ || wake != wake_) return;
    if (host_ != nullptr && host_->stalled_until() > now()) {
        world_.schedule(host_->stalled_until(), *this, wake);
        return;
    }
    wake_at_ = Instant::max();
    timers_.expire(now());
    if (const auto deadline = timers_.next_deadline()) schedule_wake(*deadline);
}

// --- SimFabric

SimListener::~SimListener() { process_.unbind(*this); }

Duration SimFabric::connect_timeout() const noexcept {
    return process_.world().options().connect_timeout;
}

std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> SimFabric::create_domain() {
    return std::make_unique<Domain>(process_);
}

std::expected<std::unique_ptr<Listener>, std::error_code> SimFabric::listen(
    const std::string& address, ListenerHandler& handler) {
    auto bound = parse_address(address);
    if (!bound) return std::unexpected(from_errno(EINVAL));
    const auto& own = process_.host().addresses();
    const bool any = bound->host == "0.0.0.0" || bound->host == "::";
    if (!any && std::ranges::find(own, bound->host) == own.end()) {
        return std::unexpected(from_errno(EADDRNOTAVAIL));
    }
    if (bound->port == 0) {
        do {
            bound->port = process_.host().next_port();
        } while (process_.port_taken(*bound));
    }
    auto listener = std::make_unique<SimListener>(process_, *bound, handler);
    if (!process_.bind(*listener)) return std::unexpected(from_errno(EADDRINUSE));
    return listener;
}

std::optional<std::string> SimFabric::pick_source(const std::string& source,
                                                  const std::string& destination) const {
    const auto& own = process_.host().addresses();
    if (!source.empty()) {
        std::string host = parse_host(source);
        if (host.empty()) return std::nullopt;
        return host;
    }
    Network& network = process_.world().network().inside();
    const Network::AddressId id = network.id(destination);
    if (id == Network::nowhere) return own.front();
    const auto& theirs = network.host(id).addresses();
    const auto index =
        static_cast<std::size_t>(std::ranges::find(theirs, destination) - theirs.begin());
    return own[index < own.size() ? index : 0];
}

std::expected<std::unique_ptr<Endpoint>, std::error_code> SimFabric::connect(
    ProtectionDomain& domain, const std::string& source, const std::string& destination,
    Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) {
    const auto target = parse_address(destination);
    if (!target) return std::unexpected(from_errno(EINVAL));
    const auto from = pick_source(source, target->host);
    if (!from) return std::unexpected(from_errno(EINVAL));
    if (private_data.size() > private_data_request_max) {
        return std::unexpected(from_errno(EMSGSIZE));
    }
    const Connection::Ends ends{{*from, process_.host().next_port()}, *target};
    auto* connection = new Connection(process_.world().network().inside(), process_, ends,
                                      private_data, options.packets);
    return std::make_unique<SimEndpoint>(*connection, 0, static_cast<Domain&>(domain), options,
                                         handler);
}

// --- Process

Process::Process(SimWorld& world, SimHost* host)
    : world_(world),
      host_(host),
      clock_(world, host),
      keys_(world.options().keys_max, static_cast<std::uint32_t>(world.random().below(1u << 12))),
      fabric_(*this) {}

void Process::die() noexcept {
    alive_ = false;
    clock_.stop();
    listeners_.clear();
}

bool Process::port_taken(const SocketAddress& address) noexcept {
    auto [at, end] = listeners_.equal_range(address.port);
    return std::any_of(at, end,
                       [&](const auto& each) { return each.second->bound().host == address.host; });
}

bool Process::bind(SimListener& listener) {
    if (port_taken(listener.bound())) return false;
    listeners_.emplace(listener.bound().port, &listener);
    return true;
}

void Process::unbind(SimListener& listener) noexcept {
    std::erase_if(listeners_, [&](const auto& each) { return each.second == &listener; });
}

SimListener* Process::find_listener(const SocketAddress& destination) noexcept {
    SimListener* found = nullptr;
    auto [at, end] = listeners_.equal_range(destination.port);
    for (; at != end; ++at) {
        const std::string& host = at->second->bound().host;
        if (host == destination.host) return at->second;
        const bool six = destination.host.find(':') != std::string::npos;
        if (host == "::" || (host == "0.0.0.0" && !six)) found = at->second;
    }
    return found;
}

// --- Network

// What is left is held by events only, which will never happen.
Network::~Network() {
    while (!connections_.empty()) delete connections_.back();
}

void Network::add(SimHost& host, const std::string& address) {
    RTRS_ASSERT(id(address) == nowhere);
    ids_.emplace(address, static_cast<AddressId>(hosts_.size()));
    hosts_.push_back(&host);
    links_.resize(hosts_.size());
    for (auto& row : links_) row.resize(hosts_.size());
}

Network::AddressId Network::id(const std::string& address) const noexcept {
    const auto found = ids_.find(address);
    return found == ids_.end() ? nowhere : found->second;
}

void Network::add(Connection& connection) {
    connection.index = connections_.size();
    connections_.push_back(&connection);
}

void Network::remove(Connection& connection) noexcept {
    connections_[connection.index] = connections_.back();
    connections_[connection.index]->index = connection.index;
    connections_.pop_back();
}

void Network::unblock() {
    for (Connection* connection : connections_) connection->unblock();
}

}  // namespace rtrs::sim
