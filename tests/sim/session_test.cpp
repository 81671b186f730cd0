// ClientSession against Server, in peace and in every kind of trouble; with several paths:
// session_paths_test.cpp.
#include <algorithm>
#include <catch2/catch.hpp>

#include "rtrs/limits.h"
#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;
using CrashSeen = SimHost::CrashSeen;

TEST_CASE("requests of every shape of session") {
    const auto invalidate = GENERATE(true, false);
    const auto queue_depth = GENERATE(2u, 3u, 64u, 512u, 1025u);
    const auto chunk_bytes = GENERATE(8192u, 131072u, 1u << 20);
    if (!limits::geometry_possible(queue_depth, chunk_bytes)) return;
    CAPTURE(queue_depth, chunk_bytes, invalidate);
    SceneOptions options = quick_options(queue_depth + chunk_bytes);
    options.server.queue_depth = queue_depth;
    options.server.chunk_bytes = chunk_bytes;
    options.server.always_invalidate = invalidate;
    options.client.io_connections = queue_depth % 2 == 0 ? 1 : 5;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    CHECK(scene.client->session.queue_depth() == queue_depth);
    CHECK(scene.client->session.permits_max() == queue_depth - 1);
    CHECK(scene.client->session.max_io_bytes() == chunk_bytes - 4096);
    work_and_end(scene, queue_depth, 3 * queue_depth + 200);
    CHECK(scene.disk.writes > 30);
}

TEST_CASE("send queues on hardware: slots come back with a later completion only") {
    SceneOptions options = quick_options(5);
    options.sim.unsignalled_slot = SimOptions::UnsignalledSlot::freed_by_completion;
    options.server.always_invalidate = GENERATE(true, false);
    options.server.queue_depth = 4;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(4, 5000);
    CHECK(scene.finish());
    CHECK(scene.client->links_down == 0);
    work_and_end(scene, 4, 10);
}

TEST_CASE("memory is not used again before its send has completed") {
    SceneOptions options = quick_options(15);
    options.sim.source_release = Endpoint::SourceRelease::by_completion;
    options.sim.watch_sources = true;
    options.server.always_invalidate = GENERATE(true, false);
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(8, 5000);
    CHECK(scene.finish());
    CHECK(scene.world.changed_sources() == 0);
    CHECK(scene.client->links_down == 0);
    work_and_end(scene, 4, 10);
}

TEST_CASE("a full send queue makes requests, answers and windows wait") {
    using Release = Endpoint::SourceRelease;
    SceneOptions options = quick_options(16);
    options.sim.unsignalled_slot = SimOptions::UnsignalledSlot::freed_by_completion;
    options.sim.send_queue_depth_max = Endpoint::send_queue_depth_least;
    options.sim.source_release = GENERATE(Release::by_answer, Release::by_completion);
    options.server.always_invalidate = GENERATE(true, false);
    options.server.queue_depth = 500;
    options.client.io_connections = 1;
    options.blocks = 600;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(499, 5000);
    CHECK(scene.finish());
    CHECK(scene.client->links_down == 0);
    work_and_end(scene, 4, 10);
}

TEST_CASE("a queue deeper than half a receive queue") {
    SceneOptions options = quick_options(6);
    options.server.queue_depth = 32768;
    options.client.io_connections = 1;
    options.server.always_invalidate = false;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    work_and_end(scene, 100, 300);
}

TEST_CASE("permits run out, and waiters are served in turn") {
    SceneOptions options = quick_options(8);
    options.server.queue_depth = 5;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    ClientSession& session = scene.client->session;
    std::vector<Permit> all(4);
    REQUIRE(session.try_take(all));
    CHECK(!session.try_take());

    struct Waiter : PermitWaiter {
        Waiter(std::uint32_t wanted, std::vector<int>& its_order, int its_name)
            : PermitWaiter([](PermitWaiter& self) {
                  auto& waiter = static_cast<Waiter&>(self);
                  waiter.order.push_back(waiter.name);
              }),
              order(its_order),
              name(its_name),
              got(wanted) {
            count = wanted;
            permits = got;
        }
        std::vector<int>& order;
        int name;
        std::vector<Permit> got;
    };
    std::vector<int> order;
    Waiter three(3, order, 3), one(1, order, 1), never(4, order, 4), last(2, order, 2);
    CHECK(!session.take_or_wait(three));
    CHECK(!session.take_or_wait(one));
    CHECK(!session.take_or_wait(never));
    CHECK(!session.take_or_wait(last));
    all[0] = Permit();
    all[1] = Permit();
    scene.world.run_for(1ms);
    CHECK(order.empty());        // neither part of three, nor one before it
    CHECK(!session.try_take());  // nor anybody else
    all[2] = Permit();
    CHECK(order.empty());  // never from inside
    scene.world.run_for(1ms);
    CHECK(order == std::vector{3});
    all[3] = Permit();
    scene.world.run_for(1ms);
    CHECK(order == std::vector{3, 1});
    three.got.clear();
    scene.world.run_for(1ms);
    CHECK(order == std::vector{3, 1});  // never wants 4, 3 are free
    session.stop_waiting(never);
    scene.world.run_for(1ms);
    CHECK(order == std::vector{3, 1, 2});
    one.got.clear();
    last.got.clear();
    CHECK(session.status().permits_free == 4);
    Waiter at_once(2, order, 5);
    CHECK(session.take_or_wait(at_once));
    at_once.got.clear();
    work_and_end(scene, 5, 100);
}

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

TEST_CASE("registrations and windows that are refused") {
    Scene scene(quick_options(22));
    scene.start_server();
    SECTION("at the client") {
        scene.start_client();
        scene.client->fabric.refuse_next().registrations = 5;
    }
    SECTION("at the server") {
        scene.server->fabric.refuse_next().registrations = 5;
        scene.server->fabric.refuse_next().windows = 3;
        scene.start_client();
    }
    SECTION("connects") {
        scene.server->fabric.refuse_next().requests = 5;
        scene.start_client();
        scene.client->fabric.refuse_next().connects = 5;
    }
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
    CHECK(scene.close_client());
    CHECK(scene.run_until([&] { return other->open; }));
    other->session.close();
    CHECK(scene.run_until([&] { return other->closed; }));
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
