// RemoteVolume: requests that were reported as failed, and that a server whose storage hangs may
// still run. Nothing new is done to their volume until then, and no other volume waits for that.
#include <catch2/catch.hpp>

#include "tests/sim/volume_world.h"

using namespace simtest;
using namespace rnbd;

namespace {

constexpr const char* not_finished = "the server has not finished with requests that were given up";

struct Hanging : Volumes {
    explicit Hanging(const SceneOptions& options) : Volumes(options) {
        start_server();
        server->sessions_survive = true;
        start_client();
        REQUIRE(opened());
        server->hanging = "vol1";
        REQUIRE(user1->issue(VolumeOperation::write, 5));
        REQUIRE(until([&] { return server->hung() == 1; }));
    }
    void lose_path() {
        scene.world.network().cut("10.0.0.1", "10.0.0.2");
        REQUIRE(until([&] { return user2->volume.state() == VolumeState::reopening; }));
    }
    // The other volume comes back, and everything is done that is asked of it.
    void the_other_goes_on() {
        scene.world.network().heal_all();
        REQUIRE(until([&] { return user2->volume.state() == VolumeState::open; }));
        user2->run(100, 4);
        REQUIRE(until([&] { return user2->idle(); }));
        CHECK(user2->errors.empty());
    }
    // It hangs for as long as it likes, and the first volume waits for as long.
    void the_first_waits() {
        scene.world.run_for(5s);
        CHECK(user1->volume.state() != VolumeState::open);
        CHECK(user1->volume.reason().starts_with(not_finished));
        CHECK(server->hung() == 1);
        CHECK(session->rtrs().status().unsettled == 1);
    }
    void storage_goes_on() {
        server->storage_goes_on();
        REQUIRE(opened());
        CHECK(session->rtrs().status().unsettled == 0);
    }
};

}  // namespace

TEST_CASE("unsettled: given up after the hold time") {
    SceneOptions options = quick_options(61);
    options.client.hold_time = 500ms;
    Hanging v(options);
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors[Error::no_path] == 1);
    v.the_other_goes_on();
    v.the_first_waits();
    SECTION("the storage goes on") {}
    SECTION("the path is lost again first") {
        v.lose_path();
        v.the_other_goes_on();
        v.the_first_waits();
    }
    v.storage_goes_on();
    v.user1->errors.clear();
    v.good_end();
}

TEST_CASE("unsettled: closed while its request hung, and used again") {
    Hanging v(quick_options(62));
    v.user1->volume.close();
    v.scene.world.run_for(1s);
    CHECK_FALSE(v.user1->closed);
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.map_again();
    // Not with the permit of what hangs.
    v.user2->run(20, 4);
    v.the_other_goes_on();
    v.user1->issue(VolumeOperation::write, 5);
    v.the_first_waits();
    v.storage_goes_on();
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors.empty());
    v.good_end();
}

TEST_CASE("unsettled: a volume that is made while the link is up waits, too") {
    Hanging v(quick_options(63));
    v.user1->volume.close();
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.the_other_goes_on();
    v.map_again();
    CHECK(v.user1->changes == 0);  // not from inside its making
    v.the_first_waits();
    CHECK(v.user1->changes > 0);
    SECTION("it is opened in the end") {}
    SECTION("it is closed meanwhile, and made once more") {
        v.user1->volume.close();
        REQUIRE(v.until([&] { return v.user1->closed; }));
        v.map_again();
        v.the_first_waits();
    }
    v.storage_goes_on();
    v.good_end();
}

TEST_CASE("unsettled: closed before it was opened again, it does not stay open at the server") {
    Hanging v(quick_options(67));
    v.user1->volume.close();
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    const bool is_made_early = GENERATE(false, true);
    if (is_made_early) v.map_again();
    v.the_other_goes_on();
    if (!is_made_early) v.map_again();
    const bool has_waited = GENERATE(false, true);
    if (has_waited) v.the_first_waits();
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    CHECK(v.exports["vol1"].open_now == 1);
    v.server->storage_goes_on();
    CHECK(v.until([&] { return v.exports["vol1"].open_now == 0; }));
    v.end();
}

