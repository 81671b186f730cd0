#include "rtrs/base/host.h"

#include <catch2/catch.hpp>

using namespace rtrs;

TEST_CASE("host: an address is split at its last colon, and joined again") {
    const auto four = split_host_port("10.0.0.1:1235");
    REQUIRE(four);
    CHECK(four->host == "10.0.0.1");
    CHECK(four->version() == IpVersion::four);
    CHECK(four->port == 1235);
    const auto six = split_host_port("[fe80::1%eth0]:65535");
    REQUIRE(six);
    CHECK(six->host == "fe80::1%eth0");
    CHECK(six->version() == IpVersion::six);
    CHECK(six->port == 65535);
    CHECK(split_host_port(":0")->host.empty());
    // The host's form is not looked at, nor is that of "10.0.0.1" in brackets.
    CHECK_FALSE(split_host_port("::1:5")->bracketed);
    CHECK(split_host_port("[]:5")->bracketed);
    for (const char* address : {"10.0.0.1:1235", "[fe80::1]:0"}) {
        const auto parts = split_host_port(address);
        CHECK(join_host_port(parts->host, parts->port) == address);
        CHECK(host_of(address) == parts->host);
    }
}

TEST_CASE("host: what has no port from 0 to 65535 is not split") {
    for (const char* text : {"", ":", "1235", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536",
                             "10.0.0.1:-1", "10.0.0.1:+1", "10.0.0.1: 1", "10.0.0.1:1x", "[::1]"}) {
        CAPTURE(text);
        CHECK_FALSE(split_host_port(text));
    }
}

TEST_CASE("host: the host of an address whatever that is") {
    CHECK(host_of("") == "");
    CHECK(host_of("name") == "name");
    CHECK(host_of("name:") == "name");
    CHECK(host_of("[::1]:port") == "::1");
    CHECK(host_of("[]:1") == "");
    CHECK(without_brackets("[::1]") == "::1");
    CHECK(without_brackets("[::1") == "[::1");
    CHECK(without_brackets("[") == "[");
}

TEST_CASE("host: numeric hosts have one form") {
    CHECK(canonical_host("10.0.0.1", IpVersion::four) == "10.0.0.1");
    CHECK(canonical_host("FE80:0:0:0:0:0:0:1", IpVersion::six) == "fe80::1");
    CHECK(canonical_host("::ffff:10.0.0.1", IpVersion::six) == "::ffff:10.0.0.1");
    CHECK_FALSE(canonical_host("10.0.0.1", IpVersion::six));
    CHECK_FALSE(canonical_host("::1", IpVersion::four));
    for (const std::string text : {"", "10.0.0", "256.0.0.1", "localhost", "[::1]", "::1%lo"}) {
        CAPTURE(text);
        CHECK_FALSE(canonical_host(text, IpVersion::four));
        CHECK_FALSE(canonical_host(text, IpVersion::six));
    }
    CHECK_FALSE(canonical_host(std::string_view("10.0.0.1\0", 9), IpVersion::four));
}
