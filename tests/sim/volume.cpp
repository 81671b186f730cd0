// RemoteSession and RemoteVolume against a small RNBD server, through refusals, restarts and loss.
#include <catch2/catch.hpp>

#include "tests/sim/volume_world.h"

using namespace simtest;
using namespace rnbd;

TEST_CASE("a volume is opened, used, closed") {
    Volumes v;
    v.start_server();
    v.start_client();
    v.good_end();
}

TEST_CASE("an open that is refused is tried again until it is accepted") {
    Volumes v;
    v.exports["vol1"].refuse = ENOENT;
    v.start_server();
    v.start_client();
    CHECK(!v.opened(5s));
    CHECK(v.user2->volume.state() == VolumeState::open);
    CHECK(v.user1->volume.state() == VolumeState::opening);
    CHECK(v.user1->volume.open_error() == std::errc::no_such_file_or_directory);
    v.user1->run(20, 4);  // held
    v.exports["vol1"].refuse = EPERM;
    v.scene.world.run_for(5s);
    CHECK(v.user1->answered == 0);
    CHECK(v.user1->volume.open_error() == std::errc::operation_not_permitted);
    v.exports["vol1"].refuse = 0;
    CHECK(v.opened(2100ms));
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->volume.reason().empty());
    v.good_end();
}

TEST_CASE("a volume of blocks that cannot be is not used") {
    struct Said {
        std::uint16_t logical_block_bytes;
        std::uint64_t sectors;
    };
    // Below a sector, not a power of two, longer than a request; longer than an offset can say.
    const auto said = GENERATE(Said{1, 64}, Said{520, 64}, Said{32768, 64}, Said{block, 1ull << 55},
                               Said{block, ~0ull});
    Volumes v;
    v.exports["vol1"].logical_block_bytes = said.logical_block_bytes;
    v.exports["vol1"].sectors = said.sectors;
    v.start_server();
    v.start_client();
    CHECK(v.until([&] { return v.user1->volume.open_error() == rtrs::Error::protocol; }));
    CHECK(
        v.user1->volume.reason().starts_with("the server's answer to OPEN cannot be used: found"));
    CHECK(v.user1->volume.state() == VolumeState::opening);
    v.exports["vol1"].logical_block_bytes = block;
    v.exports["vol1"].sectors = 64;
    v.server->forget("vol1");
    v.good_end();
}

TEST_CASE("a volume ends with its last whole block") {
    Volumes v;
    v.exports["vol1"].logical_block_bytes = 8 * block;
    v.exports["vol1"].sectors = 63;
    v.begin(Feature::none);
    CHECK(v.user1->volume.geometry().size_bytes == 56 * sector_bytes);
    v.end();
}

TEST_CASE("a volume whose size changes ends with its last whole block, too") {
    SceneOptions options = quick_options(38);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.exports["vol1"].logical_block_bytes = 8 * block;
    v.start_server();
    v.server->open_answer_delay = 500ms;
    v.start_client();
    REQUIRE(v.until([&] { return v.exports["vol1"].opens > 0 && v.server->followed; }));
    // While the answer to OPEN is on its way, which has the former size, and afterwards.
    v.server->resize("vol1", 127);
    REQUIRE(v.opened());
    v.scene.world.run_for(1s);
    CHECK(v.user1->volume.geometry().size_bytes == 120 * sector_bytes);
    v.server->resize("vol1", 97);
    v.scene.world.run_for(1s);
    CHECK(v.user1->volume.geometry().size_bytes == 96 * sector_bytes);
    v.server->open_answer_delay = 0s;
    v.end();
}

