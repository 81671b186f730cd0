#include "daemon/config/address_range.h"

#include <catch2/catch.hpp>

using rnbd::AddressRange;

TEST_CASE("address range: a network contains its addresses and no others") {
    const auto range = AddressRange::parse("10.1.0.0/16");
    REQUIRE(range);
    CHECK(range->contains("10.1.2.3"));
    CHECK(range->contains("::ffff:10.1.2.3"));
    CHECK(range->contains("[::ffff:10.1.2.3]"));
    CHECK_FALSE(range->contains("10.2.0.0"));
    CHECK_FALSE(range->contains("::1"));
    CHECK_FALSE(range->contains("10.1.2.3:80"));
    CHECK_FALSE(range->contains(""));
    CHECK(range->to_string() == "10.1.0.0/16");
}

TEST_CASE("address range: IPv6, single addresses, everything") {
    CHECK(AddressRange::parse("fd00::/8")->contains("[fd12::1]"));
    CHECK(AddressRange::parse("fe80::/10")->contains("fe80::1%eth0"));
    CHECK_FALSE(AddressRange::parse("fd00::/8")->contains("fe00::1"));
    CHECK(AddressRange::parse("::1")->contains("::1"));
    CHECK(AddressRange::parse("127.0.0.1")->to_string() == "127.0.0.1");
    CHECK(AddressRange::parse("0.0.0.0/0")->contains("1.2.3.4"));
    CHECK_FALSE(AddressRange::parse("0.0.0.0/0")->contains("::1"));
    CHECK_FALSE(AddressRange::parse("::/0")->contains("1.2.3.4"));
    CHECK(AddressRange::parse("::/0")->to_string() == "::/0");
    CHECK_FALSE(AddressRange{}.contains("127.0.0.1"));
}

TEST_CASE("address range: what is not one is refused") {
    const auto* text =
        GENERATE("", "/", "10.0.0.1/8", "10.0.0.0/33", "::1/129", "10.0.0.0/", "10.0.0.0/-1",
                 "10.0.0.0/8x", "10.0.0/8", "host", "[::1]", "fd00::1/8", "1.2.3.4 ");
    CHECK_FALSE(AddressRange::parse(text));
}
