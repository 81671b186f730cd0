#include "tests/sim/failover/faults.h"

#include <fmt/format.h>

#include <algorithm>

namespace failover {

using namespace std::chrono_literals;
using rtrs::Random;
using rtrs::SimHost;
using rtrs::SimNetwork;

Duration patience(const Options& options) {
    // Noticing that a path is dead, waiting for a server's old session or for the lock behind late
    // operations, a dial or two, a late operation of one's own, and a margin.
    return milliseconds(3 * options.heartbeat_timeout_ms + 2 * options.connect_timeout_ms +
                        2 * options.half_open_ms + 3 * options.late_ms +
                        2 * options.reconnect_max_ms + 40 * (options.delay_us / 1000)) +
           12s;
}

namespace {

// How often each is drawn, beside the others.
constexpr std::array<std::uint32_t, fault_kinds> weights{
    8,  // cut
    6,  // cut_one_way
    6,  // delay
    8,  // reset
    6,  // half_open
    6,  // flap
    3,  // outage
    5,  // isolation
    3,  // dead_path
    6,  // server_kill
    3,  // server_stop
    5,  // machine_crash
    5,  // client_crash
    4,  // twin
    4,  // server_stall
    4,  // client_stall
    4,  // storage_slow
    9,  // storage_late
    4,  // storage_failing
    2,  // device_closed
    2,  // session_closed
    5,  // path_change
    0,  // volume_remap: see plan_wide()
    0,  // device_taken
    0,  // cache_lost
    0,  // large_lost
    0,  // connection_kept
};

// From one millisecond to ten seconds or so, each order of magnitude as likely.
Duration draw_duration(Random& random) {
    const std::uint64_t least = std::uint64_t{1} << random.below(14);
    return std::chrono::milliseconds(least + random.below(least));
}

}  // namespace

Faults::Faults(const Surroundings& surroundings, Machines& machines)
    : surroundings_(surroundings), machines_(machines) {}

Fault Faults::draw_kind(Random& random) const {
    std::uint32_t sum = 0;
    for (const std::uint32_t weight : weights) sum += weight;
    std::uint64_t at = random.below(sum);
    for (std::size_t kind = 0;; ++kind) {
        if (at < weights[kind]) return static_cast<Fault>(kind);
        at -= weights[kind];
    }
}

void Faults::plan(Duration span) {
    const Options& options = surroundings_.options;
    Random random(options.seed * 1000003 + ++planned_);
    Action action{.fault = draw_kind(random)};
    action.client = static_cast<std::uint32_t>(random.below(3)) % options.clients;
    action.server = machines_.server_of(action.client);
    action.network = static_cast<std::uint32_t>(random.below(6)) % options.paths;
    action.variant = static_cast<std::uint32_t>(random.below(1u << 16));
    action.duration = draw_duration(random);
    const Duration after(
        static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(span.count()))));
    // Late operations are worst when something else goes wrong before they have ended.
    Action late = action;
    late.fault = Fault::storage_late;
    late.variant = 200 + late.variant % 300;
    late.duration = std::chrono::milliseconds(20 + random.below(400));
    const bool patience_ends = action.fault == Fault::isolation && options.hold_ms != 0;
    const bool with_late =
        patience_ends || (random.chance(1, 4) && action.fault != Fault::storage_late);
    if (planned_ > options.steps) return;
    if (with_late && options.allows(Fault::storage_late)) push(late, Step::begin, after);
    if (options.allows(action.fault)) {
        push(action, Step::begin, with_late ? after + late.duration / 2 : after);
    }
}

