#include "rtrs/base/uuid.h"

#include <catch2/catch.hpp>
#include <set>

using namespace rtrs;

TEST_CASE("uuid: random ones are version 4, variant 1, and differ") {
    Random random(3);
    std::set<Uuid> seen;
    for (int i = 0; i < 1000; ++i) {
        const Uuid uuid = Uuid::random(random);
        REQUIRE((uuid.bytes[6] & std::byte{0xf0}) == std::byte{0x40});
        REQUIRE((uuid.bytes[8] & std::byte{0xc0}) == std::byte{0x80});
        seen.insert(uuid);
    }
    REQUIRE(seen.size() == 1000);
}

TEST_CASE("uuid: its text") {
    Uuid uuid;
    REQUIRE(uuid.text() == "00000000-0000-0000-0000-000000000000");
    for (std::size_t i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<std::byte>(0xf0 - i * 0x0f);
    REQUIRE(uuid.text() == "f0e1d2c3-b4a5-9687-7869-5a4b3c2d1e0f");
    REQUIRE(uuid == uuid);
    REQUIRE(Uuid{} < uuid);
}
