// ClientSession against Server while connections are lost, either side crashes, or nobody answers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;
using CrashSeen = SimHost::CrashSeen;

TEST_CASE("a lost connection costs nothing but time") {
    const auto kind = GENERATE(range(0, 8));
    const auto seed = GENERATE(1u, 2u, 3u);
    CAPTURE(kind, seed);
    SceneOptions options = quick_options(seed);
    options.server.always_invalidate = seed % 2 == 0;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 300us;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(15, 3000);
    const std::string client = scene.client_host.address(), server = scene.server_host.address();
    SimNetwork& network = scene.world.network();
    for (int round = 0; round < 5; ++round) {
        scene.world.run_for(Duration(scene.world.random().below(3'000'000)));
        const std::uint32_t before = scene.client->links_up;
        switch (kind) {
            case 0:
                network.reset(client, server, SimNetwork::Seen::by_both);
                break;
            case 1:
                network.reset(client, server, SimNetwork::Seen::by_first);
                break;
            case 2:
                network.reset(server, client, SimNetwork::Seen::by_first);
                break;
            case 3:
                scene.client->fabric.lose_connections();
                break;
            case 4:
                scene.server->fabric.lose_connections();
                break;
            case 5:  // a black hole
                network.cut(client, server);
                scene.world.run_for(2s);
                network.heal(client, server);
                break;
            case 6:
                network.cut_one_way(server, client);
                scene.world.run_for(2s);
                network.heal(client, server);
                break;
            case 7:
                scene.server->server.sessions().at(0)->close("as the test wishes");
                break;
        }
        CHECK(
            scene.run_until([&] { return scene.client->links_up > before && scene.client->open; }));
    }
    CHECK(scene.client->links_down >= 5);
    CHECK(scene.client->failed == 0);
    work_and_end(scene, 15, 100);
}

TEST_CASE("a path comes back while storage still works on what it brought") {
    const auto seed = GENERATE(1u, 2u, 3u, 4u);
    CAPTURE(seed);
    SceneOptions options = quick_options(seed);
    options.server.always_invalidate = seed % 2 == 0;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    const std::string client = scene.client_host.address(), server = scene.server_host.address();
    std::size_t most_lives = 0;
    for (int round = 0; round < 12; ++round) {
        CAPTURE(round);
        scene.client->run(15, 1'000'000);
        const bool more_hangs = round == 0 || (seed > 2 && round < 10);
        const std::size_t enough = scene.server->working() + (more_hangs ? 1 : 0);
        if (more_hangs) scene.server->service_max = 2h;
        REQUIRE(scene.run_until([&] { return scene.server->working() >= enough; }));
        scene.server->service_max = Duration{0};
        const std::uint32_t links = scene.client->links_up;
        scene.world.network().reset(client, server, SimNetwork::Seen::by_both);
        // With too many lives the next one waits for the first to end.
        const Duration limit = seed > 2 && round >= 7 ? Duration(3h) : Duration(10s);
        REQUIRE(scene.run_until(
            [&] { return scene.client->links_up > links && scene.client->open; }, limit));
        const std::uint64_t answered = scene.client->answered;
        CHECK(scene.run_until([&] { return scene.client->answered > answered + 100; }));
        const auto sessions = scene.server->server.sessions();
        REQUIRE(sessions.size() == 1);
        most_lives = std::max(most_lives, sessions.at(0)->status().paths.size());
    }
    CHECK(most_lives == (seed > 2 ? 8 : 2));
    scene.client->pause();
    REQUIRE(scene.finish(3h));
    CHECK(scene.client->failed == 0);
    CHECK(scene.server->server.sessions().at(0)->status().paths.size() == 1);
    work_and_end(scene, 15, 100);
}