void Faults::plan_wide(Duration span) {
    const Options& options = surroundings_.options;
    Random random(options.seed * 1000033 + ++planned_wide_);
    constexpr Fault kinds[] = {Fault::volume_remap, Fault::device_taken, Fault::cache_lost};
    Action action{.fault = kinds[random.below(std::size(kinds))]};
    action.client = static_cast<std::uint32_t>(random.below(3)) % options.clients;
    action.server = machines_.server_of(action.client);
    action.variant = static_cast<std::uint32_t>(random.below(1u << 16));
    const Duration after(
        static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(span.count()))));
    if (options.allows(action.fault)) push(action, Step::begin, after);
    // Each with a chance of its own: what is above stays what it was.
    const auto add = [&](Fault fault, std::uint64_t stream) {
        Random its_own(options.seed * stream + planned_wide_);
        action.fault = fault;
        action.network = static_cast<std::uint32_t>(its_own.below(6)) % options.paths;
        action.variant = static_cast<std::uint32_t>(its_own.below(1u << 16));
        action.duration = draw_duration(its_own);
        if (its_own.chance(1, 4) && options.allows(fault)) push(action, Step::begin, after);
    };
    add(Fault::large_lost, 1000037);
    add(Fault::connection_kept, 1000039);
}

void Faults::push(Action action, Step step, Duration after) {
    action.step = step;
    action.at = surroundings_.world.now() + after;
    action.order = ++order_;
    actions_.push_back(action);
    std::push_heap(actions_.begin(), actions_.end(), later);
}

Instant Faults::next() const { return actions_.empty() ? Instant::max() : actions_.front().at; }

void Faults::act() {
    while (!actions_.empty() && actions_.front().at <= surroundings_.world.now()) {
        std::pop_heap(actions_.begin(), actions_.end(), later);
        const Action action = actions_.back();
        actions_.pop_back();
        SimNetwork& network = surroundings_.world.network();
        switch (action.step) {
            case Step::begin:
                begin(action);
                break;
            case Step::heal:
                network.heal(client_address(action, action.network),
                             server_address(action, action.network));
                break;
            case Step::kept_passes:
                network.keep_nothing(client_address(action, action.network),
                                     server_address(action, action.network));
                break;
            case Step::cut_again:
                network.cut(client_address(action, action.network),
                            server_address(action, action.network));
                break;
            case Step::reset_again:
                reset(action);
                break;
            case Step::cut_exchange:
                cut_exchange(action);
                break;
            case Step::path_again:
                machines_.clients[action.client]->reconnect(action.network);
                break;
            case Step::server_start:
                machines_.servers[action.server]->restart();
                break;
            case Step::server_poll:
                poll_server(action);
                break;
            case Step::client_start:
                machines_.clients[action.client]->restart();
                break;
            case Step::old_end:
                machines_.clients[action.client]->end_old();
                push(action, Step::old_poll, 50ms);
                break;
            case Step::old_poll:
                poll_old(action);
                break;
            case Step::mood_end:
                for (const auto& volume : machines_.servers[action.server]->volumes) {
                    volume->storage.mood = {};
                }
                break;
            case Step::paths_back:
                if (!machines_.clients[action.client]->restore_paths()) {
                    push(action, Step::paths_back, 20ms);
                }
                break;
        }
    }
}

void Faults::begin(const Action& action) {
    ++counts_[static_cast<std::size_t>(action.fault)];
    surroundings_.tracer.trace(rtrs::TraceLevel::info, "fault",
                               fault_names[static_cast<std::size_t>(action.fault)], "");
    if (action.fault <= Fault::dead_path || action.fault == Fault::large_lost ||
        action.fault == Fault::connection_kept) {
        return begin_network(action);
    }
    if (action.fault >= Fault::storage_slow && action.fault <= Fault::storage_failing) {
        return begin_storage(action);
    }
    begin_process(action);
}

// --- Who suffers until when

void Faults::disturb(std::uint32_t client, std::uint32_t network, Duration duration) {
    Instant& until = disturbed_until_[client][network];
    until = std::max(until, surroundings_.world.now() + duration);
}

void Faults::disturb_client(std::uint32_t client, Duration duration) {
    for (std::uint32_t network = 0; network < 3; ++network) disturb(client, network, duration);
}

void Faults::disturb_server(std::uint32_t server, Duration duration) {
    for (std::uint32_t client = 0; client < machines_.clients.size(); ++client) {
        if (machines_.server_of(client) == server) disturb_client(client, duration);
    }
}

