// Networks that lose large packets (rtrs/core/packet_doubt.h).
#include <catch2/catch.hpp>

#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;

TEST_CASE("pauses of network, server or client are no sign of lost large packets") {
    SceneOptions options = quick_options(GENERATE(1, 2));
    options.client.request_deadline = 300ms;
    options.client.probe_timeout = 200ms;
    enum class Paused : std::uint8_t { network, server, client };
    const Paused paused = GENERATE(Paused::network, Paused::server, Paused::client);
    const bool busy = GENERATE(false, true);
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 20ms;
    scene.start_client();
    REQUIRE(scene.ready());
    for (int round = 0; round < 5; ++round) {
        if (busy) scene.client->run(8, 1000000);
        scene.world.run_for(1s);
        switch (paused) {
            case Paused::network:
                scene.world.network().cut("10.0.0.1", "10.0.0.2");
                break;
            case Paused::server:
                scene.server_host.stall(800ms);
                break;
            case Paused::client:
                scene.client_host.stall(800ms);
                break;
        }
        scene.world.run_for(800ms);
        scene.world.network().heal_all();
        scene.world.run_for(1s);
        if (busy) scene.client->pause();
    }
    CHECK_FALSE(scene.recorder.said("is dialled for small ones"));
    work_and_end(scene, 8, 100);
}

TEST_CASE(
    "a path that loses large packets, from the beginning or later, is dialled for small ones") {
    SceneOptions options = quick_options(GENERATE(range(1, 11)));
    options.client.request_deadline = 300ms;
    options.client.probe_timeout = 200ms;
    const bool later = GENERATE(false, true);
    Scene scene(options);
    const auto lose_large = [&] { scene.world.network().lose_large("10.0.0.1", "10.0.0.2", 128); };
    const auto status = [&] { return scene.client->session.status().paths.at(0); };
    if (!later) lose_large();
    scene.start_server();
    scene.start_client();
    if (later) {
        REQUIRE(scene.ready());
        lose_large();
        scene.client->run(8, 100);
        REQUIRE(scene.finish());
    }
    REQUIRE(scene.ready());
    CHECK(status().reason.starts_with("small packets only"));
    // Two ends in silence, as a rule.
    CHECK(status().attempts_failed + status().reconnects <= 4);
    // It stays so until the operator dials.
    scene.world.network().heal_all();
    scene.world.network().reset("10.0.0.1", "10.0.0.2", SimNetwork::Seen::by_both);
    scene.world.run_for(1s);
    CHECK(status().reason.starts_with("small packets only"));
    REQUIRE(!scene.client->session.operate_path(status().label,
                                                ClientSession::PathOperation::reconnect));
    scene.world.run_for(1s);
    CHECK(status().reason.empty());
    work_and_end(scene, 8, 100);
}
