// RemoteVolume and the id of its device: another one after a restart, or taken, or given to another
// volume.
#include <catch2/catch.hpp>

#include "tests/sim/volume_world.h"

using namespace simtest;
using namespace rnbd;

TEST_CASE("requests that a restart interrupted get the new device id") {
    const auto seen = GENERATE(SimHost::CrashSeen::by_reset, SimHost::CrashSeen::never);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Volumes v(quick_options(seed));
        v.start_server();
        v.server->delay = 300us;
        v.start_client();
        REQUIRE(v.opened());
        for (int round = 0; round < 3; ++round) {
            v.user1->run(200, 7);
            v.user2->run(200, 7);
            v.scene.world.run_for(Duration(v.scene.world.random().below(2'000'000)));
            v.crash_server(seen);
            v.user1->some();  // meanwhile: waits
            v.scene.world.run_for(Duration(v.scene.world.random().below(900'000'000)));
            v.scene.server_host.restart();
            v.start_server();
            v.server->delay = 300us;
            REQUIRE(v.opened());
            CHECK(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
        }
        v.good_end();
    }
}

TEST_CASE("a device that the server closed is opened again, and its requests sent again") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Volumes v(quick_options(seed));
        v.start_server();
        v.server->delay = seed % 2 == 0 ? 200ms : 300us;
        v.start_client();
        REQUIRE(v.opened());
        v.user1->run(100, 7);
        v.user2->run(100, 7);
        for (int round = 0; round < 5; ++round) {
            const Duration most = v.server->delay / 2;
            v.scene.world.run_for(
                Duration(v.scene.world.random().below(static_cast<std::uint64_t>(most.count()))));
            v.server->forget("vol1");
        }
        CHECK(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
        CHECK(v.user1->errors.empty());
        CHECK(v.exports["vol1"].opens > 1);
        CHECK(v.exports["vol2"].opens == 1);
        v.good_end();
    }
}

// A kernel's server gives the id of a device that an operator has closed to the next one.
TEST_CASE("a device id that the server has given to another volume is not used any more") {
    Volumes v;
    v.start_server();
    v.server->gives_ids_again = true;
    v.start_client();
    REQUIRE(v.opened());
    const bool is_under_way = GENERATE(false, true);
    const std::uint64_t others_before = v.exports["vol2"].words[5];
    v.exports["vol1"].words[5] = 0;
    v.server->forget("vol1");
    v.server->forget("vol2");
    if (is_under_way) v.server->open_answer_delay = 100ms;
    // Opened again, under the id that was the other one's.
    v.user2->issue(VolumeOperation::write, 7);
    if (is_under_way) {
        v.server->write_answer_delay = 500ms;
        REQUIRE(v.until([&] { return v.exports["vol2"].opens == 2; }));
        v.user1->issue(VolumeOperation::write, 5);
    } else {
        REQUIRE(v.until([&] { return v.user2->idle(); }));
        v.user1->issue(VolumeOperation::write, 5);
    }
    REQUIRE(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
    CHECK(v.exports["vol1"].words[5] == (1ull << 32 | 5));
    // What was on its way when the id was given away cannot be called back.
    if (!is_under_way) CHECK(v.exports["vol2"].words[5] == others_before);
    v.exports["vol2"].words[5] = others_before;
    v.server->open_answer_delay = v.server->write_answer_delay = 0s;
    v.good_end();
}

// The path of what was under way is lost only later: it is sent again over the other path.
TEST_CASE(
    "a request under way by an id that is another volume's now does not go to that one later") {
    SceneOptions options = quick_options(36);
    options.addresses = 2;
    options.server.protection = Protection::fenced;
    Volumes v(options);
    v.start_server();
    v.server->gives_ids_again = true;
    v.start_client();
    REQUIRE(v.opened());
    ClientSession& session = v.session->rtrs();
    const auto path = [&](std::size_t i) { return session.status().paths.at(i); };
    REQUIRE(v.until([&] {
        return path(0).state == PathState::connected && path(1).state == PathState::connected;
    }));
    REQUIRE(!session.set_path_priority(path(1).label, PathPriority::standby));
    v.scene.world.network().cut(v.scene.client_host.address(0), v.scene.server_host.address(0));
    v.user1->issue(VolumeOperation::write, 5);
    REQUIRE(!session.set_path_priority(path(1).label, PathPriority::prefer));
    REQUIRE(!session.set_path_priority(path(0).label, PathPriority::standby));
    const std::uint64_t others_before = v.exports["vol2"].words[5];
    v.exports["vol1"].words[5] = 0;
    v.server->forget("vol1");
    v.server->forget("vol2");
    v.user2->issue(VolumeOperation::write, 7);
    REQUIRE(v.until([&] { return v.exports["vol1"].opens == 2 && v.opened(); }));
    REQUIRE(path(0).state == PathState::connected);
    REQUIRE(v.exports["vol1"].words[5] == 0);
    REQUIRE(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
    CHECK(path(0).state != PathState::connected);
    CHECK(v.exports["vol1"].words[5] == (1ull << 32 | 5));
    CHECK(v.exports["vol2"].words[5] == others_before);
    v.scene.world.network().heal_all();
    v.good_end();
}

TEST_CASE("a device that the server closed is opened again when only its extents are asked for") {
    Volumes v;
    v.begin(Feature::extents);
    const auto ask = [&] { REQUIRE(v.user1->issue(VolumeOperation::extents, 0)); };
    ask();
    CHECK(v.until([&] { return v.user1->told == 1; }));
    v.server->forget("vol1");
    ask();
    ask();
    CHECK(v.until([&] { return v.user1->told == 3; }));
    CHECK(v.exports["vol1"].opens == 2);
    v.good_end();
}
