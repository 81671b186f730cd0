// The paths of a session: which of them are used, lost, removed and given up.
#include <catch2/catch.hpp>

#include "tests/sim/raw_peer.h"
#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;
using CrashSeen = SimHost::CrashSeen;

TEST_CASE("a path's priority changes while requests run") {
    SceneOptions options = quick_options(30);
    options.addresses = 2;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 200us;
    scene.start_client();
    REQUIRE(scene.ready());
    ClientSession& session = scene.client->session;
    const auto status = [&] { return session.status(); };
    REQUIRE(scene.run_until([&] { return status().paths.at(1).state == PathState::connected; }));
    CHECK(session.set_path_priority("nowhere", PathPriority::standby) ==
          std::errc::no_such_file_or_directory);
    REQUIRE(!session.set_path_priority(status().paths.at(1).label, PathPriority::standby));
    CHECK(status().paths.at(1).priority == PathPriority::standby);
    scene.client->run(15, 1000);
    REQUIRE(scene.run_until([&] { return scene.client->idle(); }));
    CHECK(status().paths.at(0).counters.sent >= 1000);
    CHECK(status().paths.at(1).counters.sent == 0);
    REQUIRE(!session.set_path_priority(status().paths.at(1).label, PathPriority::prefer));
    REQUIRE(!session.set_path_priority(status().paths.at(0).label, PathPriority::standby));
    const auto before = status().paths.at(0).counters.sent;
    scene.client->run(15, 1000);
    REQUIRE(scene.run_until([&] { return scene.client->idle(); }));
    CHECK(status().paths.at(0).counters.sent == before);
    CHECK(status().paths.at(1).counters.sent >= 1000);
    work_and_end(scene, 4, 50);
}

TEST_CASE("reconnect attempts are counted out") {
    SceneOptions options = quick_options(20);
    options.client.reconnect_attempts_max = GENERATE(0u, 3u);
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 200us;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->errors_expected = true;
    scene.client->run(15, 1000);
    scene.world.run_for(2ms);
    scene.crash_server(CrashSeen::by_reset);
    scene.client->pause();
    scene.world.run_for(5s);
    CHECK(scene.client->idle());
    CHECK(scene.client->errors[Error::path_lost] == 15);
    const PathStatus path = scene.client->session.status().paths.at(0);
    CHECK(path.state == PathState::closed);
    CHECK(path.attempts == *options.client.reconnect_attempts_max);
    CHECK(scene.recorder.said("used up its reconnect attempts"));
    CHECK(scene.client->session.status().refusing == Refusing::after_all_attempts);
    CHECK(scene.client->session.status().reason == "every path has used up its reconnect attempts");
    CHECK(scene.client->issue());
    scene.world.run_for(1ms);
    CHECK(scene.client->errors[Error::no_path] == 1);
    CHECK(scene.close_client());
    check(scene);
}

// Nobody else would: the one that stays has been given up already.
TEST_CASE("the removal of the last path that was tried fails what waits") {
    SceneOptions options = quick_options(20);
    options.addresses = 2;
    options.client.reconnect_attempts_max = 1;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    const auto status = [&] { return scene.client->session.status(); };
    const auto reached = [&](std::size_t path, PathState state) {
        return scene.run_until([&] { return status().paths.at(path).state == state; });
    };
    REQUIRE(reached(1, PathState::connected));
    scene.client->errors_expected = true;
    scene.world.network().cut("10.0.1.1", "10.0.1.2");
    REQUIRE(reached(1, PathState::closed));
    scene.server->service_max = 1s;
    scene.client->run(15, 15);
    using enum ClientSession::PathOperation;
    const std::string first = status().paths.at(0).label;
    const bool disconnected_before = GENERATE(false, true);
    if (disconnected_before) {
        REQUIRE(!scene.client->session.operate_path(first, disconnect));
        scene.world.run_for(5s);
        CHECK_FALSE(scene.client->idle());  // it may be told to come back
    }
    REQUIRE(!scene.client->session.operate_path(first, remove));
    scene.world.run_for(5s);
    CHECK(status().paths.size() == 1);
    CHECK(scene.client->idle());
    CHECK(scene.client->errors[Error::path_lost] == 15);
    CHECK(scene.recorder.said("used up its reconnect attempts"));
    CHECK(scene.close_client());
    CHECK(scene.close_server());
    check(scene);
}

