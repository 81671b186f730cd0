#include "daemon/attributes/values.h"

#include <catch2/catch.hpp>
#include <cerrno>

using namespace rnbd;

TEST_CASE("attribute values: one newline at the end does not count") {
    CHECK(attribute_text_is("1", "1"));
    CHECK(attribute_text_is("1\n", "1"));
    CHECK_FALSE(attribute_text_is("1\n\n", "1"));
    CHECK_FALSE(attribute_text_is(" 1", "1"));
    CHECK_FALSE(attribute_text_is("", "1"));
    CHECK(stripped(" \tforce \n") == "force");
    CHECK(stripped(" \n").empty());
}

TEST_CASE("attribute values: decimal numbers as the kernel reads them") {
    CHECK(parse_attribute_int("-1\n") == -1);
    CHECK(parse_attribute_int("+9999") == 9999);
    CHECK(parse_attribute_int("2147483647") == 2147483647);
    for (const char* text : {"", "\n", "-", "+", "+-1", "0x10", "1 ", " 1", "1\n\n", "one"}) {
        CAPTURE(text);
        CHECK(parse_attribute_int(text).error() == EINVAL);
    }
    CHECK(parse_attribute_int("2147483648").error() == ERANGE);
}

TEST_CASE("attribute values: numbers of any base") {
    CHECK(parse_attribute_unsigned("0") == 0);
    CHECK(parse_attribute_unsigned("2048\n") == 2048);
    CHECK(parse_attribute_unsigned("0x800") == 2048);
    CHECK(parse_attribute_unsigned("0X800") == 2048);
    CHECK(parse_attribute_unsigned("04000") == 2048);
    CHECK(parse_attribute_unsigned("18446744073709551615") == UINT64_MAX);
    for (const char* text : {"", "-1", "0x", "08", "12k", "1 1"}) {
        CAPTURE(text);
        CHECK(parse_attribute_unsigned(text).error() == EINVAL);
    }
    CHECK(parse_attribute_unsigned("18446744073709551616").error() == ERANGE);
}

TEST_CASE("attribute values: addresses of a path") {
    auto path = parse_attribute_path("ip:10.0.0.2\n");
    REQUIRE(path);
    CHECK(path->source.empty());
    CHECK(path->destination == "10.0.0.2");
    path = parse_attribute_path("ip:10.0.0.1@ip:10.0.0.2");
    REQUIRE(path);
    CHECK(path->source == "10.0.0.1");
    CHECK(path->destination == "10.0.0.2");
    path = parse_attribute_path("ip:fe80:0::1%eth0,ip:FE80::2%eth0");
    REQUIRE(path);
    CHECK(path->source == "fe80::1%eth0");
    CHECK(path->destination == "fe80::2%eth0");
    for (const char* text : {"", "10.0.0.2", "ip:", "ip:10.0.0", "ip:10.0.0.2:1234", "ip:host",
                             "@ip:10.0.0.2", "ip:10.0.0.1@", "gid:none", "IP:10.0.0.2"}) {
        CAPTURE(text);
        CHECK(parse_attribute_path(text).error() == EINVAL);
    }
    CHECK(parse_attribute_path("gid:fe80::1").error() == ENODEV);
}

TEST_CASE("attribute values: usage") {
    CHECK(usage_of_one("reconnect") == "Usage: echo 1 > reconnect\n");
    CHECK(attribute_address("::1") == "ip:::1");
}
