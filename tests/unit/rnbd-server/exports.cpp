// Exports that are opened again, also after their file was away.
#include <fstream>

#include "tests/unit/rnbd-server/export_fixtures.h"

using namespace rnbd;
using namespace rnbd::told;

TEST_CASE("exports: one that is opened again in a session has the access that is asked for") {
    World world({memory("vol", {writes("host-a")})});
    const Volume& volume = *world.target.find("vol");
    Writer reader(world, "vol", AccessMode::read_only);
    REQUIRE(volume.opens().size() == 1);
    Writer writer(world, "vol");
    writer.write();
    world.run_until([&] { return writer.under_way == 0; });
    REQUIRE(volume.opens().size() == 1);
    CHECK(volume.opens()[0]->access == AccessMode::read_write);
}

TEST_CASE("exports: what was open when its file vanished keeps nobody out when it is back") {
    const TemporaryFolder folder;
    const std::string path = folder.file("image");
    const std::string aside = path + ".aside";
    World world({in_file("vol", path, {writes("host-a"), writes("host-b")})});
    Volume& volume = *world.target.find("vol");
    const auto goes_and_comes = [&] {
        REQUIRE(::rename(path.c_str(), aside.c_str()) == 0);
        world.run_until([&] { return volume.state() == Volume::State::waiting; });
        REQUIRE(::rename(aside.c_str(), path.c_str()) == 0);
        world.run_until([&] { return volume.state() == Volume::State::ready; });
    };
    SECTION("another session") {
        const auto open_as = [&](const std::string& session) {
            return volume.open(
                {.session = session, .host = "127.0.0.1", .access = AccessMode::read_write});
        };
        world.run_until([&] { return volume.state() == Volume::State::ready; });
        const auto before = open_as("host-a");
        REQUIRE(before);
        goes_and_comes();
        const auto open = open_as("host-b");
        REQUIRE(open);
        volume.close(*open);
        volume.close(*before);
    }
    // A kernel's client has its device for as long as its session lives, and asks for nothing.
    SECTION("a session that never asks again has what is the same, and nothing else") {
        world.run_until([&] { return volume.state() == Volume::State::ready; });
        const auto open = volume.open({.session = "host-a",
                                       .host = "127.0.0.1",
                                       .access = AccessMode::read_write,
                                       .reopens = Volume::Reopens::no});
        REQUIRE(open);
        goes_and_comes();
        CHECK(volume.storage(**open) != nullptr);
        CHECK_FALSE(volume.flush_covers_loss(**open, volume.losses()));
        const auto other = volume.open(
            {.session = "host-b", .host = "127.0.0.1", .access = AccessMode::read_write});
        REQUIRE_FALSE(other);
        CHECK(other.error() == std::errc::operation_not_permitted);
        REQUIRE(::rename(path.c_str(), aside.c_str()) == 0);
        world.run_until([&] { return volume.state() == Volume::State::waiting; });
        std::ofstream(path) << std::string(1 << 20, 'x');
        world.run_until([&] { return volume.state() == Volume::State::ready; });
        CHECK(volume.storage(**open) == nullptr);
        REQUIRE(::rename(aside.c_str(), path.c_str()) == 0);
        world.run_until([&] { return volume.storage(**open) != nullptr; });
        volume.close(*open);
    }
    SECTION("the same session, which asks by itself") {
        Writer before(world, "vol");
        goes_and_comes();
        world.run_until([&] {
            return volume.opens().size() == 1 && volume.storage(*volume.opens().front()) != nullptr;
        });
        before.write();
        world.run_until([&] { return before.under_way == 0; });
        CHECK(volume.opens().size() == 1);
    }
}
