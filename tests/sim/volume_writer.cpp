// A volume to which another writer has written while its session was away.
#include <catch2/catch.hpp>

#include "tests/sim/volume_world.h"

using namespace simtest;
using namespace rnbd;

TEST_CASE("what a writer held fails when another one has written, and all that comes after it") {
    Volumes v;
    v.begin(Feature::writer);
    const std::uint64_t writer = v.exports["vol1"].writer;
    CHECK(writer != 0);
    CHECK(v.exports["vol2"].writer != writer);
    v.lose_server();
    v.user1->running = 0;
    const std::uint64_t answered = v.user1->answered;
    REQUIRE(v.user1->made == answered + 7);     // at the session
    v.user1->issue(VolumeOperation::write, 3);  // waits for the volume
    const auto content = v.exports["vol1"].words;
    const auto ios = [&] { return v.exports["vol1"].words != content; };
    v.exports["vol1"].out.insert(writer);
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->volume.state() == VolumeState::superseded);
    CHECK(v.user1->volume.open_error() == rtrs::from_errno(ESTALE));
    CHECK(v.user1->errors[rtrs::from_errno(ESTALE)] == 8);
    CHECK_FALSE(ios());

    for (const auto operation :
         {VolumeOperation::read, VolumeOperation::write, VolumeOperation::flush}) {
        v.user1->issue(operation, 5);
    }
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors[rtrs::from_errno(ESTALE)] == 11);
    CHECK(v.user1->volume.open_again() == rtrs::from_errno(ESTALE));

    // For ever, whatever becomes of the session.
    v.crash_server(SimHost::CrashSeen::by_reset);
    v.exports["vol1"].out.clear();
    v.start_server();
    REQUIRE(v.until([&] { return v.user2->volume.state() == VolumeState::open; }));
    v.scene.world.run_for(5s);
    CHECK(v.user1->volume.state() == VolumeState::superseded);
    CHECK(v.exports["vol1"].open_now == 0);
    CHECK_FALSE(ios());

    // Mapped anew it is another writer.
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.map_again();
    REQUIRE(v.opened());
    CHECK(v.exports["vol1"].writer != writer);
    v.good_end();
}

TEST_CASE("a writer keeps its number from session to session, but for one that was never open") {
    Volumes v;
    v.begin(Feature::writer);
    const std::uint64_t writer = v.exports["vol1"].writer;
    v.lose_server();
    v.user1->running = 0;
    v.start_server();
    REQUIRE(v.opened());
    CHECK(v.exports["vol1"].writer == writer);
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors.empty());
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));

    // It asks, and does not hear that it has it open.
    v.exports["vol1"].writer = 0;
    v.server->open_answer_delay = 1s;
    v.map_again();
    REQUIRE(v.until([&] { return v.exports["vol1"].writer != 0; }));
    v.crash_server(SimHost::CrashSeen::by_reset);
    const std::uint64_t unheard = v.exports["vol1"].writer;
    v.exports["vol1"].out.insert(unheard);
    v.start_server();
    REQUIRE(v.opened());
    CHECK(v.exports["vol1"].writer != unheard);
    v.good_end();
}

TEST_CASE("a server without the feature hears of no writer, and its ESTALE is like others") {
    Volumes v;
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    CHECK(v.exports["vol1"].writer == 0);
    v.lose_server();
    v.user1->running = 0;
    v.exports["vol1"].refuse = ESTALE;
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == rtrs::from_errno(ESTALE); }));
    CHECK(v.user1->volume.state() == VolumeState::reopening);
    v.exports["vol1"].refuse = 0;
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors.empty());
    v.good_end();
}

TEST_CASE("what is in flight by another path when a volume is superseded fails, too") {
    SceneOptions options = quick_options(7);
    options.addresses = 2;
    Volumes v(options);
    v.begin(Feature::writer);
    v.scene.world.run_for(1s);
    v.scene.world.network().cut("10.0.1.1", "10.0.1.2");
    for (std::uint32_t i = 0; i < 4; ++i) v.user1->issue(VolumeOperation::write, i);
    v.scene.world.run_for(10ms);
    v.exports["vol1"].out.insert(v.exports["vol1"].writer);
    v.server->forget("vol1");
    for (int i = 0; i < 2 && v.user1->volume.state() != VolumeState::superseded; ++i) {
        v.user1->issue(VolumeOperation::read, 4);
        v.scene.world.run_for(100ms);
    }
    REQUIRE(v.user1->volume.state() == VolumeState::superseded);
    CHECK(!v.user1->idle());
    v.crash_server(SimHost::CrashSeen::by_reset);
    v.start_server();
    v.scene.world.network().heal_all();
    REQUIRE(v.until([&] { return v.user2->volume.state() == VolumeState::open; }));
    CHECK(v.until([&] { return v.user1->idle(); }));
    v.end();
}

TEST_CASE("a volume that was never used is opened as another writer, one of a former life is not") {
    Volumes v;
    v.begin(Feature::writer);
    const std::uint64_t unused = v.exports["vol1"].writer;
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    v.exports["vol1"].out.insert(unused);
    v.start_server();
    REQUIRE(v.opened());
    CHECK(v.exports["vol1"].writer != unused);
    CHECK_FALSE(v.user1->refusals.contains(rtrs::from_errno(ESTALE)));  // which is for ever

    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.user1.reset();
    v.user1 = std::make_unique<User>(v.scene, *v.session, "vol1", 1, unused);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::superseded; }));
    CHECK(v.user1->volume.writer() == unused);
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.map_again();
    v.good_end();
}
