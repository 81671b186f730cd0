#include "rnbd/catalog.h"

#include <catch2/catch.hpp>

#include "tests/unit/wire/hex.h"

using namespace rnbd;
using test::emitted;
using test::first;
using test::hex;
using test::with;

namespace {

const CatalogEntry vol{.name = "vol1",
                       .size_bytes = 0x40000000,
                       .block_bytes = 512,
                       .in_use = 3,
                       .writable = true,
                       .waiting = false};
const std::string vol_text =
    "00 00 00 40 00*4 00 02 00 00 03 00 00 00 03 00 04 00 00*4 76 6f 6c 31 00*4";
const CatalogEntry other{
    .name = "an other", .size_bytes = 1, .block_bytes = 4096, .in_use = 0, .waiting = true};
const std::string other_text = "01 00*7 00 10 00 00 00*4 01 01 08 00 00*4 61 6e 20 6f 74 68 65 72";

}  // namespace

TEST_CASE("catalog request: the bytes, both ways") {
    const auto bytes = hex("20 00 01 00 00*4");
    CHECK(emitted(CatalogRequest{.follow = true}, 8) == bytes);
    CHECK(CatalogRequest::parse(bytes)->follow);
    CHECK_FALSE(CatalogRequest::parse(with(bytes, 2, hex("00")))->follow);
    CHECK(CatalogRequest::parse(first(bytes, 7)).error() == ParseError::too_short);
    CHECK(CatalogRequest::parse(with(bytes, 0, hex("21"))).error() == ParseError::wrong_type);
}

TEST_CASE("catalog picture: the bytes, both ways") {
    const auto bytes = hex("21 00 00 00 02 00 00 00 07 00*7 00*8 " + vol_text + " " + other_text);
    const CatalogPicture picture{.generation = 7, .entries = {vol, other}};
    CHECK(picture.wire_bytes() == bytes.size());
    CHECK(emitted(picture, bytes.size()) == bytes);
    const auto parsed = CatalogPicture::parse(bytes);
    REQUIRE(parsed);
    CHECK(parsed->generation == 7);
    CHECK_FALSE(parsed->draining);
    CHECK(parsed->entries == picture.entries);
    const auto draining = hex("21 00 01 00 00 00 00 00 07 00*7 00*8");
    CHECK(emitted(CatalogPicture{.generation = 7, .draining = true}, 24) == draining);
    CHECK(CatalogPicture::parse(draining)->draining);
}

TEST_CASE("catalog picture: what is not in order is refused") {
    const auto bytes = hex("21 00 00 00 01 00 00 00 07 00*7 00*8 " + vol_text);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        CHECK(CatalogPicture::parse(first(bytes, length)).error() == ParseError::too_short);
    }
    CHECK(CatalogPicture::parse(with(bytes, 4, hex("ff ff"))).error() == ParseError::too_short);
    CHECK(CatalogPicture::parse(with(bytes, 0, hex("22"))).error() == ParseError::wrong_type);
    CHECK(CatalogPicture::parse(with(bytes, 42, hex("00 00"))).error() == ParseError::name_empty);
    CHECK(CatalogPicture::parse(with(bytes, 42, hex("ff 00"))).error() ==
          ParseError::name_too_long);
    CHECK(CatalogPicture::parse(with(bytes, 49, hex("00"))).error() == ParseError::name_has_nul);
}

TEST_CASE("catalog picture: as many exports as a client takes in, and one more") {
    CatalogPicture picture;
    picture.entries.assign(catalog_entries_max, {.name = "vol"});
    const auto most = emitted(picture, picture.wire_bytes());
    const auto parsed = CatalogPicture::parse(most);
    REQUIRE(parsed);
    CHECK(parsed->entries.size() == catalog_entries_max);
    picture.entries.push_back({.name = "vol"});
    const auto more = emitted(picture, picture.wire_bytes());
    CHECK(CatalogPicture::parse(more).error() == ParseError::too_many_exports);
    CHECK(CatalogPicture::complaint(more, ParseError::too_many_exports) ==
          "found 65537 exports, expected at most 65536");
    CHECK(CatalogPicture::complaint(first(most, 20), ParseError::too_short) ==
          text(ParseError::too_short));
    // Whether they are there or not.
    CHECK(CatalogPicture::parse(first(with(most, 4, hex("ff ff ff ff")), 24)).error() ==
          ParseError::too_many_exports);
}

TEST_CASE("catalog event: the bytes, both ways") {
    const auto bytes = hex("22 00 03 00 00*4 08 00*7 " + vol_text);
    const CatalogEvent event{.kind = CatalogEventKind::resized, .generation = 8, .entry = vol};
    CHECK(event.wire_bytes() == bytes.size());
    CHECK(emitted(event, bytes.size()) == bytes);
    const auto parsed = CatalogEvent::parse(bytes);
    REQUIRE(parsed);
    CHECK(parsed->kind == CatalogEventKind::resized);
    CHECK(parsed->generation == 8);
    CHECK(parsed->entry == vol);
    const auto draining = hex("22 00 07 00 00*4 09 00*7");
    CHECK(emitted(CatalogEvent{.kind = CatalogEventKind::draining, .generation = 9}, 16) ==
          draining);
    CHECK(CatalogEvent::parse(draining)->kind == CatalogEventKind::draining);
    CHECK(CatalogEvent::parse(with(bytes, 2, hex("00"))).error() == ParseError::unknown_type);
    for (const auto kind : {CatalogEventKind::accepting, CatalogEventKind::ending}) {
        const CatalogEvent of_server{.kind = kind, .generation = 10};
        CHECK(CatalogEvent::parse(emitted(of_server, 16))->kind == kind);
    }
    const auto taken = CatalogEvent::parse(with(bytes, 2, hex("0a")));
    REQUIRE(taken);
    CHECK(taken->kind == CatalogEventKind::taken);
    CHECK(taken->entry == vol);
    CHECK(emitted(*taken, bytes.size()) == with(bytes, 2, hex("0a")));
    CHECK(CatalogEvent::parse(with(bytes, 2, hex("0b"))).error() == ParseError::unknown_type);
    CHECK(CatalogEvent::parse(first(bytes, 15)).error() == ParseError::too_short);
    CHECK(CatalogEvent::parse(first(bytes, 20)).error() == ParseError::too_short);
}
