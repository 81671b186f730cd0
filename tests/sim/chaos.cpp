// Seeded runs of everything at once. A failure prints the line that repeats it.
//   RNBD_SIM_SEED=N   only this seed        RNBD_SIM_SEEDS=N   so many seeds (default 1000)
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "tests/sim/seeds.h"
#include "tests/sim/session_world.h"

using namespace simtest;

namespace {

struct Chaos {
    Scene& scene;
    Random random;
    bool client_may_crash;
    std::vector<PathAddress> later;

    Duration up_to(Duration bound) {
        return Duration(random.below(static_cast<std::uint64_t>(bound.count())));
    }
    SimHost::CrashSeen seen() {
        return random.chance(1, 2) ? SimHost::CrashSeen::by_reset : SimHost::CrashSeen::never;
    }
    void server_back() {
        scene.server_host.restart();
        scene.start_server();
        scene.server->service_max = up_to(2ms) + 1ns;
    }
    void client_back() {
        scene.client_host.restart();
        scene.start_client();
        // Those that a session begins without.
        for (PathAddress address : later) {
            scene.world.run_for(up_to(3ms));
            address.fabric = &scene.client->fabric;
            const auto error = scene.client->session.add_path(address);
            scene.findings.expect(!error, "a path cannot be added");
        }
        scene.client->run(15, 150);
    }

    void operate() {
        ClientSession& session = scene.client->session;
        const auto paths = session.status().paths;
        if (paths.empty()) return;
        const PathStatus& path = paths[random.below(paths.size())];
        switch (random.below(4)) {
            case 0:
                static_cast<void>(
                    session.operate_path(path.label, ClientSession::PathOperation::reconnect));
                return;
            case 1:
                static_cast<void>(
                    session.operate_path(path.label, ClientSession::PathOperation::disconnect));
                scene.world.run_for(up_to(3ms));
                static_cast<void>(
                    session.operate_path(path.label, ClientSession::PathOperation::reconnect));
                return;
            case 2:
                // Without sequences its requests would fail: nobody could settle them.
                if (session.status().protection == Protection::fenced) return;
                static_cast<void>(
                    session.operate_path(path.label, ClientSession::PathOperation::remove));
                scene.world.run_for(up_to(3ms));
                static_cast<void>(session.add_path({.fabric = &scene.client->fabric,
                                                    .source = path.source,
                                                    .destination = path.destination}));
                return;
            case 3:
                return session.set_policy(static_cast<PathPolicy>(random.below(4)));
        }
    }

