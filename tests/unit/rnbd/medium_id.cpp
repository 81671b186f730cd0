// Which medium a volume stands for.
#include "rnbd/medium_id.h"

#include <array>
#include <catch2/catch.hpp>

using namespace rnbd;

namespace {

const Uuid one = *parse_uuid("6ba7b810-9dad-11d1-80b4-00c04fd430c8");
const Uuid other = *parse_uuid("6ba7b811-9dad-11d1-80b4-00c04fd430c8");

}  // namespace

TEST_CASE("uuid: as text and back") {
    CHECK(one.bytes[0] == std::byte{0x6b});
    CHECK(one.bytes[15] == std::byte{0xc8});
    CHECK(to_text(one) == "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    CHECK(parse_uuid("6BA7B810-9DAD-11D1-80B4-00C04FD430C8") == one);
    CHECK(to_text(Uuid{}).empty());
    for (const char* wrong :
         {"", "6ba7b810", "6ba7b810-9dad-11d1-80b4-00c04fd430c",
          "00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8 ",
          "6ba7b810-9dad-11d1-80b4-00c04fd430cg", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}"}) {
        CHECK(!parse_uuid(wrong));
    }
}

TEST_CASE("medium: what is found is told from what is known") {
    const MediumId unknown;
    const MediumId named{.uuid = one, .life = 1, .number = 2};
    const MediumId numbered{.life = 1, .number = 2};
    CHECK(!unknown.rules_out(unknown));
    CHECK(!unknown.rules_out(named));
    CHECK(!named.rules_out(unknown));  // a server that says nothing
    CHECK(named.rules_out({.uuid = other, .life = 1, .number = 2}));
    // The name decides, where there are two: a file that has moved, or was found elsewhere.
    CHECK(!named.rules_out({.uuid = one, .life = 1, .number = 3}));
    CHECK(!named.rules_out({.uuid = one, .life = 4, .number = 3}));
    // What has a name is not found without one, but for one whose name is not given any more.
    CHECK(named.rules_out({.life = 4, .number = 2}));
    CHECK(named.rules_out({.life = 1, .number = 3}));
    CHECK(!named.rules_out(numbered));
    // Numbers of one life.
    CHECK(!numbered.rules_out(numbered));
    CHECK(numbered.rules_out({.life = 1, .number = 3}));
    CHECK(numbered.rules_out({.uuid = one, .life = 1, .number = 3}));
    CHECK(!numbered.rules_out(named));
    CHECK(!numbered.rules_out({.life = 4, .number = 3}));
    CHECK(!numbered.rules_out({.uuid = one, .life = 4, .number = 3}));
}

TEST_CASE("medium: bytes") {
    const MediumId id{.uuid = one, .life = 0x0807060504030201, .number = 0x1817161514131211};
    std::array<std::byte, MediumId::wire_bytes> bytes{};
    id.store(bytes.data());
    CHECK(bytes[0] == std::byte{0x6b});
    CHECK(bytes[15] == std::byte{0xc8});
    CHECK(bytes[16] == std::byte{0x01});
    CHECK(bytes[31] == std::byte{0x18});
    CHECK(MediumId::load(bytes.data()) == id);
    CHECK(id.known());
    CHECK(!MediumId{}.known());
}