// The path that was disconnected will not be told to come back.
TEST_CASE("a session that is taken over fails what a path had that it did not know to be lost") {
    SceneOptions options = quick_options(22);
    options.addresses = 3;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    const auto status = [&] { return scene.client->session.status(); };
    for (const std::size_t path : {1u, 2u}) {
        REQUIRE(
            scene.run_until([&] { return status().paths.at(path).state == PathState::connected; }));
    }
    using enum ClientSession::PathOperation;
    REQUIRE(!scene.client->session.operate_path(status().paths.at(2).label, disconnect));
    scene.world.run_for(20s);  // so that the loss of one does not look like that of a shaky path
    scene.client->errors_expected = true;
    scene.server->service_max = 1s;
    scene.client->run(15, 15);
    scene.world.run_for(1ms);
    REQUIRE(status().paths.at(1).in_flight > 0);
    scene.world.network().cut("10.0.1.1", "10.0.1.2");
    {
        RawClient other(scene.world, scene.client_host, scene.address());
        REQUIRE(other.connect(2));
        other.send_info(options.client.name);
        REQUIRE(scene.run_until([&] { return scene.recorder.said("taken over by a newer"); }));
    }
    scene.world.run_for(10s);
    CHECK(scene.client->idle());
    CHECK(scene.client->failed > 0);
    CHECK(scene.client->errors[Error::rejected] == scene.client->failed);
    CHECK(status().refusing == Refusing::taken_over);
    CHECK(status().reason == "taken over by a newer session of the same name");
    CHECK(scene.client->session.refuses_new() == Error::rejected);
    CHECK(scene.close_client());
    CHECK(scene.close_server());
    check(scene);
}

// The news of the takeover and of the path that is up come together, in this order.
TEST_CASE("a session that is taken over has no link again, though a path comes up") {
    SceneOptions options = quick_options(GENERATE(range(40, 48)));
    options.addresses = 2;
    options.sim.delay_min = options.sim.delay_max = 20us;
    Scene scene(options);
    RawServer server(scene.world, scene.server_host);
    constexpr std::uint32_t depth = 16, chunk = 8192;
    server.response =
        ConnectResponseMessage::accept({.queue_depth = depth,
                                        .chunk_bytes = chunk,
                                        .io_bytes_max = 4096,
                                        .header_bytes_max = 4096},
                                       KeyRenewal::no, features_of(Feature::failover));
    RawConnection* asks = nullptr;
    bool tells = true;
    server.received = [&](RawConnection& connection, const Completion& completion) {
        if (completion.opcode != CompletionOpcode::receive) return;
        if (tells) return server.send(connection, server.info(depth, chunk), std::nullopt);
        asks = &connection;
    };
    scene.start_client();
    ClientSession& session = scene.client->session;
    const auto state = [&](std::size_t path) { return session.status().paths.at(path).state; };
    REQUIRE(scene.run_until([&] { return state(1) == PathState::connected; }));
    tells = false;
    server.keeps_at = scene.address(0).substr(0, scene.address(0).rfind(':'));
    for (const auto& one : server.connections) one->endpoint->disconnect();
    REQUIRE(scene.run_until([&] {
        return asks != nullptr && !server.kept.empty() && state(1) == PathState::exchanging;
    }));
    std::byte stale[ConnectResponseMessage::wire_bytes];
    ConnectResponseMessage::reject(ESTALE).emit(stale);
    for (const auto& request : server.kept) request->reject(stale);
    server.send(*asks, server.info(depth, chunk), std::nullopt);
    REQUIRE(scene.run_until([&] { return scene.recorder.said("taken over by a newer"); }));
    std::vector<std::error_code> answers;
    const std::byte message[32]{};
    for (int i = 0; i < 10; ++i) {
        auto permit = session.try_take();
        if (permit) {
            session.submit(
                std::move(*permit),
                {.direction = Direction::write,
                 .message = message,
                 .payload_bytes = 512,
                 .responded =
                     [](void* context, Permit, std::error_code error) {
                         static_cast<std::vector<std::error_code>*>(context)->push_back(error);
                     },
                 .context = &answers});
        }
        scene.world.run_for(5us);
    }
    scene.world.run_for(10s);
    for (const std::error_code answer : answers) CHECK(answer == Error::rejected);
    CHECK(session.status().held == 0);
    CHECK(session.refuses_new() == Error::rejected);
    CHECK(session.status().refusing == Refusing::taken_over);
    CHECK(scene.client->links_up == 1);
    CHECK(scene.close_client());
}