TEST_CASE("the hold time bounds what a volume waits for") {
    SceneOptions options = quick_options(33);
    options.client.hold_time = 2s;
    Volumes v(options);
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    SECTION("a server that is gone") {
        v.lose_server();
        v.user1->run(0, 3);
    }
    SECTION("a device that is not opened again") {
        v.exports["vol1"].refuse = ENOENT;
        v.server->forget("vol1");
        v.user1->run(0, 7);
        REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
        v.user1->run(0, 3);
    }
    const std::uint64_t made = v.user1->made;
    const std::uint64_t before = v.user1->answered;
    v.scene.world.run_for(1990ms);
    CHECK(v.user1->answered == before);
    v.scene.world.run_for(20ms);
    CHECK(v.user1->answered == made);
    CHECK(v.user1->errors[Error::no_path] == made - before);
    CHECK(v.user1->volume.hold_time_over());
    CHECK(v.user1->volume.reason().find("hold time is over") != std::string::npos);
    v.user1->some();
    v.scene.world.run_for(1ms);
    CHECK(v.user1->idle());
    v.user1->errors.clear();
    v.exports["vol1"].refuse = 0;
    if (!v.server) v.start_server();
    v.good_end();
}

TEST_CASE("after the fail-fast time a volume refuses new requests, and older ones wait") {
    SceneOptions options = quick_options(34);
    options.client.fail_fast_time = 1s;
    Volumes v(options);
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    v.lose_server();
    const std::uint64_t answered = v.user1->answered;
    v.scene.world.run_for(990ms);
    v.user1->run(0, 3);
    v.scene.world.run_for(20ms);
    CHECK(v.user1->answered == answered);
    CHECK(v.session->rtrs().status().refusing == Refusing::after_fail_fast_time);
    CHECK(v.session->waiting() + v.session->rtrs().status().held == v.user1->made - answered);
    CHECK(v.session->waiting() > 0);
    v.user1->some();
    v.scene.world.run_for(1ms);
    CHECK(v.user1->errors[Error::no_path] == 1);
    CHECK(v.user1->answered == answered + 1);
    v.scene.world.run_for(5s);
    CHECK(v.user1->answered == answered + 1);
    v.scene.server_host.restart();
    v.start_server();
    REQUIRE(v.opened());
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.session->rtrs().status().refusing == Refusing::nothing);
    CHECK(v.session->waiting() == 0);
    CHECK(v.user1->errors.size() == 1);
    v.user1->errors.clear();
    v.good_end();
}

TEST_CASE("requests for a volume fail when every path was given up") {
    SceneOptions options = quick_options(35);
    options.client.reconnect_attempts_max = 3;
    Volumes v(options);
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    v.lose_server();
    v.user1->run(0, 3);
    v.scene.world.run_for(5s);
    CHECK(v.scene.recorder.said("used up its reconnect attempts"));
    CHECK(v.user1->idle());
    v.user1->some();
    v.scene.world.run_for(1ms);
    CHECK(v.user1->idle());
    v.user1->errors.clear();
    v.scene.server_host.restart();
    v.start_server();
    const std::string label = v.session->rtrs().status().paths.at(0).label;
    REQUIRE(!v.session->rtrs().operate_path(label, ClientSession::PathOperation::reconnect));
    v.good_end();
}

TEST_CASE("requests for a volume fail when another session has taken the place of its own") {
    SceneOptions options = quick_options(36);
    options.client.identity = 7;
    options.client.life = 1;
    Volumes v(options);
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    v.server->delay = 500us;
    v.user1->run(0, 7);
    struct Ends final : RemoteSessionHandler {
        void on_session_closed() override { closed = true; }
        bool closed = false;
    } ends;
    ClientSessionOptions newer = v.scene.options.client;
    newer.life = 2;
    for (PathAddress& path : newer.paths) path.fabric = &v.scene.client_host.fabric();
    RemoteSession other(
        SessionEnvironment{v.scene.client_host.clock(), v.scene.world.random(), v.scene.recorder},
        newer, ends);
    REQUIRE(!other.open());
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    v.user1->run(0, 3);
    CHECK(v.until([&] { return v.scene.recorder.said("taken over by a newer"); }));
    v.scene.world.run_for(5s);
    CHECK(v.user1->idle());
    v.user1->some();
    v.scene.world.run_for(1ms);
    CHECK(v.user1->idle());
    CHECK(v.user1->errors[Error::rejected] > 0);
    other.close();
    CHECK(v.until([&] { return ends.closed; }));
    v.end();
}

