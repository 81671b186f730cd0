// ClientSession when answers are late: paths are probed, connections judged.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;

namespace {

// An answer says nothing but that it is there.
void submit(Scene& scene, Permit permit, Direction direction, std::uint32_t bytes) {
    const IoRequest io{.epoch = 0, .block = 1, .value = 0, .bytes = bytes};
    std::byte message[sizeof io];
    std::memcpy(message, &io, sizeof io);
    scene.client->session.submit(std::move(permit),
                                 {.direction = direction,
                                  .message = message,
                                  .payload_bytes = bytes,
                                  .responded = [](void*, Permit, std::error_code) {},
                                  .context = nullptr});
}

}  // namespace

// What is still on its way from the server says nothing of the way there.
TEST_CASE("a path whose requests are lost one way is given up though its server is heard") {
    const auto seed = GENERATE(1u, 2u, 3u, 4u);
    CAPTURE(seed);
    SceneOptions options = quick_options(seed);
    options.client.request_deadline = 1s;
    options.client.probe_timeout = 250ms;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 30s;
    // The server asks after silence of 9/8 of it: while the path is probed.
    options.client.heartbeat_interval = options.server.heartbeat_interval = 1s;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    const auto status = [&] { return scene.client->session.status(); };
    const auto lost = [&] { return !scene.client->session.link_up(); };
    const auto cut = [&] {
        scene.world.network().cut_one_way(scene.client_host.address(), scene.server_host.address());
    };
    Duration limit = 1300ms;
    SECTION("by its questions") {
        scene.server->service_max = 200us;
        scene.client->run(15, 100000);
        scene.world.run_for(3ms);
        cut();
        scene.world.run_for(1ms);
    }
    SECTION("by answers to requests that it has") {
        scene.server->service_max = 1500ms;
        scene.client->run(15, 100000);
        scene.world.run_for(3ms);
        cut();
        const std::uint64_t answered = scene.client->answered;
        REQUIRE(scene.run_until([&] { return scene.client->answered > answered; }));
        scene.client->pause();
        limit = 2300ms;
    }
    const Instant since = scene.world.now();
    scene.client->pause();
    REQUIRE(scene.run_until(lost, 40s));
    CHECK(scene.world.now() - since <= limit);
    CHECK(status().paths.at(0).counters.probes > 0);
    scene.world.network().heal_all();
    REQUIRE(scene.ready());
    work_and_end(scene, 15, 100);
}

TEST_CASE("a control message on a lost path goes on over another as soon as a probe shows it") {
    SceneOptions options = quick_options(GENERATE(1u, 2u, 3u, 4u));
    options.addresses = 2;
    options.client.request_deadline = 1s;
    options.client.probe_timeout = 250ms;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 30s;
    options.client.heartbeat_interval = options.server.heartbeat_interval = 12s;
    options.client.policy = PathPolicy::round_robin;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.world.run_for(1s);
    const auto lost = static_cast<std::size_t>(GENERATE(0, 1));
    scene.world.network().cut(scene.client_host.address(lost), scene.server_host.address(lost));
    const Instant since = scene.world.now();
    int answered = 0;
    // They take turns with the paths, one at a time.
    for (int i = 0; i < 2; ++i) {
        const std::byte message[8] = {};
        scene.client->session.submit_user(
            Direction::read, message, 8,
            [](void* count, std::error_code error, Bytes) {
                CHECK(!error);
                ++*static_cast<int*>(count);
            },
            &answered);
    }
    REQUIRE(scene.run_until([&] { return answered == 2; }, 40s));
    const Duration waited = scene.world.now() - since;
    CHECK(waited >= 1250ms);
    CHECK(waited <= 1300ms);
    scene.world.network().heal_all();
    work_and_end(scene, 15, 100);
}