// With no other permit left, a request of the other volume gets the one of what hangs, and waits.
TEST_CASE("unsettled: what has used the permit since does not stand for what hangs") {
    Hanging v(quick_options(66));
    v.user1->volume.close();
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    std::uint32_t used = 0;
    while (v.user2->issue(VolumeOperation::write, 7)) ++used;
    CHECK(used == v.session->rtrs().permits_max());
    v.scene.world.network().heal_all();
    REQUIRE(v.until([&] { return v.user2->answered + 1 == v.user2->made; }));
    v.scene.world.run_for(1s);
    CHECK_FALSE(v.user2->idle());
    v.user2->volume.close();
    REQUIRE(v.until([&] { return v.user2->closed; }));
    CHECK(v.user2->errors[Error::closed] == 1);
    v.user2.reset();
    v.user2 = std::make_unique<User>(v.scene, *v.session, "vol2", 2);
    v.map_again();
    REQUIRE(v.until([&] { return v.user2->volume.state() == VolumeState::open; }));
    v.the_first_waits();
    v.storage_goes_on();
    v.good_end();
}

TEST_CASE("unsettled: the server that had it does not come back") {
    SceneOptions options = quick_options(64);
    options.client.hold_time = 500ms;
    Hanging v(options);
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    v.scene.server_host.restart();
    v.start_server();
    REQUIRE(v.opened());
    v.user1->errors.clear();
    v.good_end();
}

TEST_CASE("unsettled: the session is closed meanwhile") {
    Hanging v(quick_options(65));
    v.user1->volume.close();
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.the_other_goes_on();
    v.map_again();
    v.scene.world.run_for(1s);
    v.user1->volume.close();
    v.user2->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed && v.user2->closed; }));
    v.session->close();
    REQUIRE(v.until([&] { return v.session_closed; }));
    v.server->storage_goes_on();
    v.end();
}

namespace {

// Everything that the session can have under way hangs, and is given up.
struct AllHanging : Hanging {
    explicit AllHanging(std::uint64_t seed) : Hanging(waits_for_a_while(seed)) {
        while (user1->issue(VolumeOperation::write, 5)) {
        }
        REQUIRE(until([&] { return server->hung() == session->rtrs().permits_max(); }));
        lose_path();
        REQUIRE(until([&] { return user1->idle(); }));
        CHECK(user1->errors[Error::no_path] == session->rtrs().permits_max());
        user1->errors.clear();
        come_back();
    }
    static SceneOptions waits_for_a_while(std::uint64_t seed) {
        SceneOptions options = quick_options(seed);
        options.client.hold_time = 500ms;
        return options;
    }
    void come_back() {
        scene.world.network().heal_all();
        REQUIRE(until([&] { return user2->volume.state() == VolumeState::open; }));
        CHECK(session->rtrs().status().unsettled == session->rtrs().permits_max());
        CHECK(user1->volume.reason().starts_with(not_finished));
    }
};

}  // namespace

TEST_CASE("unsettled: with no other permit left, requests are told that they wait in vain") {
    AllHanging v(71);
    CHECK(v.user1->volume.hold_time_over());
    for (int i = 0; i < 30; ++i) {
        REQUIRE(v.user1->issue(VolumeOperation::write, 5));
        if (i % 3 == 2) v.scene.world.run_for(1ms);
    }
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors[Error::no_path] == 30);
    CHECK(v.user1->volume.state() != VolumeState::open);
    v.storage_goes_on();
    v.user1->errors.clear();
    v.good_end();
}