bool Faults::undisturbed(std::uint32_t client, std::uint32_t network, Instant since) const {
    return disturbed_until_[client][network] <= since;
}

// --- The network

std::string Faults::client_address(const Action& action, std::uint32_t network) const {
    return fmt::format("10.{}.{}.{}", network, 1 + action.host, action.client + 1);
}

std::string Faults::server_address(const Action& action, std::uint32_t network) const {
    return fmt::format("10.{}.0.{}", network, action.server + 1);
}

void Faults::cut(const Action& action, std::uint32_t client, std::uint32_t network) {
    Action one = action;
    one.client = client;
    one.server = machines_.server_of(client);
    one.network = network;
    disturb(client, network, action.duration);
    for (one.host = 0; one.host < 2; ++one.host) {
        surroundings_.world.network().cut(client_address(one, network),
                                          server_address(one, network));
        push(one, Step::heal, action.duration);
    }
}

void Faults::reset(const Action& action) {
    for (std::uint32_t host = 0; host < 2; ++host) {
        Action one = action;
        one.host = host;
        const std::string client = client_address(one, action.network);
        const std::string server = server_address(one, action.network);
        SimNetwork& network = surroundings_.world.network();
        if (action.fault == Fault::half_open) {
            const bool client_learns = (action.variant & 1) != 0;
            network.reset(client_learns ? client : server, client_learns ? server : client,
                          SimNetwork::Seen::by_first);
        } else {
            network.reset(client, server, SimNetwork::Seen::by_both);
        }
    }
    disturb(action.client, action.network, 0s);
}

// And again while the path is being set up: the server waits for what never comes.
void Faults::reset_then_cut(const Action& action) {
    reset(action);
    Action later = action;
    later.polls = 400;
    later.duration =
        action.duration + milliseconds(surroundings_.options.half_open_ms + action.variant % 500);
    push(later, Step::cut_exchange, 5ms);
}

void Faults::cut_exchange(Action action) {
    ClientMachine& client = *machines_.clients[action.client];
    if (client.exchanges(action.network)) return cut(action, action.client, action.network);
    if (--action.polls == 0) return;
    const std::uint32_t delay_us = surroundings_.options.delay_us;
    push(action, Step::cut_exchange, microseconds(15 + delay_us / 4));
}

// What the client has sent comes late, when it has long been sent again elsewhere: the client ends
// the path meanwhile, for its own reasons or because it is told to.
void Faults::delay_and_give_up(const Action& action) {
    const bool told = (action.variant & 8) != 0;
    const Duration late =
        told ? action.duration / 8 + 30ms
             : milliseconds(surroundings_.options.heartbeat_timeout_ms + action.variant % 1000);
    for (std::uint32_t host = 0; host < 2; ++host) {
        Action one = action;
        one.host = host;
        surroundings_.world.network().stall(client_address(one, action.network),
                                            server_address(one, action.network), late);
    }
    disturb(action.client, action.network, late);
    if (told) push(action, Step::path_again, 2ms + microseconds(action.variant % 20000));
}

void Faults::flap(const Action& action) {
    const std::uint32_t count = 3 + action.variant % 6;
    const Duration period = std::min<Duration>(action.duration + 100ms, 3s);
    for (std::uint32_t i = 0; i < count; ++i) {
        if ((action.variant & 64) != 0) {
            push(action, Step::reset_again, period * i);
            continue;
        }
        for (std::uint32_t host = 0; host < 2; ++host) {
            Action one = action;
            one.host = host;
            push(one, Step::cut_again, period * i);
            push(one, Step::heal, period * i + period / 2);
        }
    }
    disturb(action.client, action.network, period * count);
}

