#include "rnbd/statistics.h"

#include <catch2/catch.hpp>

#include "tests/unit/wire/hex.h"

using namespace rnbd;
using test::emitted;
using test::first;
using test::hex;
using test::with;

TEST_CASE("statistics request: the bytes, both ways") {
    const auto bytes = hex("23 00 00*6");
    CHECK(emitted(StatisticsRequest{}, 8) == bytes);
    CHECK(StatisticsRequest::parse(bytes));
    CHECK(StatisticsRequest::parse(first(bytes, 7)).error() == ParseError::too_short);
    CHECK(StatisticsRequest::parse(with(bytes, 0, hex("24"))).error() == ParseError::wrong_type);
}

TEST_CASE("statistics: the bytes, both ways") {
    const auto bytes =
        hex("24 00 00 00 00 02 00 00 03 00 00 00 00*4 04 00*7 05 00*7 06 00*7 07 00*7 08 00*7 "
            "09 00*7 0a 00*7 0b 00*7 00 01 00*6 00 02 00*6 00 03 00*6");
    const StatisticsResponse statistics{.queue_depth = 512,
                                        .in_flight = 3,
                                        .reads = 4,
                                        .read_bytes = 5,
                                        .writes = 6,
                                        .write_bytes = 7,
                                        .others = 8,
                                        .refused = 9,
                                        .storage_errors = 10,
                                        .stale = 11,
                                        .p50 = rtrs::Duration(256),
                                        .p99 = rtrs::Duration(512),
                                        .longest = rtrs::Duration(768)};
    CHECK(bytes.size() == StatisticsResponse::wire_bytes);
    CHECK(emitted(statistics, bytes.size()) == bytes);
    CHECK(StatisticsResponse::parse(bytes) == statistics);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        CHECK(StatisticsResponse::parse(first(bytes, length)).error() == ParseError::too_short);
    }
    CHECK(StatisticsResponse::parse(with(bytes, 0, hex("23"))).error() == ParseError::wrong_type);
    // More than time can be.
    CHECK(StatisticsResponse::parse(with(bytes, 96, hex("ff*8")))->longest ==
          rtrs::Duration::max());
}
