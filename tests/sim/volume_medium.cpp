// A volume whose export stands for another file or device when its session comes back.
#include <catch2/catch.hpp>

#include "tests/sim/volume_world.h"

using namespace simtest;
using namespace rnbd;

namespace {

const MediumId former{.uuid = *parse_uuid("6ba7b810-9dad-11d1-80b4-00c04fd430c8")};
const MediumId another{.uuid = *parse_uuid("6ba7b811-9dad-11d1-80b4-00c04fd430c8")};

const std::error_code wrong_medium = rtrs::from_errno(EMEDIUMTYPE);

}  // namespace

TEST_CASE("what is held waits for the medium whose content is known, and goes nowhere else") {
    Volumes v;
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    CHECK(!v.exports["vol1"].expected.known());
    CHECK(v.user1->volume.medium() == former);
    v.lose_server();
    v.user1->running = 0;
    v.user1->issue(VolumeOperation::write, 3);
    const auto content = v.exports["vol1"].words;
    v.exports["vol1"].medium = another;
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.scene.world.run_for(30s);
    CHECK(v.user1->volume.state() == VolumeState::reopening);
    CHECK_THAT(v.user1->volume.reason(), Catch::Contains(to_text(former.uuid)));
    CHECK(v.exports["vol1"].expected == former);
    CHECK(v.exports["vol1"].open_now == 0);
    CHECK(v.exports["vol1"].words == content);
    CHECK(!v.user1->idle());

    // It is brought back.
    v.exports["vol1"].medium = former;
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->volume.state() == VolumeState::open);
    CHECK(v.user1->errors.empty());
    v.good_end();
}

TEST_CASE("what is mapped anew, and what was never used, takes the medium that is there") {
    Volumes v;
    v.exports["vol1"].medium = v.exports["vol2"].medium = former;
    v.begin(Feature::medium | Feature::writer);
    v.lose_server();
    v.user1->running = 0;
    v.exports["vol1"].medium = v.exports["vol2"].medium = another;
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    REQUIRE(v.until([&] { return v.user2->volume.state() == VolumeState::open; }));
    CHECK(v.user2->volume.medium() == another);
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.map_again();
    REQUIRE(v.opened());
    CHECK(v.user1->volume.medium() == another);
    v.good_end();
}

TEST_CASE("a medium is known over servers that cannot say theirs, and over a life of the user") {
    Volumes v;
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    v.user1->run(5, 1);
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    for (const Feature features : {Feature::none, Feature::medium}) {
        v.crash_server(SimHost::CrashSeen::by_reset);
        REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
        v.exports["vol1"].medium = {};
        v.features = features;
        v.start_server();
        REQUIRE(v.opened());
        CHECK(v.user1->volume.medium() == former);
    }
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.exports["vol1"].medium = another;
    v.user1.reset();
    v.user1 = std::make_unique<User>(v.scene, *v.session, "vol1", 1, 77, former);
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.exports["vol1"].medium = former;
    REQUIRE(v.opened());
    v.good_end();
}

TEST_CASE("an export that has come anew is asked for, and its size is not believed before") {
    SceneOptions options = quick_options(31);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    REQUIRE(v.until([&] { return v.server->followed; }));
    v.server->sessions_survive = true;  // what is open may be opened again
    v.user1->run(5, 1);
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    const std::uint64_t size = v.user1->volume.geometry().size_bytes;
    // Nothing is asked of the volume meanwhile.
    v.exports["vol1"].medium = another;
    v.exports["vol1"].sectors = 32;
    v.server->forget("vol1");
    v.server->says("vol1", CatalogEventKind::added);
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    CHECK(v.user1->volume.state() == VolumeState::reopening);
    CHECK(v.user1->volume.geometry().size_bytes == size);
    // The former one, larger.
    v.exports["vol1"].medium = former;
    v.exports["vol1"].sectors = 128;
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::open; }));
    CHECK(v.user1->volume.geometry().size_bytes == 2 * size);
    // Of one that stayed open its size is heard, too.
    const int changes = v.user1->changes;
    v.exports["vol1"].sectors = 64;
    v.server->says("vol1", CatalogEventKind::added);
    REQUIRE(v.until([&] { return v.user1->volume.geometry().size_bytes == size; }));
    CHECK(v.user1->changes == changes + 1);
    v.good_end();
}