TEST_CASE("two paths: both are used, and each may be lost") {
    SceneOptions options = quick_options(25);
    options.addresses = 2;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 200us;
    scene.start_client();
    REQUIRE(scene.ready());
    const auto both = [&] {
        for (const PathStatus& path : scene.client->session.status().paths) {
            if (path.state != PathState::connected) return false;
        }
        return true;
    };
    REQUIRE(scene.run_until(both));
    scene.client->run(15, 20000);
    for (int round = 0; round < 20; ++round) {
        scene.world.run_for(Duration(scene.world.random().below(2'000'000)));
        const auto which = [&](std::size_t index) {
            scene.world.network().reset(
                scene.client_host.address(index), scene.server_host.address(index),
                round % 2 ? SimNetwork::Seen::by_both : SimNetwork::Seen::by_first);
        };
        if (round % 3 != 0) which(0);
        if (round % 3 != 1) which(1);
        REQUIRE(scene.run_until(both));
    }
    CHECK(scene.client->failed == 0);
    work_and_end(scene, 15, 100);
}

TEST_CASE("without sequences a lost path is asked after over another one") {
    SceneOptions options = quick_options(28);
    options.addresses = 2;
    options.server.protection = Protection::fenced;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 2ms;
    scene.start_client();
    REQUIRE(scene.ready());
    const auto path = [&](std::size_t index) {
        return scene.client->session.status().paths.at(index);
    };
    REQUIRE(scene.run_until([&] { return path(1).state == PathState::connected; }));
    scene.client->run(15, 100000);
    scene.world.run_for(3ms);
    REQUIRE(path(0).in_flight > 0);
    // Nobody hears of its end, and it does not come back.
    scene.world.network().cut("10.0.0.1", "10.0.0.2");
    const auto answered = [&] { return scene.client->answered; };
    const auto waits_for_path = [&] {
        for (const RequestStatus& request : scene.client->session.requests()) {
            if (request.stage == RequestStatus::Stage::lost_path) return true;
        }
        return false;
    };
    REQUIRE(scene.run_until(waits_for_path));
    REQUIRE(scene.run_until([&] { return !waits_for_path(); }));
    CHECK(path(0).state != PathState::connected);
    CHECK(scene.recorder.said("the server has finished with path"));
    const auto before = answered();
    CHECK(scene.run_until([&] { return answered() > before + 1000; }));
    CHECK(scene.client->failed == 0);
    scene.world.network().heal_all();
    REQUIRE(scene.run_until([&] { return path(0).state == PathState::connected; }));
    work_and_end(scene, 15, 100);
}

TEST_CASE("without sequences a path is removed under load, and no request fails") {
    SceneOptions options = quick_options(29);
    options.addresses = 2;
    options.server.protection = Protection::fenced;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 2ms;
    scene.start_client();
    REQUIRE(scene.ready());
    const auto status = [&] { return scene.client->session.status(); };
    REQUIRE(scene.run_until([&] { return status().paths.at(1).state == PathState::connected; }));
    scene.client->run(15, 100000);
    scene.world.run_for(3ms);
    REQUIRE(status().paths.at(0).in_flight > 0);
    using enum ClientSession::PathOperation;
    REQUIRE(!scene.client->session.operate_path(status().paths.at(0).label, remove));
    REQUIRE(scene.run_until([&] { return status().paths.size() == 1; }));
    CHECK(scene.client->failed == 0);
    work_and_end(scene, 15, 100);
}

