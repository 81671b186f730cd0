// What a session sees of an export whose storage has lost its cache and goes on.
#include "tests/contract/storage/nbd_server.h"
#include "tests/skip.h"
#include "tests/unit/rnbd-server/by_hand.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace rnbd::testing;

TEST_CASE("lost caches: what was sent before the volume was opened again is not for the new one") {
    try {
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "file", "IMAGE"});
        ServerConfig::Export config;
        config.name = "vol";
        config.storage.kind = StorageOptions::Kind::nbd;
        config.storage.uri = served.server->uri();
        config.allow = {{.session = "host-a", .access = AccessMode::read_write}};
        World world({config});
        Volume& volume = *world.target.find("vol");
        world.run_until([&] { return volume.state() == Volume::State::ready; });
        ByHand hand{.world = world, .answer = {}};
        const std::uint32_t before = hand.open("vol");
        CHECK(hand.open("vol") == before);
        REQUIRE(hand.ask(before, Operation::write) == 0);
        served.server->kill();
        served.server->start();
        world.run_until([&] { return volume.losses() == 1; });
        CHECK(hand.ask(before, Operation::flush) == ENOTCONN);
        const std::uint32_t after = hand.open("vol");
        // As a flush that comes late, over another connection than the open.
        CHECK(hand.ask(before, Operation::flush) == ENOTCONN);
        CHECK(hand.ask(after, Operation::flush) == 0);
        CHECK(hand.open("vol") == after);
    } catch (const Unavailable& unavailable) {
        skip(unavailable.reason);
    }
}