TEST_CASE("a server that crashes and comes back") {
    const auto seen = GENERATE(CrashSeen::by_reset, CrashSeen::never);
    Scene scene(quick_options(12));
    scene.start_server();
    scene.server->service_max = 1ms;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(15, 2000);
    for (int round = 0; round < 4; ++round) {
        scene.world.run_for(3ms);
        scene.crash_server(seen);
        scene.world.run_for(Duration(scene.world.random().below(1'500'000'000)));
        scene.server_host.restart();
        scene.start_server();
        REQUIRE(scene.ready());
    }
    work_and_end(scene, 15, 100);
}

TEST_CASE("a client that crashes comes back under its name and takes its old session over") {
    const auto seen = GENERATE(CrashSeen::by_reset, CrashSeen::never);
    Scene scene(quick_options(13));
    scene.start_server();
    scene.server->service_max = 100ms;
    scene.start_client();
    for (int round = 0; round < 4; ++round) {
        REQUIRE(scene.ready());
        scene.client->run(15, 1000);
        scene.world.run_for(30ms);
        scene.crash_client(seen);
        scene.client_host.restart();
        scene.start_client();
    }
    work_and_end(scene, 15, 100);
    CHECK(scene.recorder.said("takes the session name"));
}

TEST_CASE("a client of another geometry is refused after a restart, and accepted again") {
    Scene scene(quick_options(14));
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(15, 200);
    scene.crash_server(CrashSeen::by_reset);
    scene.options.server.queue_depth = 8;
    scene.start_server();
    scene.world.run_for(3s);
    CHECK(!scene.client->open);
    const std::string why =
        "cannot use the server: its queue depth has shrunk to 8, this session needs 16";
    CHECK(scene.client->session.status().paths.at(0).reason == why);
    CHECK(scene.client->session.status().paths.at(0).attempts > 2);
    CHECK(std::ranges::count_if(scene.recorder.lines(), [&](const std::string& line) {
              return line.find(why) != std::string::npos;
          }) == 1);
    CHECK(scene.close_server());
    scene.options.server.queue_depth = GENERATE(16u, 32u);  // more than before does no harm
    scene.options.server.chunk_bytes = 16384;               // likewise
    scene.start_server();
    work_and_end(scene, 15, 100);
}

TEST_CASE("requests fail with no_path after the hold time, and not before") {
    SceneOptions options = quick_options(18);
    options.client.hold_time = 3s;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 200us;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->errors_expected = true;
    scene.client->run(15, 100000);
    scene.world.run_for(3ms);
    SECTION("the server is down") { scene.crash_server(CrashSeen::by_reset); }
    SECTION("the link is a black hole") { scene.world.network().cut("10.0.0.1", "10.0.0.2"); }
    REQUIRE(scene.run_until([&] { return !scene.client->session.link_up(); }));
    const Instant down = scene.world.now();
    scene.client->pause();
    scene.world.run_until(down + 3s - 1ns);
    CHECK(scene.client->failed == 0);
    CHECK(!scene.client->idle());
    scene.world.run_until(down + 3s + 1ms);
    CHECK(scene.client->idle());
    CHECK(scene.client->failed == 15);
    CHECK(scene.client->errors[Error::no_path] == 15);

    CHECK(scene.client->session.status().refusing == Refusing::after_hold_time);
    // From then on at once, until a path is up again.
    scene.client->issue();
    CHECK(scene.client->failed == 15);  // not inside submit()
    scene.world.run_for(1us);
    CHECK(scene.client->failed == 16);
    scene.world.network().heal_all();
    if (!scene.server) scene.start_server();
    REQUIRE(scene.ready());
    scene.client->errors_expected = false;
    work_and_end(scene, 15, 100);
}

TEST_CASE("another hold time counts for those that wait already, from when they began to") {
    SceneOptions options = quick_options(29);
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 200us;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->errors_expected = true;
    scene.client->run(15, 100000);
    scene.world.run_for(3ms);
    scene.crash_server(CrashSeen::by_reset);
    REQUIRE(scene.run_until([&] { return !scene.client->session.link_up(); }));
    const Instant down = scene.world.now();
    scene.client->pause();
    scene.world.run_until(down + 2s);
    CHECK(scene.client->failed == 0);
    SECTION("it is still to come") {
        scene.client->session.set_waiting(3s, std::nullopt);
        CHECK(scene.client->session.status().hold_until == down + 3s);
        scene.world.run_until(down + 3s - 1ns);
        CHECK(scene.client->failed == 0);
        scene.world.run_until(down + 3s + 1ms);
    }
    SECTION("it is over already") {
        scene.client->session.set_waiting(1s, std::nullopt);
        scene.world.run_for(1ms);
    }
    CHECK(scene.client->failed == 15);
    CHECK(scene.client->errors[Error::no_path] == 15);

    // Over is over, until a path is up; then the new times hold.
    scene.client->session.set_waiting(std::nullopt, 1ms);
    scene.client->issue();
    scene.world.run_for(1us);
    CHECK(scene.client->failed == 16);
    scene.start_server();
    REQUIRE(scene.ready());
    scene.client->errors_expected = false;
    work_and_end(scene, 4, 50);
}

TEST_CASE("a session that never gets through fails its user after the hold time") {
    SceneOptions options = quick_options(19);
    options.client.hold_time = 1s;
    Scene scene(options);
    scene.start_client();
    scene.world.run_for(2s);
    CHECK(scene.recorder.said("hold time is over"));
    scene.start_server();
    work_and_end(scene, 4, 50);
}

TEST_CASE("user messages that are lost with the link are told, once") {
    Scene scene(quick_options(21));
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    struct Asked {
        int ok = 0, lost = 0, other = 0;
    } asked;
    const auto ask = [&] {
        const std::byte message[8] = {};
        scene.client->session.submit_user(
            Direction::read, message, 8,
            [](void* context, std::error_code error, Bytes) {
                auto& counts = *static_cast<Asked*>(context);
                ++(!error ? counts.ok : error == Error::path_lost ? counts.lost : counts.other);
            },
            &asked);
    };
    int total = 0;
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 4; ++i) ask();
        scene.world.run_for(Duration(scene.world.random().below(300'000)));
        scene.world.network().reset(
            "10.0.0.1", "10.0.0.2",
            round % 2 ? SimNetwork::Seen::by_first : SimNetwork::Seen::by_both);
        for (int i = 0; i < 3; ++i) {
            ask();
            scene.world.run_for(Duration(scene.world.random().below(60'000)));
        }
        total += 7;
        REQUIRE(scene.run_until(
            [&] { return scene.client->open && asked.ok + asked.lost + asked.other == total; }));
        ask();
        scene.world.run_for(1ms);
        ++total;
        REQUIRE(asked.ok + asked.lost == total);
    }
    CHECK(asked.ok >= 50);
    CHECK(asked.lost > 50);
    work_and_end(scene, 4, 50);
}

TEST_CASE("a user message that is lost while requests fail") {
    SceneOptions options = quick_options(26);
    options.client.hold_time = 5us;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    scene.client->errors_expected = true;
    struct Asked {
        int answers = 0, wrong = 0;
    } asked;
    for (int round = 1; round <= 100; ++round) {
        REQUIRE(scene.ready());
        const std::byte message[8] = {};
        scene.client->session.submit_user(
            Direction::read, message, 8,
            [](void* context, std::error_code error, Bytes) {
                auto& counts = *static_cast<Asked*>(context);
                ++counts.answers;
                if (error && error != Error::path_lost) ++counts.wrong;
            },
            &asked);
        scene.world.network().reset("10.0.0.1", "10.0.0.2", SimNetwork::Seen::by_both);
        REQUIRE(scene.run_until([&] { return !scene.client->session.link_up(); }));
        scene.world.run_for(6us);
        scene.client->issue();  // fails, at once: no path, and the hold time is over
        REQUIRE(scene.run_until([&] { return asked.answers == round; }));
    }
    CHECK(asked.wrong == 0);
    scene.client->errors_expected = false;
    work_and_end(scene, 4, 50);
}