TEST_CASE("permits of a path that was removed are of use to a server without sequences, too") {
    SceneOptions options = quick_options(27);
    options.addresses = 2;
    options.client.hold_time = 10ms;
    Scene scene(options);
    scene.start_server();
    scene.server->service_max = 5s;
    scene.start_client();
    REQUIRE(scene.ready());
    const auto status = [&] { return scene.client->session.status(); };
    REQUIRE(scene.run_until([&] { return status().paths.at(1).state == PathState::connected; }));
    scene.client->errors_expected = true;
    scene.client->run(15, 100000);
    scene.world.run_for(3ms);
    REQUIRE(status().paths.at(0).in_flight > 0);
    REQUIRE(status().paths.at(1).in_flight > 0);
    scene.crash_server(CrashSeen::by_reset);
    scene.client->pause();
    REQUIRE(scene.run_until([&] { return scene.client->idle(); }));
    REQUIRE(status().unsettled == 15);
    using enum ClientSession::PathOperation;
    REQUIRE(!scene.client->session.operate_path(status().paths.at(1).label, remove));
    REQUIRE(scene.run_until([&] { return status().paths.size() == 1; }));
    scene.options.server.protection = Protection::fenced;
    scene.start_server();
    REQUIRE(scene.ready());
    CHECK(status().protection == Protection::fenced);
    CHECK(status().unsettled == 0);
    scene.client->errors_expected = false;
    work_and_end(scene, 15, 100);
}

TEST_CASE("a path that is held back is dialled when the last other one goes, announced or not") {
    SceneOptions options = quick_options(1);
    options.addresses = 2;
    options.client.hold_time = 200ms;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    const auto path = [&](std::size_t index) {
        return scene.client->session.status().paths.at(index).state;
    };
    const auto both_are_up = [&] {
        return path(0) == PathState::connected && path(1) == PathState::connected;
    };
    REQUIRE(scene.run_until(both_are_up));
    // What hangs is given up, and its fence waits for it.
    scene.server->service_max = 1h;
    scene.client->errors_expected = true;
    scene.client->run(4, 4);
    REQUIRE(scene.run_until([&] { return scene.server->working() > 0; }));
    SimNetwork& network = scene.world.network();
    network.cut("10.0.0.1", "10.0.0.2");
    network.cut("10.0.1.1", "10.0.1.2");
    REQUIRE(scene.run_until([&] { return scene.client->idle(); }));
    network.heal_all();
    REQUIRE(scene.run_until(both_are_up));
    REQUIRE(!scene.client->session.status().link_up);

    network.reset("10.0.1.1", "10.0.1.2", SimNetwork::Seen::by_both);
    REQUIRE(scene.run_until([&] { return path(1) == PathState::backoff; }));
    scene.world.run_for(100ms);
    REQUIRE(path(1) == PathState::backoff);
    network.reset("10.0.0.1", "10.0.0.2", SimNetwork::Seen::by_both);
    CHECK(scene.run_until([&] { return path(1) == PathState::connected; }, 100ms));

    REQUIRE(scene.run_until([&] { return scene.client->session.status().link_up; }, 2h));
    scene.server->service_max = Duration{0};
    work_and_end(scene, 8, 100);
}

TEST_CASE("a device that does not take the session's memory does not keep other paths away") {
    SceneOptions options = quick_options(23);
    options.addresses = 2;
    Scene scene(options);
    FaultyFabric device(scene.client_host.fabric(), scene.client_host.clock(), {});
    const std::string others = scene.options.client.paths.back().destination;
    scene.options.client.paths.pop_back();
    scene.start_server();
    scene.start_client();
    REQUIRE(!scene.client->session.add_path({&device, "", others}));
    device.options().refuse_registration_per_million = 1'000'000;
    const bool first = GENERATE(true, false);
    if (first) {
        // The device's path gets its answer before the other one does.
        scene.client->fabric.refuse_next().connects = 1;
    }
    REQUIRE(scene.ready());
    const auto of_device = [&] { return scene.client->session.status().paths.at(1); };
    REQUIRE(scene.run_until([&] { return of_device().attempts > 2; }));
    CHECK(of_device().state != PathState::connected);
    CHECK(scene.recorder.said("does not take this session's memory: Cannot allocate memory"));
    device.options().refuse_registration_per_million = 0;
    REQUIRE(scene.run_until([&] { return of_device().state == PathState::connected; }));
    // Requests go by it, too.
    using enum ClientSession::PathOperation;
    REQUIRE(!scene.client->session.operate_path(scene.client->session.status().paths.at(0).label,
                                                disconnect));
    work_and_end(scene, 15, 100);
}
