// Several dials before any path is up: they make one session at the server, or two of which the
// client learns (rtrs/core/session_doubt.h).
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;
using CrashSeen = SimHost::CrashSeen;

namespace {

// Starts the client while there is no server; the newest dial of that path is on its way for long.
void start_with_slow_dial(Scene& scene, std::size_t path) {
    const auto state = [&] { return scene.client->session.status().paths.at(path).state; };
    scene.start_client();
    scene.world.run_for(300ms);
    scene.world.network().stall(scene.client_host.address(path), scene.server_host.address(path),
                                450ms);
    REQUIRE(scene.run_until([&] { return state() == PathState::backoff; }));
    REQUIRE(scene.run_until([&] { return state() == PathState::connecting; }));
}

}  // namespace

TEST_CASE("a dial on its way since before another path was up does not split the session") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.addresses = 2;
        Scene scene(options);
        const auto path = [&](std::size_t index) {
            return scene.client->session.status().paths.at(index).state;
        };
        // The second path's dial is slow, the first one's is not ...
        start_with_slow_dial(scene, 1);
        scene.start_server();
        REQUIRE(scene.ready(250ms));
        REQUIRE(path(0) == PathState::connected);
        scene.client->run(8, 100000);
        // ... and arrives at another server than the first path still believes in.
        scene.world.network().cut("10.0.0.1", "10.0.0.2");
        scene.crash_server(CrashSeen::by_reset);
        scene.start_server();
        scene.world.run_for(400ms);
        scene.world.network().heal_all();
        work_and_end(scene, 8, 100);
    }
}

// The server has lost the session of the first path, which does not know it yet, and makes another
// one for a dial of the second path that was on its way since before the first was up.
struct SplitScene : Scene {
    explicit SplitScene(std::uint64_t seed) : Scene(three_paths(seed)) {
        third = options.client.paths.back();
        options.client.paths.pop_back();
        start_with_slow_dial(*this, 1);
        start_server();
        REQUIRE(ready(250ms));
        REQUIRE(state(0) == PathState::connected);
        client->run(8, 100000);
        world.network().cut("10.0.0.1", "10.0.0.2");
        crash_server(CrashSeen::by_reset);
        start_server();
    }
    static SceneOptions three_paths(std::uint64_t seed) {
        SceneOptions options = quick_options(seed);
        options.addresses = 3;
        return options;
    }
    void add_third() {
        third.fabric = &client->fabric;
        REQUIRE(!client->session.add_path(third));
    }
    PathState state(std::size_t index) const {
        return client->session.status().paths.at(index).state;
    }
    PathAddress third;
};

TEST_CASE("a third path does not join the session that a late dial of the second has made") {
    const bool known_to_be_two = GENERATE(false, true);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        SplitScene scene(seed);
        SimNetwork& network = scene.world.network();
        if (known_to_be_two) {
            REQUIRE(scene.run_until([&] { return scene.server->sessions_up == 1; }, 450ms));
        } else {
            // The second path's client does not hear of it before the third has come.
            const auto has_session = [&] { return !scene.server->server.sessions().empty(); };
            REQUIRE(scene.run_until(has_session, 450ms));
            network.stall("10.0.1.1", "10.0.1.2", 50ms);
        }
        scene.add_third();
        REQUIRE(scene.run_until([&] { return scene.state(2) == PathState::exchanging; }, 10ms));
        scene.world.run_for(10ms);
        CHECK(scene.state(2) == PathState::exchanging);
        REQUIRE(scene.state(0) == PathState::connected);
        network.heal_all();  // now the first path hears of its end
        work_and_end(scene, 8, 100);
    }
}