TEST_CASE(
    "who keeps which medium a volume stands for hears of another one, also while it is open") {
    SceneOptions options = quick_options(31);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    REQUIRE(v.until([&] { return v.server->followed; }));
    v.server->sessions_survive = true;  // what is open may be opened again
    v.scene.world.run_for(5s);          // it asks for what the first picture has
    const int changes = v.user1->changes;
    v.exports["vol1"].medium = another;
    v.server->says("vol1", CatalogEventKind::added);
    REQUIRE(v.until([&] { return v.user1->volume.medium() == another; }));
    CHECK(v.user1->volume.state() == VolumeState::open);
    CHECK(v.user1->changes == changes + 1);
    v.server->says("vol1", CatalogEventKind::added);
    v.scene.world.run_for(5s);
    CHECK(v.user1->changes == changes + 1);
    v.good_end();
}

TEST_CASE("who reads beside another writer knows the medium") {
    Volumes v;
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium | Feature::writer);
    v.user1->volume.close();
    REQUIRE(v.until([&] { return v.user1->closed; }));
    v.user1.reset();
    v.user1 = std::make_unique<User>(v.scene, *v.session, "vol1", 1, 0, MediumId{},
                                     AccessMode::migration);
    REQUIRE(v.opened());
    v.user1->issue(VolumeOperation::read, 3);
    REQUIRE(v.until([&] { return v.user1->idle(); }));
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    v.exports["vol1"].medium = another;
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.exports["vol1"].medium = former;
    REQUIRE(v.opened());
    v.good_end();
}

TEST_CASE("what was used while it was being opened is not opened on another medium") {
    Volumes v;
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    // Never used so far: nothing is expected.
    v.crash_server(SimHost::CrashSeen::by_reset);
    REQUIRE(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
    v.exports["vol1"].medium = another;
    v.start_server();
    v.server->open_answer_delay = 1s;
    v.exports["vol1"].expected = former;
    REQUIRE(v.until([&] { return v.exports["vol1"].open_now == 1; }));
    CHECK(!v.exports["vol1"].expected.known());
    const auto content = v.exports["vol1"].words;
    v.user1->issue(VolumeOperation::write, 3);
    v.server->sessions_survive = true;  // it asks again of a session that has it open
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.scene.world.run_for(10s);
    CHECK(v.user1->volume.state() == VolumeState::reopening);
    CHECK(v.exports["vol1"].words == content);
    CHECK(!v.user1->idle());
    v.exports["vol1"].medium = former;
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors.empty());
    v.good_end();
}

TEST_CASE("a server that does not look at what is expected is not believed") {
    Volumes v;
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    v.lose_server();
    v.user1->running = 0;
    const auto content = v.exports["vol1"].words;
    v.exports["vol1"].medium = another;
    v.exports["vol1"].checks_medium = false;
    v.start_server();
    v.server->sessions_survive = true;
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.scene.world.run_for(5s);
    CHECK(v.exports["vol1"].words == content);
    v.exports["vol1"].medium = former;
    CHECK(v.until([&] { return v.user1->idle(); }));
    v.good_end();
}

TEST_CASE("what is told while an answer is on its way is not lost") {
    SceneOptions options = quick_options(41);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    v.server->open_answer_delay = 1s;
    v.server->sessions_survive = true;  // it asks again of a session that has it open
    REQUIRE(v.until([&] { return v.server->followed; }));
    v.scene.world.run_for(5s);  // it asks for what the first picture has
    const auto opens = v.exports["vol1"].opens;
    v.server->forget("vol1");
    v.user1->issue(VolumeOperation::write, 3);
    REQUIRE(v.until([&] { return v.exports["vol1"].opens > opens; }));
    REQUIRE(v.user1->volume.state() == VolumeState::reopening);
    // The answer has the size of before.
    v.server->resize("vol1", 128);
    v.server->open_answer_delay = 0s;
    CHECK(v.until([&] { return v.user1->volume.geometry().size_bytes == 128 * block; }));
    CHECK(v.until([&] { return v.user1->idle(); }));
    v.good_end();
}

