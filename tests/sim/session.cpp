// Requests of ClientSession to Server in peace: shapes, queues, permits. In trouble:
// session_faults.cpp; with several paths: session_paths.cpp; from open to close:
// session_life.cpp.
#include <catch2/catch.hpp>

#include "rtrs/limits.h"
#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;

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
    // Then a full queue may have nothing in it but revokes, whose completions make room too.
    const bool full_of_revokes = GENERATE(false, true);
    if (full_of_revokes) {
        options.sim.revoke = SimOptions::Revoke::pending;
        options.sim.revoke_place = SimOptions::RevokePlace::of_sends;
    }
    CAPTURE(options.server.always_invalidate, full_of_revokes);
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

TEST_CASE("registrations and windows that are refused") {
    Scene scene(quick_options(22));
    scene.start_server();
    std::uint64_t refusals = 0;
    SECTION("at the client") {
        scene.start_client();
        scene.client->fabric.refuse_next().registrations = 5;
        refusals = 5;
    }
    SECTION("at the server") {
        scene.server->fabric.refuse_next().registrations = 5;
        scene.server->fabric.refuse_next().windows = 3;
        scene.start_client();
        refusals = 5 + 3;
    }
    SECTION("connects") {
        scene.server->fabric.refuse_next().requests = 5;
        scene.start_client();
        scene.client->fabric.refuse_next().connects = 5;
        refusals = 5 + 5;
    }
    REQUIRE(scene.ready());
    CHECK(scene.client->fabric.statistics().refusals + scene.server->fabric.statistics().refusals ==
          refusals);
    work_and_end(scene, 15, 100);
}
