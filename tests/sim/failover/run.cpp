#include "tests/sim/failover/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "rtrs/fabric/sim/sim_fabric.h"
#include "tests/sim/failover/faults.h"

namespace failover {
namespace {

using namespace std::chrono_literals;
using rtrs::SimHost;
using rtrs::SimOptions;

constexpr std::uint64_t events_max = 20'000'000;

SimOptions sim_options(const Options& options) {
    return {.seed = options.seed,
            .delay_max = microseconds(options.delay_us),
            .drain_max = microseconds(options.drain_us),
            .connect_timeout = milliseconds(options.connect_timeout_ms),
            .transport_timeout = milliseconds(options.transport_timeout_ms),
            .watch_sources = true,
            .unsignalled_slot = options.seed % 2 == 0
                                    ? SimOptions::UnsignalledSlot::freed_by_arrival
                                    : SimOptions::UnsignalledSlot::freed_by_completion,
            .source_release = options.seed % 4 == 3 ? rtrs::Endpoint::SourceRelease::by_completion
                                                    : rtrs::Endpoint::SourceRelease::by_answer,
            .send_queue_depth_max = options.send_queue};
}

std::vector<std::string> addresses(const Options& options, std::uint32_t group,
                                   std::uint32_t number) {
    std::vector<std::string> all;
    for (std::uint32_t network = 0; network < options.paths; ++network) {
        all.push_back(fmt::format("10.{}.{}.{}", network, group, number + 1));
    }
    return all;
}

class Run {
  public:
    Run(const Options& options, Listener& listener);
    ~Run();
    Outcome operator()();

  private:
    void make_machines();
    void round();
    void begin_load();
    void advance(Duration duration);
    bool advance_until(bool (Run::*done)(), Duration limit);
    void watch();
    void watch(std::uint32_t client, ClientLife& life);
    void watch_failover(std::uint32_t client, ClientLife& life);
    bool has_way(std::uint32_t client, Instant since);
    bool loads_done();
    bool settled();
    bool old_gone();
    bool paths_there();
    bool servers_run();
    void restore();
    bool clients_closed();
    bool servers_quiet();
    bool servers_closed();
    bool network_quiet();
    void settle();
    void check_counts();
    void close();
    void check_leftovers();
    void complain(std::string_view what);

