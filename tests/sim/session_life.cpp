// ClientSession and Server from open and listen to close: options, ends at any moment, who is
// turned away.
#include <catch2/catch.hpp>

#include "tests/sim/seeds.h"
#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;

TEST_CASE("the server ends in peace: what runs is answered first") {
    Scene scene(quick_options(15));
    scene.start_server();
    scene.server->service_max = 50ms;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(15, 400);
    scene.world.run_for(20ms);
    CHECK(scene.server->in_flight() > 0);
    const std::uint64_t before = scene.client->answered;
    const std::uint32_t running = scene.server->in_flight();
    CHECK(scene.close_server());
    CHECK(scene.client->answered >= before + running);
    CHECK(!scene.client->idle());
    scene.world.run_for(1s);
    CHECK(scene.client->failed == 0);
    scene.start_server();
    work_and_end(scene, 15, 20);
}

TEST_CASE("the last answers of a server that ends are taken, whichever connection is read first") {
    const Seeds seeds = chosen_seeds(100);
    int told = 0;  // in how many runs the status of the path says so
    for (std::uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.client_faults.completion_delay_max = 5ms;
        Scene scene(options);
        scene.start_server();
        scene.server->service_max = 100ms;
        scene.start_client();
        REQUIRE(scene.ready());
        scene.client->run(15, 30);
        const auto all_at_server = [&] {
            return scene.client->made == 30 && scene.server->in_flight() > 0 &&
                   scene.server->in_flight() == scene.client->made - scene.client->answered;
        };
        REQUIRE(scene.run_until(all_at_server));
        bool is_told = false;
        const auto is_idle = [&] {
            const PathStatus path = scene.client->session.status().paths.at(0);
            const bool ends = path.reason.starts_with("the server ends it");
            if (ends) {
                CHECK(path.state == PathState::connected);
                CHECK(path.dead_at <= scene.world.now() + options.client.heartbeat_timeout);
            }
            is_told = is_told || ends;
            return scene.client->idle();
        };
        scene.server->server.close();
        CHECK(scene.run_until(is_idle, 1s));
        told += is_told;
        CHECK(scene.close_server());
        CHECK(scene.client->failed == 0);
        scene.start_server();
        work_and_end(scene, 15, 20);
    }
    CHECK(told > 0);
}