// The heartbeats are on another one; and what is late beside it has the path probed.
// A kernel's answers nothing else while it opens a device.
TEST_CASE("without sequences a server may be silent for long while it has a user message") {
    SceneOptions options = quick_options(GENERATE(1u, 2u, 3u, 4u));
    options.sim.transport_timeout = 100s;
    options.client.request_deadline = 100ms;
    options.client.probe_timeout = 50ms;
    options.server.protection = Protection::fenced;
    options.server.heartbeat_timeout = 100s;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    const auto path = [&] { return scene.client->session.status().paths.at(0); };
    const auto cut = [&] {
        scene.world.network().cut(scene.client_host.address(), scene.server_host.address());
    };
    bool answered = false;
    const std::byte waits[16] = {};
    scene.client->session.submit_user(
        Direction::read, waits, 8,
        [](void* context, std::error_code, Bytes) { *static_cast<bool*>(context) = true; },
        &answered);
    REQUIRE(scene.run_until([&] { return !scene.server->waiting.empty(); }));
    cut();
    SECTION("but not for ever") {
        CHECK_FALSE(scene.run_until([&] { return !scene.client->session.link_up(); }, 29s));
        CHECK(scene.run_until([&] { return !scene.client->session.link_up(); }, 2s));
        scene.server->waiting[0]->respond({}, 8);
    }
    SECTION("nor after its answer") {
        scene.world.run_for(20s);
        CHECK(path().state == PathState::connected);
        CHECK(path().counters.probes == 0);
        scene.world.network().heal_all();
        scene.server->waiting[0]->respond({}, 8);
        REQUIRE(scene.run_until([&] { return answered; }));
        cut();
        CHECK(scene.run_until([&] { return !scene.client->session.link_up(); }, 1s));
    }
    scene.world.network().heal_all();
    REQUIRE(scene.ready());
    scene.world.run_for(options.sim.transport_timeout);  // for what was dialled meanwhile
    work_and_end(scene, 15, 100);
}

TEST_CASE("a connection that is silent alone is found, also beside requests that are slow") {
    struct Times {
        Duration deadline, probe;
    };
    const auto times = GENERATE(Times{2s, 1250ms}, Times{200ms, 200ms}, Times{200ms, 400ms},
                                Times{625ms, 1250ms}, Times{200ms, 125ms});
    const bool slow = GENERATE(false, true);
    CAPTURE(times.deadline.count(), times.probe.count(), slow);
    SceneOptions options = quick_options(1);
    options.client.io_connections = 2;
    options.client.request_deadline = times.deadline;
    options.client.probe_timeout = times.probe;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 30s;
    options.client.heartbeat_interval = options.server.heartbeat_interval = 12s;
    options.sim.transport_timeout = 100s;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.world.run_for(1s);
    std::vector<Permit> permits;
    while (auto permit = scene.client->session.try_take()) permits.push_back(std::move(*permit));
    std::ranges::sort(permits, {}, &Permit::id);
    if (permits.size() % 2 != 0) permits.pop_back();
    REQUIRE(permits.size() > 2);
    // Permits take turns with the connections; the lost one is the last that is looked at.
    if (slow) {
        scene.server->service_max = 1h;
        for (std::size_t i = 0; i + 1 < permits.size(); i += 2) {
            submit(scene, std::move(permits[i]), Direction::read, 8);
        }
        scene.world.run_for(1ms);
        REQUIRE(scene.server->working() > 0);
    }
    scene.world.network().lose_large("10.0.0.1", "10.0.0.2", 1024);
    const Instant since = scene.world.now();
    submit(scene, std::move(permits.back()), Direction::write, 4096);
    permits.clear();
    const auto status = [&] { return scene.client->session.status().paths.at(0); };
    REQUIRE(scene.run_until([&] { return status().state != PathState::connected; }, 60s));
    CHECK(status().reason.find("is silent") != std::string::npos);
    CHECK(scene.world.now() - since <= times.deadline + times.probe + 50ms);
    // The slow ones would take an hour.
    bury(scene.client.release());
    bury(scene.server.release());
    scene.crashed = true;
}

// A use of the list of paths as it was before is found by AddressSanitizer alone.
TEST_CASE("paths may be added when the last one is found silent") {
    SceneOptions options = quick_options(1);
    options.client.request_deadline = 200ms;
    options.client.probe_timeout = 200ms;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 30s;
    options.client.heartbeat_interval = options.server.heartbeat_interval = 12s;
    options.sim.transport_timeout = 100s;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.world.run_for(1s);
    bool added = false;
    scene.client->when_lost = [&] {
        added = true;
        for (const std::string port : {"1236", "1237", "1238", "1239"}) {
            CHECK(!scene.client->session.add_path(
                {&scene.client->fabric, "", scene.server_host.address() + ":" + port}));
        }
    };
    scene.world.network().lose_large("10.0.0.1", "10.0.0.2", 1024);
    submit(scene, *scene.client->session.try_take(), Direction::write, 4096);
    REQUIRE(scene.run_until([&] { return added; }, 60s));
    const auto paths = scene.client->session.status().paths;
    CHECK(paths.size() == 5);
    CHECK(paths.at(0).reason.find("is silent") != std::string::npos);
    CHECK(paths.at(0).counters.probes == 1);
    bury(scene.client.release());
    bury(scene.server.release());
    scene.crashed = true;
}