// With a hold time often just long enough for requests to be given up while the storage has them.
void Faults::isolate(const Action& action) {
    const Options& options = surroundings_.options;
    Action one = action;
    const bool given_up = options.hold_ms != 0 && (action.variant & 3) != 0;
    if (given_up) one.duration = milliseconds(options.hold_ms + 50 + action.variant % 400);
    for (one.network = 0; one.network < options.paths; ++one.network) {
        if (given_up) reset(one);
        cut(one, one.client, one.network);
    }
}

// Half of the time for longer than anybody may wait for it, if there is another way.
void Faults::keep(const Action& action) {
    const Options& options = surroundings_.options;
    const bool for_long = (action.variant & 2) != 0 && options.paths > 1;
    const Duration duration = for_long ? 2 * patience(options) + 10s : action.duration;
    for (std::uint32_t host = 0; host < 2; ++host) {
        Action one = action;
        one.host = host;
        std::string from = client_address(one, action.network);
        std::string to = server_address(one, action.network);
        if ((action.variant & 1) == 0) from.swap(to);
        surroundings_.world.network().keep(from, to, action.variant >> 2);
        push(one, Step::kept_passes, duration);
    }
    kept_until_[action.client] =
        std::max(kept_until_[action.client], surroundings_.world.now() + duration);
    disturb(action.client, action.network, duration);
}

void Faults::begin_network(const Action& action) {
    SimNetwork& network = surroundings_.world.network();
    const Options& options = surroundings_.options;
    const bool from_client = (action.variant & 1) != 0;
    switch (action.fault) {
        case Fault::cut:
            return cut(action, action.client, action.network);
        case Fault::cut_one_way:
        case Fault::delay:
            if (action.fault == Fault::delay && (action.variant & 4) != 0) {
                return delay_and_give_up(action);
            }
            for (std::uint32_t host = 0; host < 2; ++host) {
                Action one = action;
                one.host = host;
                std::string from = client_address(one, action.network);
                std::string to = server_address(one, action.network);
                if (!from_client) from.swap(to);
                if (action.fault == Fault::delay) {
                    network.stall(from, to, action.duration / 4);
                } else {
                    network.cut_one_way(from, to);
                    push(one, Step::heal, action.duration);
                }
            }
            return disturb(action.client, action.network, action.duration);
        case Fault::reset:
        case Fault::half_open:
            if ((action.variant & 6) == 0 && options.allows(Fault::cut)) {
                return reset_then_cut(action);
            }
            return reset(action);
        case Fault::flap:
            return flap(action);
        case Fault::outage:
            for (std::uint32_t client = 0; client < options.clients; ++client) {
                cut(action, client, action.network);
            }
            return;
        case Fault::isolation:
            return isolate(action);
        case Fault::large_lost:
            for (std::uint32_t host = 0; host < 2; ++host) {
                Action one = action;
                one.host = host;
                network.lose_large(client_address(one, action.network),
                                   server_address(one, action.network), 64 + action.variant % 1024);
                push(one, Step::heal, action.duration);
            }
            large_lost_until_[action.client] = std::max(
                large_lost_until_[action.client], surroundings_.world.now() + action.duration);
            return disturb(action.client, action.network, action.duration);
        case Fault::connection_kept:
            return keep(action);
        case Fault::dead_path: {
            if (options.paths < 2) return;
            Action longer = action;
            longer.duration = 2 * patience(options) + 10s;
            return cut(longer, action.client, action.network);
        }
        default:
            return;
    }
}

// --- Processes and machines