TEST_CASE("a device whose storage is gone at the server says so, and goes on when it is back") {
    SceneOptions options = quick_options(43);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    v.server->sessions_survive = true;
    REQUIRE(v.until([&] { return v.server->followed && v.user1->idle(); }));
    v.scene.world.run_for(5s);
    v.exports["vol1"].gone = true;
    const auto fails = [&] {
        v.user1->issue(VolumeOperation::write, 3);
        CHECK(v.until([&] { return v.user1->idle(); }));
        CHECK(v.user1->errors[rtrs::from_errno(ENODEV)] == 1);
        v.user1->errors.clear();
    };
    SECTION("as it is told") {
        v.server->says("vol1", CatalogEventKind::waiting);
        CHECK(v.until([&] { return !v.user1->volume.reason().empty(); }));
        for (int i = 0; i < 3; ++i) {
            fails();
            CHECK(v.user1->volume.state() == VolumeState::open);
            v.scene.world.run_for(2s);
        }
        v.exports["vol1"].gone = false;
        v.server->forget("vol1");
        v.server->says("vol1", CatalogEventKind::ready);
        CHECK(v.until([&] { return v.user1->volume.reason().empty(); }));
        v.user1->issue(VolumeOperation::write, 4);
    }
    SECTION("as a request hears") {
        fails();
        // It may be of before: it is asked for, and then it waits.
        CHECK(v.until([&] { return v.user1->volume.state() == VolumeState::reopening; }));
        CHECK(v.user1->volume.open_error() == rtrs::from_errno(ENOENT));
        v.user1->issue(VolumeOperation::write, 4);
        v.scene.world.run_for(5s);
        CHECK(!v.user1->idle());
        v.exports["vol1"].gone = false;
    }
    CHECK(v.until([&] { return v.user1->idle(); }));
    CHECK(v.user1->errors.empty());
    v.good_end();
}

TEST_CASE("what was given back is no longer open there") {
    Volumes v;
    v.exports["vol1"].medium = former;
    v.begin(Feature::medium);
    v.lose_server();
    v.user1->running = 0;
    v.exports["vol1"].medium = another;
    v.exports["vol1"].checks_medium = false;
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    CHECK(v.until([&] { return v.exports["vol1"].open_now == 0; }));
    // It is not asked for more than once in a while.
    const auto opens = v.exports["vol1"].opens;
    v.scene.world.run_for(10s);
    CHECK(v.exports["vol1"].opens > opens);
    CHECK(v.exports["vol1"].opens < opens + 30);
    v.exports["vol1"].medium = former;
    CHECK(v.until([&] { return v.user1->idle(); }));
    v.good_end();
}

TEST_CASE("who was told of small blocks is served with no larger ones") {
    const Feature features = GENERATE(Feature::none, Feature::medium);
    Volumes v;
    v.begin(features);
    v.user1->volume.limit_blocks(block);
    v.lose_server();
    v.user1->running = 0;
    v.user1->issue(VolumeOperation::write, 3);
    const auto content = v.exports["vol1"].words;
    v.exports["vol1"].logical_block_bytes = 8 * block;
    v.start_server();
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.scene.world.run_for(30s);
    CHECK(v.user1->volume.state() == VolumeState::reopening);
    CHECK_THAT(v.user1->volume.reason(), Catch::Contains("blocks of 4096 bytes at the server"));
    CHECK(v.user1->volume.geometry().logical_block_bytes == block);
    CHECK(v.exports["vol1"].open_now == 0);
    CHECK(v.exports["vol1"].words == content);
    CHECK(!v.user1->idle());

    SECTION("until the server has them again") {
        v.exports["vol1"].logical_block_bytes = block;
        CHECK(v.until([&] { return v.user1->idle(); }));
        CHECK(v.user1->errors.empty());
    }
    SECTION("or who was told of them has gone") {
        v.user1->volume.limit_blocks(0);
        CHECK(v.until([&] { return v.user1->volume.state() == VolumeState::open; }, 1s));
        CHECK(v.user1->volume.geometry().logical_block_bytes == 8 * block);
        REQUIRE(v.until([&] { return v.user1->idle(); }));
        // What was held was of the small ones.
        CHECK(v.user1->errors.contains(rtrs::from_errno(EINVAL)));
        v.user1->errors.clear();
        v.exports["vol1"].logical_block_bytes = block;
        v.crash_server(SimHost::CrashSeen::by_reset);
        v.start_server();
        REQUIRE(v.until([&] { return v.user1->volume.geometry().logical_block_bytes == block; }));
    }
    v.good_end();
}

