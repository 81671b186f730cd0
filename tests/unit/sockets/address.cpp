#include "rtrs/sockets/address.h"

#include <catch2/catch.hpp>

using namespace rtrs;

TEST_CASE("address: numeric hosts with a port, there and back") {
    for (const char* text : {"127.0.0.1:0", "10.0.0.1:1235", "[::1]:65535", "[fe80::1%lo]:1"}) {
        const auto address = parse_address(text);
        REQUIRE(address);
        CHECK(to_text(*address) == text);
    }
    CHECK(to_text(*parse_address("[::ffff:10.0.0.1]:5")) == "10.0.0.1:5");
}

TEST_CASE("address: what is not one is refused with EINVAL") {
    for (const char* text :
         {"", ":", "1235", "localhost:1235", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536",
          "10.0.0.1:-1", "10.0.0.1:1x", "10.0.0.1: 1", "256.0.0.1:1", "::1:1235", "[::1]", "[]:1",
          "[10.0.0.1]:1", "[::1%no-such-interface]:1", "[::1:1235"}) {
        const auto address = parse_address(text);
        REQUIRE(!address);
        CHECK(address.error() == std::errc::invalid_argument);
    }
}

TEST_CASE("address: hosts without a port") {
    CHECK(to_text(*parse_host("10.0.0.1")) == "10.0.0.1:0");
    CHECK(to_text(*parse_host("::1")) == "[::1]:0");
    CHECK(to_text(*parse_host("[::1]")) == "[::1]:0");
    CHECK(!parse_host("10.0.0.1:5"));
    CHECK(!parse_host("host"));
}
