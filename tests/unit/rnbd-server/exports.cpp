// Exports that come, go and change while a session uses them, and at the server's end.
#include <chrono>

#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace std::chrono_literals;

namespace {

ServerConfig::Export nbd(std::string name, std::string uri, StorageOptions::Use use) {
    ServerConfig::Export made;
    made.name = std::move(name);
    made.storage.kind = StorageOptions::Kind::nbd;
    made.storage.uri = std::move(uri);
    made.storage.use = use;
    return made;
}

}  // namespace

TEST_CASE("exports: one NBD server's export is not another one's, too") {
    World world({nbd("one", "nbd+unix:///?socket=/nowhere", StorageOptions::Use::read_write),
                 nbd("ro", "nbd+unix:///ro?socket=/nowhere", StorageOptions::Use::read_only)});
    const auto twice = world.target.add_export(
        nbd("two", "nbd+unix:///?socket=/nowhere", StorageOptions::Use::read_write));
    REQUIRE(!twice);
    CHECK(twice.error().code == ControlError::exists);
    CHECK(twice.error().message.find("one") != std::string::npos);
    CHECK(world.target.add_export(
        nbd("other", "nbd+unix:///b?socket=/nowhere", StorageOptions::Use::read_write)));
    CHECK(world.target.add_export(
        nbd("both", "nbd+unix:///ro?socket=/nowhere", StorageOptions::Use::read_only)));
}

TEST_CASE("exports: none goes while it has its last flush") {
    auto slow = memory("vol", {});
    slow.storage.delay.emplace().flush = 100ms;
    World world({slow});
    bool flushed = false;
    world.target.flush_all([&] { flushed = true; });
    const auto how = GENERATE(Target::Removal::if_unused, Target::Removal::by_force);
    const auto removed = world.target.remove_export("vol", how, [] { FAIL("it is removed"); });
    REQUIRE(!removed);
    CHECK(removed.error().code == ControlError::stopping);
    world.run_until([&] { return flushed; });
}