TEST_CASE("unsettled: with no other permit left, the other volume's requests wait for one") {
    AllHanging v(72);
    while (v.user2->issue(VolumeOperation::write, 7)) {
    }
    CHECK(v.user2->made == v.session->rtrs().permits_max());
    v.scene.world.run_for(1s);
    CHECK(v.user2->answered == 0);
    SECTION("they go on in the end") {}
    SECTION("so they do over another link") {
        v.lose_path();
        v.come_back();
    }
    v.storage_goes_on();
    REQUIRE(v.until([&] { return v.user2->idle(); }));
    CHECK(v.user2->errors.empty());
    v.good_end();
}

TEST_CASE("unsettled: without a path, who waits for a permit gets one that was kept back") {
    struct Waiter : PermitWaiter {
        Waiter() : PermitWaiter([](PermitWaiter& self) { static_cast<Waiter&>(self).has = true; }) {
            count = 1;
            permits = {&permit, 1};
        }
        Permit permit;
        bool has = false;
    };
    Hanging v(AllHanging::waits_for_a_while(73));
    const std::uint32_t all = v.session->rtrs().permits_max();
    while (v.session->rtrs().status().permits_free > 1) v.user1->issue(VolumeOperation::write, 5);
    REQUIRE(v.until([&] { return v.server->hung() + 1 == all; }));
    v.lose_path();
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    v.scene.world.network().heal_all();
    REQUIRE(v.until([&] { return v.user2->volume.state() == VolumeState::open; }));
    v.server->hanging = "vol2";
    REQUIRE(v.user2->issue(VolumeOperation::write, 7));
    Waiter waiter;
    CHECK_FALSE(v.session->rtrs().take_or_wait(waiter));
    REQUIRE(v.until([&] { return v.server->hung() == all; }));
    v.scene.world.run_for(1s);
    CHECK_FALSE(waiter.has);
    v.lose_path();
    REQUIRE(v.until([&] { return waiter.has; }));
    waiter.permit = Permit();
    v.scene.world.network().heal_all();
    v.storage_goes_on();
    v.user1->errors.clear();
    v.user2->errors.clear();
    v.good_end();
}

namespace {

// Both paths are lost, one of them ends late, and nothing waits for a path.
struct LateEnd : Volumes {
    explicit LateEnd(std::uint64_t seed) : Volumes(with_two_paths(seed)) {
        start_server();
        server->sessions_survive = true;
        start_client();
        REQUIRE(opened());
        REQUIRE(until([&] { return session->rtrs().status().paths[1].reason.empty(); }));
        server->hanging = "vol1";
        for (int i = 0; i < 8; ++i) REQUIRE(user1->issue(VolumeOperation::write, 5));
        REQUIRE(until([&] { return server->hung() == 8; }));
    }
    static SceneOptions with_two_paths(std::uint64_t seed) {
        SceneOptions options = quick_options(seed);
        options.addresses = 2;
        options.sim.drain_max = 200ms;
        options.client.hold_time = 0ms;
        return options;
    }
    void on_session_link_up() override { all_were_told = all_were_told && user1->idle(); }
    bool all_were_told = true;
};

}  // namespace

TEST_CASE("unsettled: the volume knows what was given up before its session is up again") {
    for (std::uint64_t seed = 80; seed < 100; ++seed) {
        INFO("seed " << seed);
        LateEnd v(seed);
        for (const char* server : {"10.0.0.1", "10.0.1.1"}) {
            for (const char* client : {"10.0.0.2", "10.0.1.2"}) {
                v.scene.world.network().reset(client, server, SimNetwork::Seen::by_both);
            }
        }
        REQUIRE(v.until([&] { return !v.session->rtrs().link_up(); }));
        REQUIRE(v.until([&] { return v.session->rtrs().link_up(); }));
        CHECK(v.all_were_told);
        REQUIRE(v.until([&] { return v.user2->volume.state() == VolumeState::open; }));
        CHECK(v.user1->errors[Error::no_path] == 8);
        CHECK(v.user1->volume.reason().starts_with(not_finished));
        v.server->storage_goes_on();
        REQUIRE(v.opened());
        v.user1->errors.clear();
        v.good_end();
    }
}