TEST_CASE("a path that the operator removes while a third waits leaves the others as they are") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.addresses = 3;
        Scene scene(options);
        const auto state = [&](std::size_t index) {
            return scene.client->session.status().paths.at(index).state;
        };
        start_with_slow_dial(scene, 2);
        scene.start_server();
        REQUIRE(scene.ready(250ms));
        REQUIRE(scene.run_until(
            [&] { return state(0) == PathState::connected && state(1) == PathState::connected; },
            250ms));
        REQUIRE(scene.run_until([&] { return state(2) == PathState::exchanging; }, 450ms));
        REQUIRE(scene.run_until([&] { return scene.recorder.said("waiting until it is known"); },
                                10ms));
        const std::string first = scene.client->session.status().paths.at(0).label;
        REQUIRE(!scene.client->session.operate_path(first, ClientSession::PathOperation::remove));
        REQUIRE(scene.run_until([&] {
            const auto paths = scene.client->session.status().paths;
            return paths.size() == 2 && paths.at(1).state == PathState::connected;
        }));
        CHECK(scene.client->links_down == 0);
        work_and_end(scene, 8, 100);
    }
}

TEST_CASE("a first path that is silent holds the others up for a fifth of its time to connect") {
    SceneOptions options = quick_options(1);
    options.addresses = 3;
    options.client.connect_timeout = 5s;
    Scene scene(options);
    const auto path = [&](std::size_t index) {
        return scene.client->session.status().paths.at(index).state;
    };
    scene.start_server();
    scene.world.network().cut("10.0.0.1", "10.0.0.2");
    scene.start_client();
    scene.world.run_for(990ms);
    CHECK(path(1) == PathState::idle);
    REQUIRE(scene.ready(200ms));
    CHECK(path(0) == PathState::connecting);
    scene.client->run(8, 100);
    REQUIRE(scene.finish());
    scene.world.network().heal_all();
    REQUIRE(scene.run_until([&] {
        return path(0) == PathState::connected && path(1) == PathState::connected &&
               path(2) == PathState::connected;
    }));
    CHECK(scene.server->sessions_up == 1);
    work_and_end(scene, 8, 100);
}

TEST_CASE("a first path that is slow joins the session of the others, which is no failure") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.addresses = 2;
        options.server.half_open_timeout = 10s;
        options.client.connect_timeout = 5s;
        options.client.reconnect_attempts_max = 0;
        Scene scene(options);
        const auto paths = [&] { return scene.client->session.status().paths; };
        scene.start_server();
        scene.world.network().stall("10.0.0.1", "10.0.0.2", 1000100us + seed * 10us);
        scene.start_client();
        REQUIRE(scene.ready());
        REQUIRE(scene.run_until([&] {
            const auto now = paths();
            return std::ranges::all_of(
                now, [](const auto& path) { return path.state == PathState::connected; });
        }));
        for (const PathStatus& path : paths()) CHECK(path.attempts_failed == 0);
        CHECK(scene.server->sessions_up == 1);
        work_and_end(scene, 8, 100);
    }
}

TEST_CASE(
    "a path that waits for longer than a connect timeout dials again, and counts no failure") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.addresses = 2;
        options.server.heartbeat_timeout = options.client.heartbeat_timeout = 5s;
        options.server.half_open_timeout = 5s;
        options.client.request_deadline = options.client.probe_timeout = 5s;
        Scene scene(options);
        const auto path = [&](std::size_t index) {
            return scene.client->session.status().paths.at(index);
        };
        const auto reached = [&](std::size_t index, PathState state) {
            return scene.run_until([&] { return path(index).state == state; });
        };
        // Both paths dial before one is up.
        start_with_slow_dial(scene, 1);
        const auto failed_before = path(1).attempts_failed;
        scene.start_server();
        REQUIRE(scene.ready(250ms));
        REQUIRE(path(0).state == PathState::connected);
        scene.client->run(8, 100000);
        // Of the first path nothing is heard meanwhile.
        scene.world.network().stall("10.0.0.1", "10.0.0.2", 2s);
        REQUIRE(reached(1, PathState::exchanging));
        REQUIRE(scene.run_until([&] { return scene.recorder.said("waiting until it is known"); }));
        REQUIRE(reached(1, PathState::backoff));
        CHECK(path(0).state == PathState::connected);
        CHECK(path(1).attempts_failed == failed_before);
        REQUIRE(reached(1, PathState::connected));
        CHECK(path(0).reconnects == 0);
        CHECK(scene.client->links_down == 0);
        CHECK(scene.server->sessions_up == 1);
        work_and_end(scene, 8, 100);
    }
}
