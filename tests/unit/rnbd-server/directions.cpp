// Operations whose data goes the other way than the RTRS request that brings them.
#include "tests/unit/rnbd-server/by_hand.h"

using namespace rnbd;
using namespace rnbd::told;

TEST_CASE("directions: a read needs an RTRS read, a write an RTRS write, others take either") {
    World world({memory("vol", {{.session = "host-a", .access = AccessMode::read_write}})});
    ByHand hand{.world = world, .answer = {}};
    const std::uint32_t vol = hand.open("vol");
    using rtrs::Direction;
    CHECK(hand.ask(vol, Operation::read, Direction::read) == 0);
    CHECK(hand.ask(vol, Operation::read, Direction::write) == EINVAL);
    CHECK(hand.ask(vol, Operation::write, Direction::write) == 0);
    CHECK(hand.ask(vol, Operation::write, Direction::read) == EINVAL);
    for (const Direction direction : {Direction::read, Direction::write}) {
        CHECK(hand.ask(vol, Operation::flush, direction) == 0);
    }
    CHECK(world.target.find("vol")->counters().of(Operation::write).requests == 1);
}