TEST_CASE("a server that is closed twice, idle, or while a client connects") {
    Scene scene(quick_options(16));
    scene.start_server();
    SECTION("idle") {}
    SECTION("a client connects") {
        scene.start_client();
        scene.world.run_for(Duration(scene.world.random().below(400'000)));
    }
    scene.server->server.close();
    CHECK(scene.close_server());
    check(scene);
}

TEST_CASE("close comes to its end from every state") {
    // Every 10 us of a connect, and with the server absent, silent or refusing.
    for (int step = 0; step < 100; ++step) {
        SceneOptions options = quick_options(static_cast<std::uint64_t>(step));
        Scene scene(options);
        CAPTURE(step);
        if (step != 1) scene.start_server();
        if (step == 2) scene.world.network().cut("10.0.0.1", "10.0.0.2");
        if (step == 3) scene.server->turn_away = from_errno(EACCES);
        scene.start_client();
        scene.client->errors_expected = true;
        if (step < 4) {
            scene.world.run_for(Duration(scene.world.random().below(1'000'000'000)));
        } else {
            if (step % 2 == 0) scene.client->run(15, 10000);
            scene.world.run_for(step * 10us);
            if (step % 3 == 0) {
                scene.world.network().reset("10.0.0.1", "10.0.0.2", SimNetwork::Seen::by_both);
                scene.world.run_for(Duration(scene.world.random().below(100'000)));
            }
        }
        scene.client->pause();
        CHECK(scene.close_client());
        if (scene.server) CHECK(scene.close_server());
        check(scene);
    }
}

TEST_CASE("close of a session that was never opened") {
    Scene scene(quick_options(17));
    scene.client =
        std::make_unique<ClientLife>(scene.world, scene.client_host, 4, scene.findings,
                                     scene.recorder, scene.options.client, FaultOptions{});
    SECTION("as it is") {}
    SECTION("after an open that failed") {
        ClientSessionOptions options = scene.options.client;
        options.name = "a/b";
        scene.client =
            std::make_unique<ClientLife>(scene.world, scene.client_host, 4, scene.findings,
                                         scene.recorder, options, FaultOptions{});
        CHECK(scene.client->session.open() == std::errc::invalid_argument);
    }
    SECTION("after an open that found no memory") {
        scene.client->fabric.refuse_next().registrations = 1;
        CHECK(scene.client->session.open() == std::errc::not_enough_memory);
    }
    CHECK(scene.close_client());
}

TEST_CASE("a session that begins without a path waits for the first that is added") {
    SceneOptions options = quick_options(24);
    options.addresses = 2;
    const bool hold_time_ends = GENERATE(false, true);
    if (hold_time_ends) options.client.hold_time = 5s;
    Scene scene(options);
    std::vector<PathAddress> all;
    all.swap(scene.options.client.paths);
    scene.start_server();
    scene.start_client();
    ClientSession& session = scene.client->session;
    scene.world.run_for(10s);
    const auto status = [&] { return session.status(); };
    CHECK(status().paths.empty());
    CHECK(status().reason == "no path was added yet");
    CHECK(status().refusing == (hold_time_ends ? Refusing::after_hold_time : Refusing::nothing));
    const bool comes = GENERATE(true, false);
    if (!comes) {
        CHECK(scene.close_client());
        CHECK(scene.close_server());
        return check(scene);
    }
    for (PathAddress& address : all) {
        address.fabric = &scene.client->fabric;
        REQUIRE(!session.add_path(address));
    }
    CHECK(status().reason == "connecting");
    work_and_end(scene, 15, 200);
}

TEST_CASE("options out of range are EINVAL of open, and of listen") {
    Scene scene(quick_options(17));
    const auto open = [&](auto change) {
        ClientSessionOptions options = scene.options.client;
        change(options);
        ClientLife client(scene.world, scene.client_host, 4, scene.findings, scene.recorder,
                          options, FaultOptions{});
        return client.session.open();
    };
    CHECK(open([](auto& options) { options.hold_time = -1ns; }) == std::errc::invalid_argument);
    CHECK(open([](auto& options) { options.fail_fast_time = -1ns; }) ==
          std::errc::invalid_argument);
    CHECK(open([](auto& options) {
              options.hold_time = 1s;
              options.fail_fast_time = 2s;
          }) == std::errc::invalid_argument);

    const auto listen = [&](auto change) {
        ServerOptions options = scene.options.server;
        change(options);
        ServerLife life(scene.world, scene.server_host, scene.disk, scene.findings, scene.recorder,
                        options, FaultOptions{});
        const auto listening = life.server.listen(life.fabric, "0.0.0.0:1235");
        return listening ? std::error_code() : listening.error();
    };
    CHECK(listen([](auto& options) { options.heartbeat_interval = 0s; }) ==
          std::errc::invalid_argument);
    CHECK(listen([](auto& options) { options.heartbeat_timeout = options.heartbeat_interval; }) ==
          std::errc::invalid_argument);
    CHECK(listen([](auto& options) { options.half_open_timeout = 0s; }) ==
          std::errc::invalid_argument);
    CHECK(listen([](auto& options) { options.sessions_max = 0; }) == std::errc::invalid_argument);
}

TEST_CASE("a place where a server listens no longer is forgotten, what came by it stays") {
    Scene scene(quick_options(18));
    scene.server =
        std::make_unique<ServerLife>(scene.world, scene.server_host, scene.disk, scene.findings,
                                     scene.recorder, scene.options.server, FaultOptions{});
    const auto listens = [&] {
        return scene.server->server.listen(scene.server->fabric, "0.0.0.0:1235", {.id = 7})
            .has_value();
    };
    REQUIRE(listens());
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(15, 1000);
    scene.world.run_for(1ms);
    scene.server->server.stop_listening(7);
    CHECK(scene.run_until([&] { return scene.client->idle(); }));
    scene.world.network().reset("10.0.0.1", "10.0.0.2", SimNetwork::Seen::by_both);
    scene.world.run_for(1s);
    CHECK(!scene.client->session.link_up());
    REQUIRE(listens());
    CHECK(scene.run_until([&] { return scene.client->session.link_up(); }));
    CHECK(scene.close_client());
    CHECK(scene.close_server());
    check(scene);
}

TEST_CASE("a device that has memory windows and cannot bind them is used without, if allowed") {
    using Invalidate = PortalOptions::Invalidate;
    const auto invalidate = GENERATE(Invalidate::if_possible, Invalidate::as_server);
    SceneOptions options = quick_options(19);
    options.server.always_invalidate = true;
    Scene scene(options);
    scene.server =
        std::make_unique<ServerLife>(scene.world, scene.server_host, scene.disk, scene.findings,
                                     scene.recorder, scene.options.server, FaultOptions{});
    REQUIRE(scene.server->server.listen(scene.server->fabric, "0.0.0.0:1235",
                                        {.id = 7, .invalidate = invalidate}));
    scene.server->fabric.refuse_next().binds = UINT32_MAX;
    scene.start_client();
    if (invalidate == Invalidate::as_server) {
        scene.world.run_for(2s);
        CHECK(!scene.client->open);
        CHECK(scene.recorder.said("a memory window cannot be bound"));
        scene.server->fabric.refuse_next().binds = 0;
    }
    REQUIRE(scene.ready());
    const auto path = scene.server->server.sessions().front()->status().paths.front();
    CHECK(path.always_invalidate == (invalidate == Invalidate::as_server));
    work_and_end(scene, 15, 100);
}

TEST_CASE("a session that the layer above turns away") {
    Scene scene(quick_options(23));
    scene.start_server();
    scene.server->turn_away = from_errno(EACCES);
    scene.start_client();
    scene.world.run_for(2s);
    CHECK(!scene.client->open);
    CHECK(scene.recorder.said("session host-a is turned away: Permission denied"));
    CHECK(scene.recorder.said("turned away by the server, which is being drained or does not"));
    CHECK(scene.server->server.sessions().size() <= 1);
    scene.server->turn_away = {};
    work_and_end(scene, 15, 100);
}

TEST_CASE("two sessions of one name, one after the other") {
    Scene scene(quick_options(24));
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    SimHost& other_host = scene.world.add_host({"10.0.9.9"});
    auto other = std::make_unique<ClientLife>(scene.world, other_host, 4, scene.findings,
                                              scene.recorder, scene.options.client, FaultOptions{});
    REQUIRE(!other->session.open());
    scene.world.run_for(3s);
    CHECK(!other->open);
    CHECK(scene.client->open);
    CHECK(scene.client->links_down == 0);
    CHECK(scene.recorder.said("the session name host-a is in use by another client at 10.0.0.2"));
    CHECK(scene.recorder.said(
        "refused by the server: the session's name is in use by another client there"));
    CHECK(scene.close_client());
    CHECK(scene.run_until([&] { return other->open; }));
    other->session.close();
    CHECK(scene.run_until([&] { return other->closed; }));
    CHECK(scene.close_server());
    check(scene);
}

TEST_CASE("who only asks for exports takes over no session without lives") {
    Scene scene(quick_options(26));
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    // From the same host, as a kernel's client and rnbd-client are.
    ClientSessionOptions asks = scene.options.client;
    asks.life = 1;
    auto other = std::make_unique<ClientLife>(scene.world, scene.client_host, 5, scene.findings,
                                              scene.recorder, asks, FaultOptions{});
    REQUIRE(!other->session.open());
    scene.world.run_for(3s);
    CHECK(!other->open);
    CHECK(scene.client->open);
    CHECK(scene.client->links_down == 0);
    CHECK(scene.recorder.said("is in use by a newer life of this client"));
    other->session.close();
    CHECK(scene.run_until([&] { return other->closed; }));
    CHECK(scene.close_client());
    CHECK(scene.close_server());
    check(scene);
}

TEST_CASE("a server that is closed at any moment of a connect") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.client.io_connections = 4;
        options.client.connect_timeout = 2ms;
        Scene scene(options);
        scene.start_server();
        scene.start_client();
        if (seed % 2 == 0) {
            scene.world.run_for(Duration(scene.world.random().below(1'200'000)));
        } else {
            // Its path is up, perhaps before it has heard that every connection is.
            REQUIRE(scene.run_until([&] { return scene.recorder.said("connected"); }));
        }
        CHECK(scene.close_server());
        CHECK(scene.close_client());
        check(scene);
    }
}