TEST_CASE("a new size that overtakes the answer to the open is kept") {
    SceneOptions options = quick_options(37);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.start_server();
    v.server->open_answer_delay = 500ms;
    v.start_client();
    REQUIRE(v.until([&] { return v.exports["vol1"].opens > 0 && v.server->followed; }));
    v.scene.world.run_for(100ms);
    REQUIRE(v.user1->volume.state() == VolumeState::opening);
    v.server->resize("vol1", 128);
    REQUIRE(v.opened());
    v.scene.world.run_for(1s);
    CHECK(v.user1->volume.geometry().size_bytes == 128 * block);
    CHECK(v.user2->volume.geometry().size_bytes == 64 * block);
    v.server->resize("vol1", 64);
    v.scene.world.run_for(1s);
    CHECK(v.user1->volume.geometry().size_bytes == 64 * block);
    v.server->open_answer_delay = 0s;
    v.good_end();
}

TEST_CASE("extents that are no whole blocks are an error of the server, and nothing else") {
    Volumes v;
    v.begin(Feature::extents);
    const auto ask = [&] {
        REQUIRE(v.user1->issue(VolumeOperation::extents, 0));
        CHECK(v.until([&] { return v.user1->idle(); }));
    };
    v.server->extent_lengths = {1, 3, 511, block - 515};
    ask();
    v.server->extent_lengths = {block, 1};
    ask();
    v.server->extent_lengths = {~std::uint64_t{0}};
    ask();
    v.server->extent_lengths = {0, block};
    ask();
    CHECK(v.user1->told == 0);
    CHECK(std::exchange(v.user1->errors, {}) ==
          std::map<std::error_code, std::uint64_t>{{Error::protocol, 4}});
    v.server->extent_lengths = {block, 64 * block};  // more than was asked for
    ask();
    CHECK(v.user1->told == 1);
    v.good_end();
}

TEST_CASE(
    "extents are told after a loss of all paths, and refused by a server that does not know them") {
    Volumes v;
    v.begin(Feature::extents);
    v.server->extents_answer_delay = 1h;
    REQUIRE(v.user1->issue(VolumeOperation::extents, 0));
    v.scene.world.run_for(1ms);
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    REQUIRE(v.user1->issue(VolumeOperation::extents, 0));  // waits for the volume
    v.scene.server_host.restart();
    SECTION("the same server") {
        v.start_server();
        CHECK(v.until([&] { return v.user1->told == 2; }));
    }
    SECTION("another one") {
        v.features = Feature::none;
        v.start_server();
        CHECK(v.until([&] { return v.user1->idle(); }));
        CHECK(v.user1->errors[from_errno(EOPNOTSUPP)] == 2);
        v.user1->errors.clear();
    }
    v.good_end();
}

TEST_CASE("zeroes that were held are asked of no server that makes none") {
    Volumes v;
    v.exports["vol1"].zeroes_sectors_max = 8;
    v.exports["vol1"].words[5] = 7;
    v.begin(Feature::none);
    v.server->delay = 1h;
    REQUIRE(v.user1->issue(VolumeOperation::write_zeroes, 5));
    v.scene.world.run_for(1ms);
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    v.scene.server_host.restart();
    SECTION("but of one that does") {
        v.start_server();
        CHECK(v.until([&] { return v.user1->idle(); }));
        CHECK(v.exports["vol1"].words[5] == 0);
    }
    SECTION("who asked for them is told") {
        v.exports["vol1"].zeroes_sectors_max = 0;
        v.start_server();
        CHECK(v.until([&] { return v.user1->idle(); }));
        CHECK(v.server->ios == 0);
        CHECK(v.user1->errors[from_errno(EOPNOTSUPP)] == 1);
        v.user1->errors.clear();
        v.exports["vol1"].words[5] = 0;
    }
    v.good_end();
}

