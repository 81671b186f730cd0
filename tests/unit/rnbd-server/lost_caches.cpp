// What a session sees of an export whose storage has lost its cache and goes on.
#include "tests/unit/rnbd-server/by_hand.h"
#include "tests/unit/rnbd-server/export_fixtures.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace rnbd::testing;

TEST_CASE("lost caches: what was sent before the volume was opened again is not for the new one") {
    with_nbd_export(nbdkit_file, [&](ServedFile& served, World& world) {
        Volume& volume = ready(world, "vol");
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
    });
}