// The client has nothing to send again: it sees an answer that is late, as that of a slow storage.
TEST_CASE("an answer that is lost alone ends the path soon, by the server") {
    const std::uint16_t connections = GENERATE(as<std::uint16_t>{}, 1, 2);
    SceneOptions options = quick_options(1);
    options.client.io_connections = connections;
    options.client.request_deadline = 1s;
    options.client.probe_timeout = 250ms;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 30s;
    options.client.heartbeat_interval = options.server.heartbeat_interval = 2s;
    options.sim.transport_timeout = 100s;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.world.run_for(5s);
    scene.world.network().lose_large("10.0.0.1", "10.0.0.2", 1024);
    const Instant since = scene.world.now();
    submit(scene, *scene.client->session.try_take(), Direction::read, 4096);
    const auto lost = [&] { return !scene.client->session.link_up(); };
    REQUIRE(scene.run_until(lost, 60s));
    const Duration waited = scene.world.now() - since;
    CHECK(waited >= 2s);
    CHECK(waited <= 5s);
    // Its own kind of request is none that the server of the test knows.
    bury(scene.client.release());
    bury(scene.server.release());
    scene.crashed = true;
}

// An RDMA device may have so few places. The question arrives while all of them hold answers, which
// are on their way all the time.
TEST_CASE("a question to a server whose send queue is full is asked again, not waited for") {
    SceneOptions options = quick_options(GENERATE(1u, 2u, 3u, 4u));
    options.sim.send_queue_depth_max = Endpoint::send_queue_depth_least;
    options.sim.transport_timeout = 100s;
    options.server.queue_depth = 500;
    options.client.io_connections = 1;
    options.client.request_deadline = 1s;
    options.client.probe_timeout = 250ms;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 30s;
    options.client.heartbeat_interval = options.server.heartbeat_interval = 12s;
    options.blocks = 600;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(100, 600);  // every block was read then
    REQUIRE(scene.finish());
    scene.world.run_for(5s);
    scene.world.network().stall(scene.server_host.address(), scene.client_host.address(), 1200ms);
    scene.client->run(100, scene.client->made + 100);
    REQUIRE(scene.finish());
    REQUIRE(scene.client->links_down == 0);
    scene.world.run_for(10s);
    // Nothing but slow: the server answers all that it is asked.
    scene.server->service_max = 1h;
    for (int i = 0; i < 5; ++i) REQUIRE(scene.client->issue());
    scene.world.run_for(60s);
    CHECK(scene.server->working() > 0);
    CHECK(scene.client->links_down == 0);
    check(scene);
    bury(scene.client.release());
    bury(scene.server.release());
    scene.crashed = true;
}

TEST_CASE("a shorter request deadline holds for the next request") {
    SceneOptions options = quick_options(1);
    options.addresses = 2;
    options.client.request_deadline = 1h;
    options.client.probe_timeout = 250ms;
    options.client.heartbeat_timeout = options.server.heartbeat_timeout = 300s;
    options.client.heartbeat_interval = options.server.heartbeat_interval = 120s;
    options.sim.transport_timeout = 15s;
    Scene scene(options);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(4, 100);
    REQUIRE(scene.finish());
    scene.client->session.set_request_deadline(1s);
    scene.world.run_for(5s);
    scene.world.network().cut(scene.client_host.address(0), scene.server_host.address(0));
    const Instant since = scene.world.now();
    scene.client->run(8, 40);
    REQUIRE(scene.finish(1000s));
    CHECK(scene.world.now() - since >= 1250ms);
    CHECK(scene.world.now() - since <= 1300ms);
    scene.world.network().heal_all();
    work_and_end(scene, 4, 10);
}