TEST_CASE("zeroes that were held are asked of no server that makes fewer at once") {
    Volumes v;
    v.exports["vol1"].zeroes_sectors_max = 2;
    v.begin(Feature::none);
    v.server->delay = 1h;
    REQUIRE(v.user1->issue(VolumeOperation::write_zeroes, 5, 2));
    v.scene.world.run_for(1ms);
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    v.scene.server_host.restart();
    v.exports["vol1"].zeroes_sectors_max = 1;
    v.start_server();
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.server->ios == 0);
    CHECK(v.user1->errors[from_errno(EOPNOTSUPP)] == 1);
    v.user1->errors.clear();
    v.good_end();
}

TEST_CASE("an answer to extents keeps nobody waiting who opens or closes") {
    Volumes v;
    v.begin(Feature::extents);
    v.server->extents_answer_delay = 1h;
    for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(v.user1->issue(VolumeOperation::extents, i));
    v.user2->volume.close();
    CHECK(v.until([&] { return v.user2->closed; }));
    v.user2 = std::make_unique<User>(v.scene, *v.session, "vol2", 2);
    CHECK(v.opened());
    CHECK(v.user1->told == 0);
    CHECK(v.until([&] { return v.user1->told == 3; }, 2h));
    v.server->extents_answer_delay = 0s;
    v.good_end();
}

