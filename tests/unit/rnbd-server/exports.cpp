// Exports that come, go and change while a session uses them, and at the server's end.
#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;

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
