// Messages with tags while paths are lost and servers crash, by seed: each once and in order
// whatever happens, and nothing is left registered.
#include "tests/sim/messages_world.h"
#include "tests/sim/seeds.h"

using namespace simtest;

namespace {

struct Totals {
    std::uint64_t messages = 0;
    std::uint64_t resets = 0;
} totals;

void trouble(Street& street, Random& random, std::size_t which, bool may_crash) {
    const std::string client = street.client_host->address(which);
    const std::string server = street.server_host->address(which);
    SimNetwork& network = street.world.network();
    const auto up_to = [&](Duration bound) {
        return Duration(random.below(static_cast<std::uint64_t>(bound.count())));
    };
    switch (random.below(may_crash ? 9 : 8)) {
        case 0:
            return network.reset(client, server, SimNetwork::Seen::by_both);
        case 1:
            return network.reset(client, server, SimNetwork::Seen::by_first);
        case 2:
            return network.reset(server, client, SimNetwork::Seen::by_first);
        case 3:
            network.cut(client, server);
            street.world.run_for(up_to(900ms));
            return network.heal(client, server);
        case 4:
            network.cut_one_way(client, server);
            street.world.run_for(up_to(900ms));
            return network.heal(client, server);
        case 5:
            return network.stall(server, client, up_to(300ms));
        case 6:
            street.client->fabric.options().refuse_registration_per_million = 200000;
            street.world.run_for(up_to(100ms));
            street.client->fabric.options().refuse_registration_per_million = 0;
            return;
        case 7: {
            const auto paths = street.client->session.status().paths;
            const auto& path = paths.at(which);
            static_cast<void>(street.client->session.operate_path(
                path.label, ClientSession::PathOperation::reconnect));
            return;
        }
        case 8:
            street.crash_server(random.chance(1, 2) ? SimHost::CrashSeen::by_reset
                                                    : SimHost::CrashSeen::never);
            street.world.run_for(up_to(300ms));
            street.server_host->restart();
            return street.start_server();
    }
}

void run(std::uint64_t seed) {
    Random random(seed * 31337);
    SceneOptions options = message_options(seed);
    options.sim.transport_timeout = random.chance(1, 2) ? 200ms : 3s;
    options.addresses = 1 + random.below(3);
    const bool may_crash = random.chance(1, 4);
    // One address is left alone: then the session must never be made anew.
    const std::size_t troubled = options.addresses - (may_crash ? 0 : 1);
    Street street(options);
    street.up();
    const auto work = [&] {
        for (End* end : {street.client->end.get(), street.server->end.get()}) {
            if (end == nullptr) continue;
            for (int i = 0; i < 8; ++i) {
                if (random.chance(1, 2) && end->made - end->finished < 40) end->send();
                if (random.chance(1, 2)) end->post_some();
            }
        }
    };
    for (std::uint64_t i = 0; i < 6 + random.below(10); ++i) {
        work();
        street.world.run_for(Duration(random.below(random.chance(1, 2) ? 500'000 : 50'000'000)));
        work();
        if (troubled > 0) trouble(street, random, random.below(troubled), may_crash);
    }
    street.world.network().heal_all();
    street.client->fabric.options() = {};
    street.world.run_for(3s);
    CHECK(street.up());
    work();
    street.client->end->send();
    if (street.server->end) street.server->end->send();
    CHECK(street.world.run_until(
        [&] {
            for (End* end : {street.client->end.get(), street.server->end.get()}) {
                if (end != nullptr) end->wait_for_anything();
            }
            return street.all_arrived();
        },
        20s));
    if (!may_crash) CHECK(street.client->resets == 0);
    street.world.run_for(100ms);
    for (End* end : {street.client->end.get(), street.server->end.get()}) {
        REQUIRE(end != nullptr);
        const MessageStatus status = end->service.status();
        CHECK(status.registrations == 0);
        CHECK(status.sending == 0);
        CHECK(status.unexpected == 0);
        totals.messages += end->delivered;
    }
    totals.resets += street.client->resets;
    if (random.chance(1, 2)) work();
    street.close();
    street.report();
}

}  // namespace

TEST_CASE("messages: nothing is lost, doubled or out of order") {
    const Seeds seeds = chosen_seeds(400);
    for (std::uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
        INFO("repeat with: RNBD_SIM_SEED=" << seed << " sim_messages");
        run(seed);
    }
    CHECK(totals.messages > 100 * seeds.count);
    WARN(seeds.count << " seeds, " << totals.messages << " messages, " << totals.resets
                     << " resets");
}