// To ask opens it at the server for a moment, which others may meet.
TEST_CASE("while the catalog says that the blocks are still too large, it is seldom asked") {
    const Feature features = GENERATE(Feature::none, Feature::medium);
    CAPTURE(features);
    SceneOptions options = quick_options(47);
    options.client.messages = options.server.messages = MessageOptions{};
    Volumes v(options);
    v.begin(features);
    v.user1->volume.limit_blocks(block);
    v.lose_server();
    v.user1->running = 0;
    v.user1->issue(VolumeOperation::write, 3);
    v.exports["vol1"].logical_block_bytes = 8 * block;
    v.start_server();
    v.server->sessions_survive = true;  // what is open may be opened again
    REQUIRE(v.until([&] { return v.user1->volume.open_error() == wrong_medium; }));
    v.scene.world.run_for(5s);  // it asks for what the first picture has
    const auto opens = v.exports["vol1"].opens;
    v.scene.world.run_for(50s);
    CHECK(v.exports["vol1"].opens <= opens + 1);
    CHECK(v.exports["vol1"].open_now == 0);
    CHECK(!v.user1->idle());

    SECTION("what the catalog says then is heard at once") {
        v.exports["vol1"].logical_block_bytes = block;
        v.server->says("vol1", CatalogEventKind::resized);
        CHECK(v.until([&] { return v.user1->idle(); }, 1s));
    }
    SECTION("also while it is given back") {
        v.server->delay = 1s;
        const auto before = v.exports["vol1"].opens;
        v.server->says("vol1", CatalogEventKind::resized);
        REQUIRE(v.until([&] { return v.exports["vol1"].opens > before; }));
        REQUIRE(v.until([&] { return v.user1->volume.next_attempt().has_value(); }));
        CHECK(v.exports["vol1"].open_now == 1);
        v.exports["vol1"].logical_block_bytes = block;
        v.server->says("vol1", CatalogEventKind::resized);
        CHECK(v.until([&] { return v.user1->idle(); }, 10s));
    }
    SECTION("and if the catalog should be wrong, it is not for ever") {
        v.exports["vol1"].logical_block_bytes = block;
        CHECK(v.until([&] { return v.user1->idle(); }, 100s));
    }
    SECTION("or by the picture of a server that was started again") {
        v.crash_server(SimHost::CrashSeen::by_reset);
        v.exports["vol1"].logical_block_bytes = block;
        v.start_server();
        v.server->sessions_survive = true;
        CHECK(v.until([&] { return v.user1->idle(); }));
    }
    SECTION("and who was told of small ones and has gone is not in the way") {
        v.user1->volume.limit_blocks(0);
        CHECK(v.until([&] { return v.user1->volume.state() == VolumeState::open; }, 1s));
        REQUIRE(v.until([&] { return v.user1->idle(); }));
        v.user1->errors.clear();  // what was held was of the small ones
        v.exports["vol1"].logical_block_bytes = block;
        v.crash_server(SimHost::CrashSeen::by_reset);
        v.start_server();
        v.server->sessions_survive = true;
        REQUIRE(v.until([&] { return v.user1->volume.geometry().logical_block_bytes == block; }));
    }
    CHECK(v.user1->errors.empty());
    v.good_end();
}
