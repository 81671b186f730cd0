#include "rtrs/wire/tag.h"

#include <catch2/catch.hpp>
#include <string>
#if __has_include(<infiniband/tm_types.h>)
#include <infiniband/tm_types.h>
#endif

#include "tests/unit/wire/hex.h"

using namespace rtrs;
using test::emitted;
using test::first;
using test::hex;
using test::with;

namespace {

const TagHeader eager{
    .operation = TagHeaderOperation::eager, .user_data = 7, .tag = 0x0102030405060708};
// Behind the header.
const std::string hello_text =
    "00 00 00 10 00 00 10 00 01 00 00 00 00*4 00*6 be ef 00*7 09 "
    "00*7 05 00*7 03";

}  // namespace

TEST_CASE("tag header: the documented bytes, both ways") {
    const auto bytes = hex("03 00 00 00 00 00 00 07 01 02 03 04 05 06 07 08");
    CHECK(emitted(eager, 16) == bytes);
    CHECK(TagHeader::parse(bytes) == eager);
    const auto finished = hex("02 00 00 00 ff ff ff fe 00*7 09");
    CHECK(emitted(TagHeader{TagHeaderOperation::finished, 0xfffffffe, 9}, 16) == finished);
    CHECK(TagHeader::parse(finished) == TagHeader{TagHeaderOperation::finished, 0xfffffffe, 9});
}

TEST_CASE("rendezvous header: the documented bytes, both ways") {
    const auto bytes = hex("00 00 7f 00 12 34 50 00 00 00 be ef 00 10 00 00");
    const RendezvousHeader header{0x7f0012345000, 0xbeef, 1 << 20};
    CHECK(emitted(header, 16) == bytes);
    CHECK(RendezvousHeader::parse(bytes) == header);
    CHECK(RendezvousHeader::parse(first(bytes, 15)).error() == ParseError::too_short);
}

#if __has_include(<infiniband/tm_types.h>)
TEST_CASE("tag headers: libibverbs sees the same fields") {
    const auto bytes = emitted(eager, 16);
    ibv_tmh tmh;
    static_assert(sizeof tmh == TagHeader::wire_bytes);
    std::memcpy(&tmh, bytes.data(), sizeof tmh);
    CHECK(tmh.opcode == IBV_TMH_EAGER);
    CHECK(__builtin_bswap32(tmh.app_ctx) == 7);
    CHECK(__builtin_bswap64(tmh.tag) == eager.tag);
    const auto more = emitted(RendezvousHeader{1, 2, 3}, 16);
    ibv_rvh rvh;
    static_assert(sizeof rvh == RendezvousHeader::wire_bytes);
    std::memcpy(&rvh, more.data(), sizeof rvh);
    CHECK(__builtin_bswap64(rvh.va) == 1);
    CHECK(__builtin_bswap32(rvh.rkey) == 2);
    CHECK(__builtin_bswap32(rvh.len) == 3);
    CHECK(IBV_TMH_NO_TAG == static_cast<int>(TagHeaderOperation::no_tag));
    CHECK(IBV_TMH_RNDV == static_cast<int>(TagHeaderOperation::rendezvous));
    CHECK(IBV_TMH_FIN == static_cast<int>(TagHeaderOperation::finished));
}
#endif

TEST_CASE("tag header: what is not in order is refused") {
    const auto bytes = emitted(eager, 16);
    CHECK(TagHeader::parse(first(bytes, 15)).error() == ParseError::too_short);
    CHECK(TagHeader::parse(with(bytes, 0, hex("04"))).error() == ParseError::bad_type);
    for (std::size_t at = 1; at <= 3; ++at) {
        CHECK(TagHeader::parse(with(bytes, at, hex("01"))).error() ==
              ParseError::reserved_not_zero);
    }
}

TEST_CASE("tag notices: the bytes, both ways") {
    const TagHello hello{.window = 16,
                         .eager_bytes = 4096,
                         .longest_bytes = 16 << 20,
                         .life = 0xbeef,
                         .known = 9,
                         .progress = {.received = 5, .freed = 3}};
    CHECK(emitted(hello, 48) == hex(hello_text));
    CHECK(TagHello::parse(hex(hello_text)) == hello);
    const auto progress = hex("00*7 05 00*7 03");
    CHECK(emitted(hello.progress, 16) == progress);
    CHECK(TagProgress::parse(progress) == hello.progress);
}

TEST_CASE("tag notices: what is not in order is refused") {
    CHECK(TagProgress::parse(hex("00*15")).error() == ParseError::too_short);
    CHECK(TagProgress::parse(hex("00*7 05 00*7 06")).error() == ParseError::freed_above_received);
    const auto hello = hex(hello_text);
    CHECK(TagHello::parse(first(hello, 47)).error() == ParseError::too_short);
    const auto limits = ParseError::tag_limits_out_of_range;
    CHECK(TagHello::parse(with(hello, 0, hex("00 00 00 00"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 0, hex("00 00 04 01"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 4, hex("00 00 00 3f"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 4, hex("00 10 00 01"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 8, hex("00 00 0f ff"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 8, hex("04 00 00 01"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 16, hex("00*8"))).error() == limits);
    CHECK(TagHello::parse(with(hello, 47, hex("06"))).error() == ParseError::freed_above_received);
}