TEST_CASE("close comes to its end from every state") {
    for (int step = 0; step < 120; ++step) {
        CAPTURE(step);
        Volumes v(quick_options(static_cast<std::uint64_t>(step)));
        Random& random = v.scene.world.random();
        if (step % 7 != 0) v.start_server();
        v.start_client();
        if (step % 7 == 1) {
            v.exports["vol1"].refuse = EACCES;
            v.scene.world.run_for(3s);
        } else if (step % 7 > 1) {
            v.server->delay = step % 2 ? 100us : 0us;
            if (step % 7 > 2) REQUIRE(v.opened());
        }
        if (step % 3 == 0 && v.session->rtrs().permits_max() > 0) {
            v.user1->run(30, 5);
            v.user2->run(30, 5);
        }
        v.scene.world.run_for(Duration(random.below(500'000)));
        const auto lose = [&] {
            v.scene.world.network().reset(
                "10.0.0.1", "10.0.0.2",
                random.chance(1, 2) ? SimNetwork::Seen::by_both : SimNetwork::Seen::by_first);
        };
        if (step % 5 == 1) lose();
        if (step % 5 == 2 && v.server) v.crash_server(SimHost::CrashSeen::by_reset);
        if (step % 5 == 3 && v.server) v.server->forget("vol1");
        if (step % 2 == 0) v.scene.world.run_for(Duration(random.below(100'000)));
        v.user1->running = v.user2->running = 0;
        v.user1->volume.close();
        v.user2->volume.close();
        if (step % 4 == 3) {
            // The link goes while CLOSE is on its way.
            v.scene.world.run_for(Duration(random.below(150'000)));
            lose();
        }
        CHECK(v.until([&] { return v.user1->closed && v.user2->closed; }, 10s));
        v.end();
        for (const auto& [name, one] : v.exports) CHECK(one.open_now == 0);
    }
}

TEST_CASE("a volume that is closed while it is being opened is closed at the server too") {
    Volumes v;
    v.start_server();
    v.server->delay = 200ms;
    v.start_client();
    REQUIRE(v.until([&] { return v.exports["vol1"].opens > 0 || v.exports["vol2"].opens > 0; }));
    REQUIRE(v.user1->volume.state() == VolumeState::opening);
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.scene.world.run_for(1s);
    CHECK(v.exports["vol1"].open_now == 0);
    v.end();
}

TEST_CASE(
    "a volume that is closed without a link is closed later, where its session has survived") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.addresses = 2;
        options.server.heartbeat_timeout = 60s;
        Volumes v(options);
        Random& random = v.scene.world.random();
        v.start_server();
        v.server->sessions_survive = true;
        v.server->delay = seed % 2 == 0 ? 300us : 0us;
        v.start_client();
        REQUIRE(v.opened());
        v.scene.world.run_for(10ms);
        if (seed % 5 == 0) v.user1->run(30, 5);
        if (seed % 4 == 0) v.user1->volume.close();  // the CLOSE may be under way
        v.scene.world.run_for(Duration(random.below(200'000)));
        // Only the client learns of it, and the second path stays away: the server keeps that.
        v.scene.world.network().cut("10.0.1.1", "10.0.1.2");
        for (const char* network : {"10.0.0.", "10.0.1."}) {
            const std::string prefix = network;
            v.scene.world.network().reset(prefix + "2", prefix + "1", SimNetwork::Seen::by_first);
        }
        v.user1->running = 0;
        v.user1->volume.close();
        REQUIRE(v.until([&] { return v.user1->closed; }));
        const bool comes_back = seed % 3 == 0;
        if (comes_back) v.map_again();
        CHECK(v.until([&] { return v.open_at_server("vol1") == comes_back; }));
        v.scene.world.run_for(2s);
        CHECK(v.open_at_server("vol1") == comes_back);
        CHECK(v.open_at_server("vol2"));
        CHECK(v.user2->volume.state() == VolumeState::open);
        v.scene.world.network().heal_all();
        v.end();
        for (const auto& [name, one] : v.exports) CHECK(one.open_now == 0);
    }
}

TEST_CASE("what lies outside of the volume is refused here") {
    Volumes v;
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    v.user1->issue(VolumeOperation::write, 64);
    v.user1->issue(VolumeOperation::read, 64);
    v.user1->issue(VolumeOperation::discard, 0);
    v.user1->issue(VolumeOperation::write_zeroes, 0);
    CHECK(v.user1->answered == 0);
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors[from_errno(ENOSPC)] == 1);
    CHECK(v.user1->errors[from_errno(EINVAL)] == 1);
    CHECK(v.user1->errors[from_errno(EOPNOTSUPP)] == 2);
    v.user1->errors.clear();
    v.good_end();
}

TEST_CASE("two paths, and a restart that only one of them has noticed") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        SceneOptions options = quick_options(seed);
        options.addresses = 2;
        Volumes v(options);
        v.start_server();
        v.server->delay = 300us;
        v.start_client();
        REQUIRE(v.opened());
        v.scene.world.run_for(10ms);
        v.user1->run(300, 7);
        v.user2->run(300, 7);
        v.scene.world.run_for(1ms);
        v.scene.world.network().cut("10.0.1.1", "10.0.1.2");
        v.crash_server(SimHost::CrashSeen::by_reset);
        v.start_server();
        v.scene.world.run_for(2s);
        v.scene.world.network().heal_all();
        CHECK(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
        v.good_end();
    }
}

TEST_CASE("a volume without its medium is waited for") {
    Volumes v(quick_options(43));
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    v.user1->run(50, 7);
    v.user2->run(50, 7);
    REQUIRE(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
    v.crash_server(SimHost::CrashSeen::by_reset);
    for (auto& [name, one] : v.exports) one.sectors = 0;
    v.user1->some();
    v.scene.server_host.restart();
    v.start_server();
    v.scene.world.run_for(20s);
    CHECK(v.user1->volume.state() != VolumeState::open);
    CHECK(v.user1->volume.reason() == "it has 0 bytes at the server: its medium is away");
    CHECK_FALSE(v.user1->idle());
    for (auto& [name, one] : v.exports) {
        CHECK(one.open_now == 0);
        one.sectors = 64;
    }
    REQUIRE(v.opened());
    CHECK(v.until([&] { return v.user1->idle() && v.user2->idle(); }));
    v.good_end();
}