    void trouble() {
        const std::size_t which = random.below(scene.options.addresses);
        const std::string client = scene.client_host.address(which);
        const std::string server = scene.server_host.address(which);
        SimNetwork& network = scene.world.network();
        switch (random.below(16)) {
            case 0:
                return network.reset(client, server, SimNetwork::Seen::by_both);
            case 1:
                return network.reset(client, server, SimNetwork::Seen::by_first);
            case 2:
                return network.reset(server, client, SimNetwork::Seen::by_first);
            case 3:
                return network.cut(client, server);
            case 4:
                return network.cut_one_way(client, server);
            case 5:
                return network.cut_one_way(server, client);
            case 6:
                return network.heal_all();
            case 7:
                return network.stall(client, server, up_to(300ms));
            case 8:
                return scene.client_host.stall(up_to(700ms));
            case 9:
                return scene.server_host.stall(up_to(700ms));
            case 10:
                return scene.client->fabric.lose_connections();
            case 11:
                if (scene.server->server.sessions().empty()) return;
                return scene.server->server.sessions().front()->close("chaos");
            case 12:
                if (random.chance(1, 2)) {
                    scene.crash_server(seen());
                } else if (!scene.close_server(10s)) {
                    scene.findings.expect(false, "the server does not close");
                }
                scene.world.run_for(up_to(400ms));
                return server_back();
            case 14:
            case 15:
                return operate();
            case 13:
                if (!client_may_crash) return;
                scene.crash_client(seen());
                return client_back();
        }
    }
};

// That the runs did something.
struct Total {
    std::uint64_t requests = 0;
    std::uint64_t events = 0;
} total;

void run(std::uint64_t seed) {
    Random random(seed * 977);
    SceneOptions options = quick_options(seed);
    options.sim.transport_timeout = random.chance(1, 2) ? 200ms : 3s;
    options.sim.unsignalled_slot = random.chance(1, 2)
                                       ? SimOptions::UnsignalledSlot::freed_by_arrival
                                       : SimOptions::UnsignalledSlot::freed_by_completion;
    options.server.always_invalidate = random.chance(2, 3);
    options.server.queue_depth = static_cast<std::uint32_t>(2 + random.below(20));
    options.client.io_connections = static_cast<std::uint32_t>(1 + random.below(4));
    options.addresses = 1 + random.below(3);
    options.client.identity = random.chance(1, 2) ? 7 : 0;
    options.client.policy = static_cast<PathPolicy>(random.below(4));
    if (random.chance(1, 5)) options.client.protection = Protection::fenced;
    if (random.chance(1, 8)) options.server.protection = Protection::fenced;
    const bool exactly_once = options.client.protection == Protection::exactly_once &&
                              options.server.protection == Protection::exactly_once;
    options.client_faults.completion_delay_max = random.chance(1, 3) ? 100us : 0us;
    options.client_faults.lose_connection_per_million = random.chance(1, 3) ? 300 : 0;
    options.server_faults.lose_connection_per_million = random.chance(1, 3) ? 300 : 0;
    options.server_faults.refuse_registration_per_million = random.chance(1, 4) ? 100000 : 0;
    options.client_faults.refuse_connect_per_million = random.chance(1, 4) ? 100000 : 0;
    const bool begins_without_paths = random.chance(1, 8);
    Scene scene(options);
    // Without the extension a newcomer is known by its address alone: by that of its first path.
    Chaos chaos{scene, Random(seed), options.addresses == 1 || exactly_once, {}};
    if (begins_without_paths) chaos.later.swap(scene.options.client.paths);
    chaos.server_back();
    chaos.client_back();
    const auto troubles = 4 + random.below(10);
    for (std::uint64_t i = 0; i < troubles; ++i) {
        // Often while something is being set up, sometimes long after.
        scene.world.run_for(chaos.random.chance(2, 3) ? chaos.up_to(2ms) : chaos.up_to(800ms));
        if (scene.client->idle()) scene.client->run(15, 100);
        chaos.trouble();
    }
    scene.world.network().heal_all();
    for (FaultyFabric* fabric : {&scene.server->fabric, &scene.client->fabric}) {
        fabric->options() = {};
    }
    // What the operator disconnected, and could not reconnect while it was closing.
    scene.world.run_for(5s);
    for (const PathStatus& path : scene.client->session.status().paths) {
        if (path.state != PathState::closed) continue;
        CHECK(!scene.client->session.operate_path(path.label,
                                                  ClientSession::PathOperation::reconnect));
    }
    scene.client->pause();
    CHECK(scene.finish());
    CHECK(scene.ready());
    scene.client->run(15, 50);
    CHECK(scene.finish());
    CHECK(scene.client->failed == 0);
    CHECK(scene.run_until([&] { return scene.at_rest(); }));
    if (random.chance(1, 2)) {
        scene.client->errors_expected = true;
        scene.client->run(15, 100);
        scene.world.run_for(chaos.up_to(2ms));
        scene.client->pause();
    }
    CHECK(scene.close_client());
    CHECK(scene.close_server());
    if (std::getenv("RNBD_SIM_SEED") != nullptr && std::getenv("RNBD_SIM_TRACE") != nullptr) {
        for (const std::string& line : scene.recorder.lines()) fmt::print("{}\n", line);
    }
    for (const std::string& line : scene.findings.lines) FAIL_CHECK(line);
    total.requests += scene.disk.reads + scene.disk.writes;
    total.events += scene.world.events();
}

}  // namespace

// A third path joined a session that a late dial of the second had made.
TEST_CASE("a seed that has found something") { run(2646); }

TEST_CASE("everything at once") {
    const Seeds seeds = chosen_seeds(1000);
    for (std::uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
        INFO("repeat with: RNBD_SIM_SEED=" << seed << " sim_chaos");
        run(seed);
    }
    CHECK(total.requests > 200 * seeds.count);
    WARN(seeds.count << " seeds, " << total.requests << " requests, " << total.events << " events");
}
