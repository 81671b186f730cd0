// Operations whose data goes the other way than the RTRS request that brings them, and ranges that
// are longer than OPEN allows.
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

TEST_CASE("ranges: no more is emptied at once than was announced") {
    ServerConfig::Export large =
        memory("vol", {{.session = "host-a", .access = AccessMode::read_write}});
    large.storage.kind = StorageOptions::Kind::null;
    large.storage.size_bytes = 8ull << 30;
    World world({large});
    ByHand hand{.world = world, .answer = {}};
    const std::uint32_t vol = hand.open("vol");
    constexpr std::uint32_t most = 1u << 30;
    for (const Operation operation : {Operation::discard, Operation::write_zeroes}) {
        CHECK(hand.ask(vol, operation, rtrs::Direction::write, most) == 0);
        CHECK(hand.ask(vol, operation, rtrs::Direction::write, most + 512) == EINVAL);
        CHECK(hand.ask(vol, operation, rtrs::Direction::write, 0u - 512) == EINVAL);
    }
}