    Options options_;
    rtrs::SimWorld world_;
    rtrs::Random random_;
    Findings findings_;
    Surroundings surroundings_;
    Machines machines_;
    Faults faults_;
    Counters counters_;
    Duration patience_;
    Instant next_watch_{};
    bool closed_ = false;
};

Run::Run(const Options& options, Listener& listener)
    : options_(options),
      world_(sim_options(options)),
      random_(options.seed * 31 + 7),
      surroundings_{world_, random_, listener, findings_, options_, listener.silent()},
      faults_(surroundings_, machines_),
      patience_(patience(options)) {
    listener.begin(world_);
    make_machines();
}

// What has not come to its end is left where it is: nothing may destroy it.
Run::~Run() {
    if (closed_) return;
    world_.abandon();
    for (auto& server : machines_.servers) bury(server.release());
    for (auto& client : machines_.clients) bury(client.release());
}

void Run::make_machines() {
    for (std::uint32_t i = 0; i < options_.servers; ++i) {
        SimHost& host = world_.add_host(addresses(options_, 0, i));
        machines_.servers.push_back(std::make_unique<ServerMachine>(surroundings_, host, i));
    }
    std::uint8_t volumes_made = 0;
    for (std::uint32_t i = 0; i < options_.clients; ++i) {
        ServerMachine& server = *machines_.servers[machines_.server_of(i)];
        std::vector<ServerVolume*> volumes;
        for (std::uint32_t each = 0; each < options_.volumes; ++each) {
            volumes.push_back(&server.add_volume(++volumes_made));
        }
        std::vector<std::string> destinations;
        for (const std::string& address : server.host.addresses()) {
            destinations.push_back(address + ":1234");
        }
        SimHost& first = world_.add_host(addresses(options_, 1, i));
        SimHost& second = world_.add_host(addresses(options_, 2, i));
        machines_.clients.push_back(std::make_unique<ClientMachine>(
            surroundings_, first, second, i, std::move(destinations), std::move(volumes)));
    }
}

// --- Time

void Run::advance(Duration duration) {
    const Instant end = world_.now() + duration;
    while (world_.now() < end && findings_.empty()) {
        if (world_.events() > events_max) {
            findings_.add("too many events", "something goes in circles");
        }
        const Instant next = std::min({end, faults_.next(), next_watch_});
        world_.run_until(next);
        faults_.act();
        if (world_.now() >= next_watch_) watch();
        if (world_.changed_sources() > 0) {
            findings_.add("a buffer was changed before it was sent", "");
        }
    }
}

bool Run::advance_until(bool (Run::*done)(), Duration limit) {
    const Instant end = world_.now() + limit;
    while (!(this->*done)()) {
        if (world_.now() >= end || !findings_.empty()) return false;
        advance(20ms);
    }
    return true;
}

// Nobody waits for longer than is reasonable while a way is free.
void Run::watch() {
    next_watch_ = world_.now() + 2s;
    for (std::uint32_t i = 0; i < machines_.clients.size(); ++i) {
        ClientLife* life = machines_.clients[i]->life();
        // An operator looks after paths that have given up.
        if (options_.attempts_max != 0) machines_.clients[i]->restore_paths();
        if (life == nullptr || life->closing) continue;
        watch(i, *life);
        watch_failover(i, *life);
    }
}

void Run::watch(std::uint32_t client, ClientLife& life) {
    const Instant since = world_.now() - patience_;
    if (life.oldest() >= since) return;
    std::uint32_t well = 0;
    for (std::uint32_t network = 0; network < options_.paths; ++network) {
        if (faults_.undisturbed(client, network, since)) ++well;
    }
    // Without the extension a request waits for the path that it was lost with.
    const std::uint32_t needed = options_.exactly_once() ? 1 : options_.paths;
    if (well < needed) return;
    findings_.add(
        "a request waits though a way is free",
        fmt::format(
            "for {} s; {}",
            std::chrono::duration_cast<std::chrono::seconds>(world_.now() - life.oldest()).count(),
            life.complaint()));
}

// With a path that is well all the time it is a matter of finding that others are lost.
void Run::watch_failover(std::uint32_t client, ClientLife& life) {
    const std::vector<ClientLife::Wait> waits = life.take_long_waits(world_.now());
    if (!options_.exactly_once()) return;
    for (const ClientLife::Wait& wait : waits) {
        if (!has_way(client, wait.began) || !faults_.carries_all(client, wait.began)) continue;
        const auto in_ms = [](Duration duration) { return duration / 1ms; };
        return findings_.add("a request waited for long on a lost path",
                             fmt::format("{} ms, from {} ms on; {}", in_ms(wait.duration()),
                                         in_ms(wait.began.time_since_epoch()), life.complaint()));
    }
}

// Whether a path is well since then, and was for some time before.
bool Run::has_way(std::uint32_t client, Instant since) {
    // So often who was refused asks for a volume again, which is not open yet then.
    constexpr Duration asks_again_within = 2s;
    const Instant well_since = since - asks_again_within;
    for (std::uint32_t network = 0; network < options_.paths; ++network) {
        const auto connected = machines_.clients[client]->connected_since(network);
        if (connected && *connected <= well_since &&
            faults_.undisturbed(client, network, well_since)) {
            return true;
        }
    }
    return false;
}

// --- The middle

bool Run::loads_done() {
    return std::ranges::all_of(machines_.clients, [](const auto& client) {
        return client->life() != nullptr && client->life()->idle();
    });
}

void Run::begin_load() {
    // Either all at once, within milliseconds, or spread over the time of the faults.
    const bool spread = random_.chance(1, 2);
    const Duration span = spread ? Duration(std::chrono::milliseconds(200 + random_.below(8000)))
                                 : Duration(std::chrono::milliseconds(2 + random_.below(40)));
    for (const auto& client : machines_.clients) {
        if (client->life() == nullptr || client->life()->closing) continue;
        for (const auto& user : client->life()->users) {
            user->load(options_.requests,
                       spread ? span / std::max(1u, options_.requests) : Duration{0});
        }
    }
    for (std::uint32_t i = 0; i < options_.faults; ++i) faults_.plan(span);
    for (std::uint32_t i = 0; i < options_.wide_faults; ++i) faults_.plan_wide(span);
}

void Run::round() {
    advance(std::chrono::milliseconds(1 + random_.below(options_.quiet_s * 1000 + 1)));
    begin_load();
    // Sometimes the next round begins before this one is through.
    advance_until(&Run::loads_done, std::chrono::seconds(1 + random_.below(40)));
}

// --- The end

void Run::complain(std::string_view what) {
    if (!findings_.empty()) return;
    std::string text;
    for (const auto& client : machines_.clients) {
        if (client->life() != nullptr) text += client->life()->complaint();
        if (client->old() != nullptr) text += " (old) " + client->old()->complaint();
    }
    findings_.add(what, std::move(text));
}

bool Run::settled() {
    if (options_.attempts_max != 0) static_cast<void>(paths_there());
    return std::ranges::all_of(machines_.clients, [](const auto& client) {
        return client->life() != nullptr && client->life()->idle() && client->life()->ready();
    });
}

bool Run::old_gone() {
    return std::ranges::all_of(machines_.clients,
                               [](const auto& client) { return client->poll_old(); });
}

bool Run::paths_there() {
    return std::ranges::all_of(machines_.clients,
                               [](const auto& client) { return client->restore_paths(); });
}

// A server that was stopping is started again when it has stopped.
bool Run::servers_run() {
    for (const auto& server : machines_.servers) {
        if (server->stopping && server->stopped()) server->remove();
        if (!server->stopping) server->restart();
    }
    return std::ranges::all_of(machines_.servers, [](const auto& server) {
        return server->running() && !server->stopping;
    });
}

void Run::restore() {
    faults_.end_all();
    for (const auto& server : machines_.servers) {
        if (!server->stopping) server->restart();
    }
    for (const auto& client : machines_.clients) {
        client->restart();
        client->end_old();
    }
}

void Run::settle() {
    restore();
    // Paths that give up are looked after until all is well: a server may not listen yet.
    if (options_.attempts_max == 0 && !advance_until(&Run::paths_there, patience_)) {
        return complain("a path does not close");
    }
    if (!advance_until(&Run::servers_run, patience_)) return complain("a server does not stop");
    // What is still stopped goes on.
    advance(Faults::longest_stall);
    if (!advance_until(&Run::old_gone, patience_)) return complain("an old client does not close");
    if (!advance_until(&Run::settled, patience_)) return complain("not all is well at the end");
    for (const auto& client : machines_.clients) {
        for (const auto& user : client->life()->users) user->verify();
    }
    if (!advance_until(&Run::loads_done, patience_)) return complain("the last requests wait");
    check_counts();
}

void Run::check_counts() {
    advance(100ms);
    for (const auto& client : machines_.clients) {
        rtrs::ClientSession& session = client->life()->session.rtrs();
        const auto status = session.status();
        if (status.in_flight != 0 || status.held != 0 || status.unsettled != 0 ||
            status.permits_free != session.permits_max()) {
            complain("permits have not come home");
        }
    }
    for (const auto& server : machines_.servers) {
        if (server->in_flight() != 0) complain("operations are left at a server");
    }
}

bool Run::clients_closed() {
    return std::ranges::all_of(machines_.clients,
                               [](const auto& client) { return client->life()->continue_close(); });
}

bool Run::servers_quiet() {
    return std::ranges::all_of(machines_.servers,
                               [](const auto& server) { return server->sessions() == 0; });
}

bool Run::servers_closed() {
    return std::ranges::all_of(machines_.servers,
                               [](const auto& server) { return server->stopped(); });
}

bool Run::network_quiet() { return world_.network().connections() == 0; }

void Run::close() {
    if (options_.orderly == 0) {
        begin_load();
        faults_.end_all();
        advance(std::chrono::microseconds(random_.below(5000)));
    }
    for (const auto& client : machines_.clients) client->life()->begin_close();
    if (!advance_until(&Run::clients_closed, patience_)) {
        return findings_.empty() ? findings_.add("a client does not close", "") : void();
    }
    for (const auto& client : machines_.clients) {
        counters_.requests += client->counters.requests;
        counters_.failed += client->counters.failed;
        counters_.flushes += client->counters.flushes;
        counters_.losses_told += client->counters.losses_told;
        client->remove();
    }
    if (!advance_until(&Run::servers_quiet, patience_)) {
        return findings_.add("a server keeps a session whose client has gone", "");
    }
    for (const auto& server : machines_.servers) server->stop();
    if (!advance_until(&Run::servers_closed, patience_)) {
        return findings_.add("a server does not close", "");
    }
    for (const auto& server : machines_.servers) server->remove();
    closed_ = true;
    check_leftovers();
}

void Run::check_leftovers() {
    // A process that died keeps its ends.
    const auto died_once = [](const auto& machine) { return machine->died; };
    const bool died = std::ranges::any_of(machines_.servers, died_once) ||
                      std::ranges::any_of(machines_.clients, died_once);
    if (!died && !advance_until(&Run::network_quiet,
                                patience_ + milliseconds(options_.transport_timeout_ms))) {
        findings_.add("connections are left",
                      fmt::format("{} of them", world_.network().connections()));
    }
    const auto keys = [&](SimHost& host) {
        const std::size_t in_use = host.process().keys().in_use();
        if (in_use > 0) findings_.add("keys are left", fmt::format("{} of them", in_use));
    };
    for (const auto& server : machines_.servers) {
        keys(server->host);
        for (const auto& volume : server->volumes) {
            if (!volume->storage.idle()) findings_.add("a storage is busy at the end", "");
        }
    }
    for (const auto& client : machines_.clients) {
        keys(client->host());
        keys(client->other_host());
    }
}

Outcome Run::operator()() {
    for (const auto& server : machines_.servers) server->start();
    for (const auto& client : machines_.clients) client->start();
    for (std::uint32_t i = 0; i < options_.rounds && findings_.empty(); ++i) round();
    if (findings_.empty()) settle();
    if (findings_.empty()) close();
    Outcome outcome{.findings = findings_.list(),
                    .hash = world_.trace_hash(),
                    .events = world_.events(),
                    .simulated_ms = static_cast<std::uint64_t>(world_.now().time_since_epoch() /
                                                               std::chrono::milliseconds(1)),
                    .requests = counters_.requests,
                    .failed = counters_.failed,
                    .flushes = counters_.flushes,
                    .losses_told = counters_.losses_told,
                    .faults = faults_.counts()};
    for (const auto& server : machines_.servers) {
        for (const auto& volume : server->volumes) {
            outcome.operations += volume->storage.operations;
            outcome.repeated += volume->storage.history.repeated();
        }
    }
    return outcome;
}

}  // namespace

Outcome run(const Options& options, Listener& listener) { return Run(options, listener)(); }

}  // namespace failover
