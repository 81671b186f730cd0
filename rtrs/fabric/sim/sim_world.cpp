#include "rtrs/fabric/sim/sim_world.h"

#include <map>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/sim/buffer_pool.h"
#include "rtrs/fabric/sim/sim_connection.h"
#include "rtrs/fabric/sim/sim_fabric.h"

namespace rtrs {

// --- SimNetwork

SimNetwork::SimNetwork(SimWorld& world) : inside_(std::make_unique<sim::Network>(world)) {}
SimNetwork::~SimNetwork() = default;

namespace {

sim::Network::AddressId known(sim::Network& network, const std::string& address) {
    const sim::Network::AddressId id = network.id(sim::parse_host(address));
    RTRS_ASSERT(id != sim::Network::nowhere);
    return id;
}

}  // namespace

void SimNetwork::cut(const std::string& a, const std::string& b) {
    cut_one_way(a, b);
    cut_one_way(b, a);
}

void SimNetwork::cut_one_way(const std::string& from, const std::string& to) {
    inside_->link(known(*inside_, from), known(*inside_, to)).cut = true;
}

void SimNetwork::lose_large(const std::string& a, const std::string& b, std::uint32_t bytes_max) {
    inside_->link(known(*inside_, a), known(*inside_, b)).bytes_max = bytes_max;
    inside_->link(known(*inside_, b), known(*inside_, a)).bytes_max = bytes_max;
}

void SimNetwork::heal(const std::string& a, const std::string& b) {
    inside_->link(known(*inside_, a), known(*inside_, b)).heal();
    inside_->link(known(*inside_, b), known(*inside_, a)).heal();
    inside_->unblock();
}

void SimNetwork::heal_all() {
    for (sim::Network::AddressId from = 0; from < inside_->addresses(); ++from) {
        for (sim::Network::Link& link : inside_->links_from(from)) link.heal();
    }
    for (sim::Connection* connection : inside_->connections()) connection->keep_nothing();
    inside_->unblock();
}

void SimNetwork::stall(const std::string& from, const std::string& to, Duration duration) {
    sim::Network::Link& link = inside_->link(known(*inside_, from), known(*inside_, to));
    link.stalled_until = std::max(link.stalled_until, inside_->world().now() + duration);
}

void SimNetwork::keep(const std::string& from, const std::string& to, std::uint32_t which) {
    std::vector<std::pair<sim::Connection*, sim::SideIndex>> between;
    inside_->for_each_between(known(*inside_, from), known(*inside_, to),
                              [&](sim::Connection& connection, sim::SideIndex side) {
                                  between.emplace_back(&connection, side);
                              });
    if (between.empty()) return;
    const auto& [connection, side] = between[which % between.size()];
    connection->keep(side);
}

void SimNetwork::keep_nothing(const std::string& a, const std::string& b) {
    inside_->for_each_between(
        known(*inside_, a), known(*inside_, b),
        [](sim::Connection& connection, sim::SideIndex) { connection.keep_nothing(); });
}

void SimNetwork::reset(const std::string& a, const std::string& b, Seen seen) {
    inside_->for_each_between(known(*inside_, a), known(*inside_, b),
                              [&](sim::Connection& connection, sim::SideIndex side) {
                                  if (seen == Seen::by_both) connection.reset_both();
                                  if (seen == Seen::by_first) connection.reset(side);
                              });
}

std::size_t SimNetwork::connections() const noexcept { return inside_->connections().size(); }

// --- SimHost

SimHost::SimHost(SimWorld& world, std::vector<std::string> addresses)
    : world_(world), addresses_(std::move(addresses)) {
    for (std::string& address : addresses_) {
        address = sim::parse_host(address);
        RTRS_ASSERT(!address.empty());
        world.network().inside().add(*this, address);
    }
    RTRS_ASSERT(!addresses_.empty());
    processes_.push_back(std::make_unique<sim::Process>(world, this));
}

SimHost::~SimHost() = default;

Fabric& SimHost::fabric() noexcept { return process().fabric(); }
Clock& SimHost::clock() noexcept { return process().clock(); }

void SimHost::crash(CrashSeen seen) {
    sim::Process& dead = process();
    dead.die();
    const sim::Farewell farewell =
        seen == CrashSeen::by_reset ? sim::Farewell::answered : sim::Farewell::silent;
    for (sim::Connection* connection : world_.network().inside().connections()) {
        for (const sim::SideIndex side : {sim::SideIndex{0}, sim::SideIndex{1}}) {
            if (connection->process(side) == &dead) connection->vanish(side, farewell);
        }
    }
    processes_.push_back(std::make_unique<sim::Process>(world_, this));
    stalled_until_ = {};
    up_ = seen == CrashSeen::by_reset;
}

void SimHost::restart() {
    if (up_) return;
    up_ = true;
    world_.network().inside().unblock();
}

void SimHost::stall(Duration duration) {
    stalled_until_ = std::max(stalled_until_, world_.now() + duration);
}

std::uint16_t SimHost::next_port() noexcept {
    if (++port_ == 61000) port_ = 32768;
    return port_;
}

// --- SimWorld

struct SimWorld::Script final : sim::EventSink {
    std::map<std::uint64_t, std::function<void()>> steps;
    std::uint64_t count = 0;
    void on_event(std::uint64_t argument) override {
        const auto step = steps.extract(argument);
        step.mapped()();
    }
};

SimWorld::SimWorld(const SimOptions& options)
    : options_(options),
      random_(options.seed),
      buffers_(std::make_unique<sim::BufferPool>()),
      script_(std::make_unique<Script>()),
      network_(*this),
      clock_(std::make_unique<sim::ProcessClock>(*this, nullptr)) {
    RTRS_ASSERT(options.delay_min <= options.delay_max && options.keys_max < 1u << 20);
}

SimWorld::~SimWorld() = default;

SimHost& SimWorld::add_host(std::vector<std::string> addresses) {
    hosts_.push_back(std::make_unique<SimHost>(*this, std::move(addresses)));
    return *hosts_.back();
}

Clock& SimWorld::clock() noexcept { return *clock_; }

void SimWorld::at(Instant instant, std::function<void()> script) {
    script_->steps.emplace(++script_->count, std::move(script));
    schedule(instant, *script_, script_->count);
}

bool SimWorld::step() {
    if (queue_.empty()) return false;
    const sim::EventQueue::Event event = queue_.pop();
    now_ = event.at;
    ++events_;
    mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()));
    mix(event.argument);
    event.sink->on_event(event.argument);
    return true;
}

void SimWorld::run_until(Instant instant) {
    while (!queue_.empty() && queue_.next() <= instant) step();
    now_ = std::max(now_, instant);
}

bool SimWorld::run_until(const std::function<bool()>& done, Duration limit) {
    const Instant end = now_ + limit;
    while (!done()) {
        if (queue_.empty() || queue_.next() > end) {
            now_ = end;
            return false;
        }
        step();
    }
    return true;
}

void SimWorld::abandon() {
    for (const auto& host : hosts_) host->crash(SimHost::CrashSeen::never);
}

void SimWorld::schedule(Instant instant, sim::EventSink& sink, std::uint64_t argument) {
    queue_.push(std::max(instant, now_), sink, argument);
}

Duration SimWorld::draw_delay() noexcept {
    return options_.delay_min + draw_below(options_.delay_max - options_.delay_min);
}

Duration SimWorld::draw_below(Duration bound) noexcept {
    return Duration(
        static_cast<Duration::rep>(random_.below(static_cast<std::uint64_t>(bound.count()) + 1)));
}

}  // namespace rtrs