void Faults::begin_process(const Action& action) {
    ServerMachine& server = *machines_.servers[action.server];
    ClientMachine& client = *machines_.clients[action.client];
    const Duration shorter = action.duration / 2;
    switch (action.fault) {
        case Fault::server_kill:
            end_old_clients(action.server);
            server.kill();
            push(action, Step::server_start, shorter);
            return disturb_server(action.server, shorter);
        case Fault::machine_crash:
            end_old_clients(action.server);
            server.crash();
            push(action, Step::server_start, shorter);
            return disturb_server(action.server, shorter);
        case Fault::server_stop:
            end_old_clients(action.server);
            server.stop();
            push(action, Step::server_poll, 5ms);
            return disturb_server(action.server, 5ms);
        case Fault::client_crash:
            client.crash((action.variant & 1) != 0 ? SimHost::CrashSeen::by_reset
                                                   : SimHost::CrashSeen::never);
            push(action, Step::client_start, shorter);
            return disturb_client(action.client, shorter);
        case Fault::twin:
            return twin(action);
        case Fault::server_stall:
            server.host.stall(action.duration / 2);
            return disturb_server(action.server, action.duration / 2);
        case Fault::client_stall:
            client.host().stall(action.duration / 2);
            return disturb_client(action.client, action.duration / 2);
        case Fault::device_closed:
            return server.close_a_device();
        case Fault::session_closed:
            server.close_a_session();
            return disturb_server(action.server, 0s);
        case Fault::path_change:
            client.change_a_path();
            push(action, Step::paths_back, action.duration);
            return disturb_client(action.client, action.duration);
        case Fault::volume_remap:
            client.remap_a_volume(action.variant);
            return disturb_client(action.client, 0s);
        case Fault::device_taken:
            server.take_a_device(action.variant);
            return disturb_server(action.server, 0s);
        case Fault::cache_lost:
            server.lose_a_cache(action.variant);
            return disturb_server(action.server, 0s);
        default:
            return;
    }
}

void Faults::twin(const Action& action) {
    ClientMachine& client = *machines_.clients[action.client];
    if (client.life() == nullptr || client.old() != nullptr) return;
    // Without the extension nobody knows which of two is the newer: they would take turns.
    const Options& options = surroundings_.options;
    if (!options.exactly_once() || options.identity == 0) return;
    // Why somebody starts another: the first one hangs, or cannot be reached, or for no reason.
    if (action.variant % 3 == 0) client.host().stall(action.duration);
    if (action.variant % 3 == 1) {
        for (std::uint32_t each = 0; each < options.paths; ++each) {
            cut(action, action.client, each);
        }
    }
    client.start_twin();
    const Duration rest = action.duration + 3s;
    push(action, Step::old_end, rest);
    disturb_client(action.client, rest + 5s);
}

// A server that starts again does not know which of two processes is the newer, if only the older
// one comes: then it has to be kept away by other means.
void Faults::end_old_clients(std::uint32_t server) {
    for (std::uint32_t i = 0; i < machines_.clients.size(); ++i) {
        if (machines_.server_of(i) == server) machines_.clients[i]->crash_old();
    }
}

void Faults::poll_old(const Action& action) {
    ClientMachine& client = *machines_.clients[action.client];
    if (client.poll_old()) return;
    disturb_client(action.client, 1s);
    push(action, Step::old_poll, 50ms);
}

void Faults::poll_server(const Action& action) {
    ServerMachine& server = *machines_.servers[action.server];
    if (!server.stopping) return;  // killed meanwhile
    disturb_server(action.server, 1s);
    if (!server.stopped()) return push(action, Step::server_poll, 5ms);
    server.remove();
    server.reconfigure();
    push(action, Step::server_start, action.duration / 10);
}

// --- Storages

void Faults::begin_storage(const Action& action) {
    StorageMood mood;
    const std::uint32_t part = 1 + action.variant % 500;
    if (action.fault == Fault::storage_slow) mood.slow_per_mille = part;
    if (action.fault == Fault::storage_late) mood.late_per_mille = part;
    if (action.fault == Fault::storage_failing) mood.failing_per_mille = part;
    for (const auto& volume : machines_.servers[action.server]->volumes) {
        volume->storage.mood = mood;
    }
    push(action, Step::mood_end, action.duration);
    disturb_server(action.server, action.duration + milliseconds(surroundings_.options.late_ms));
}

void Faults::end_all() {
    actions_.clear();
    surroundings_.world.network().heal_all();
    for (const auto& server : machines_.servers) {
        for (const auto& volume : server->volumes) volume->storage.mood = {};
    }
}

}  // namespace failover
