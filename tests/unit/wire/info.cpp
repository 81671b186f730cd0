#include "rtrs/wire/info.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tests/unit/wire/hex.h"

using namespace rtrs;
using test::emitted;
using test::hex;
using test::with;

namespace {

ParseError request_error(const test::ByteVector& bytes) {
    const auto parsed = InfoRequestMessage::parse(bytes);
    REQUIRE_FALSE(parsed);
    return parsed.error();
}

test::ByteVector response_bytes(const std::vector<BufferDescriptor>& descriptors) {
    test::ByteVector bytes(InfoResponseMessage::wire_bytes(descriptors.size()), std::byte{0xee});
    InfoResponseMessage::emit(descriptors, bytes);
    return bytes;
}

// Error of laying these regions out as chunks of 8192 bytes; nullopt if it worked.
std::optional<ParseError> layout_error(const std::vector<BufferDescriptor>& regions,
                                       std::size_t queue_depth) {
    const auto bytes = response_bytes(regions);
    const auto view = InfoResponseView::parse(bytes);
    REQUIRE(view);
    std::vector<BufferDescriptor> chunks(queue_depth);
    const auto done = view->chunks(chunks, 8192);
    if (!done) return done.error();
    return std::nullopt;
}

}  // namespace

TEST_CASE("info request: a kernel client's bytes, both ways") {
    const auto bytes = hex("00 00 6b 63 6c 74 00*266");  // "kclt"
    REQUIRE(bytes.size() == InfoRequestMessage::wire_bytes);
    CHECK(emitted(InfoRequestMessage{"kclt"}, 272) == bytes);
    CHECK(InfoRequestMessage::parse(bytes) == InfoRequestMessage{"kclt"});
}

TEST_CASE("info request: the longest name fits with its NUL") {
    const InfoRequestMessage longest{std::string(254, 'n')};
    const auto bytes = emitted(longest, 272);
    CHECK(bytes == hex("00 00 6e*254 00*16"));
    CHECK(InfoRequestMessage::parse(bytes) == longest);
}

TEST_CASE("info request: reserved bytes and what follows the NUL are ignored") {
    const InfoRequestMessage a{"a", 0x0807060504030201, 0x0f0e0d0c0b0a09};
    const auto rest = std::string("01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f");
    CHECK(InfoRequestMessage::parse(hex("00 00 61 00 62*253 " + rest)) == a);
    CHECK(InfoRequestMessage::parse(hex("00 00 61 00 62*253 " + rest + " ff")) == a);
}

TEST_CASE("info request: identity and life of the failover extension, both ways") {
    const InfoRequestMessage message{"a", 0x0807060504030201, 0x0f0e0d0c0b0a09};
    const auto bytes = emitted(message, 272);
    CHECK(bytes == hex("00 00 61 00*254 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f"));
    CHECK(InfoRequestMessage::parse(bytes) == message);
}

TEST_CASE("info request: refused") {
    const auto plain = emitted(InfoRequestMessage{"kclt"}, 272);
    CHECK(request_error({}) == ParseError::too_short);
    CHECK(request_error(test::first(plain, 271)) == ParseError::too_short);
    CHECK(request_error(with(plain, 0, hex("01 00"))) == ParseError::bad_type);
    CHECK(request_error(with(plain, 0, hex("00 01"))) == ParseError::bad_type);
    CHECK(request_error(with(plain, 2, hex("61*255"))) == ParseError::name_unterminated);
    // No NUL in the field, but one right behind it.
    CHECK(request_error(hex("00 00 61*255 00*15")) == ParseError::name_unterminated);
    CHECK(request_error(with(plain, 2, hex("00"))) == ParseError::name_empty);
    CHECK(request_error(with(plain, 3, hex("2f"))) == ParseError::name_forbidden_character);
    CHECK(request_error(with(plain, 3, hex("2e"))) == ParseError::name_forbidden_character);
}

TEST_CASE("session name: rules") {
    CHECK(check_session_name("host-1_a b\xc3\xa4"));
    CHECK(check_session_name("").error() == ParseError::name_empty);
    CHECK(check_session_name(std::string(254, 'x')));
    CHECK(check_session_name(std::string(255, 'x')).error() == ParseError::name_too_long);
    CHECK(check_session_name("host.example").error() == ParseError::name_forbidden_character);
    CHECK(check_session_name("a/b").error() == ParseError::name_forbidden_character);
    CHECK(check_session_name(std::string("a\0b", 3)).error() ==
          ParseError::name_forbidden_character);
}

TEST_CASE("info response: every field has its place and its byte order") {
    const std::vector<BufferDescriptor> descriptors{
        {.address = 0x0102030405060708, .key = 0x11121314, .bytes = 0x21222324},
        {.address = 0x3132333435363738, .key = 0x41424344, .bytes = 0x51525354}};
    const auto bytes =
        hex("01 00 02 00 00*4 08 07 06 05 04 03 02 01 14 13 12 11 24 23 22 21"
            " 38 37 36 35 34 33 32 31 44 43 42 41 54 53 52 51");
    CHECK(response_bytes(descriptors) == bytes);
    const auto view = InfoResponseView::parse(bytes);
    REQUIRE(view);
    REQUIRE(view->count() == 2);
    CHECK(view->descriptor(0) == descriptors[0]);
    CHECK(view->descriptor(1) == descriptors[1]);
}

TEST_CASE("info response: a kernel server's 512 chunks") {
    std::vector<BufferDescriptor> descriptors(512);
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
        descriptors[i] = {.address = 0x7000000000 + i * 0x40000,
                          .key = static_cast<std::uint32_t>(0x1000 + i),
                          .bytes = 131072};
    }
    const auto bytes = response_bytes(descriptors);
    REQUIRE(bytes.size() == 8200);
    CHECK(test::first(bytes, 8) == hex("01 00 00 02 00 00 00 00"));
    CHECK(test::ByteVector(bytes.begin() + 20, bytes.begin() + 24) == hex("00 00 02 00"));
    std::vector<BufferDescriptor> chunks(512);
    REQUIRE(InfoResponseView::parse(bytes)->chunks(chunks, 131072));
    CHECK(chunks == descriptors);
}

TEST_CASE("info response: regions are laid out in order with the chunk size as stride") {
    const auto bytes = response_bytes({{.address = 0x10000, .key = 7, .bytes = 3 * 8192},
                                       {.address = 0x90000, .key = 8, .bytes = 8192}});
    std::vector<BufferDescriptor> chunks(4);
    REQUIRE(InfoResponseView::parse(bytes)->chunks(chunks, 8192));
    CHECK(chunks ==
          std::vector<BufferDescriptor>{
              {0x10000, 7, 8192}, {0x12000, 7, 8192}, {0x14000, 7, 8192}, {0x90000, 8, 8192}});
}

TEST_CASE("info response: a single region of 64 MiB") {
    const auto bytes = response_bytes({{.address = 0x100000000, .key = 5, .bytes = 64 << 20}});
    std::vector<BufferDescriptor> chunks(512);
    REQUIRE(InfoResponseView::parse(bytes)->chunks(chunks, 131072));
    CHECK(chunks[511] == BufferDescriptor{0x100000000 + 511 * 131072ull, 5, 131072});
}

TEST_CASE("info response: trailing and reserved bytes are ignored") {
    auto bytes = response_bytes({{.address = 1, .key = 2, .bytes = 8192}});
    bytes = with(bytes, 4, hex("ff*4"));
    bytes.resize(bytes.size() + 15);
    const auto view = InfoResponseView::parse(bytes);
    REQUIRE(view);
    CHECK(view->count() == 1);
}

TEST_CASE("info response: refused") {
    const auto plain = response_bytes({{1, 2, 8192}, {3, 4, 8192}});
    CHECK(InfoResponseView::parse({}).error() == ParseError::too_short);
    CHECK(InfoResponseView::parse(test::first(plain, 7)).error() == ParseError::too_short);
    CHECK(InfoResponseView::parse(test::first(plain, 39)).error() == ParseError::too_short);
    CHECK(InfoResponseView::parse(with(plain, 0, hex("00"))).error() == ParseError::bad_type);
    CHECK(InfoResponseView::parse(with(plain, 0, hex("01 01"))).error() == ParseError::bad_type);
    CHECK(InfoResponseView::parse(with(plain, 2, hex("ff ff"))).error() == ParseError::too_short);
}

TEST_CASE("info response: regions that do not make the chunks") {
    CHECK(layout_error({{1, 2, 16384}}, 2) == std::nullopt);
    const auto empty = hex("01 00 00 00 00*4");
    std::vector<BufferDescriptor> chunks(2);
    CHECK(InfoResponseView::parse(empty)->chunks(chunks, 8192).error() ==
          ParseError::no_descriptors);
    CHECK(layout_error({{1, 2, 8192}, {1, 2, 8192}}, 3) ==
          ParseError::descriptors_do_not_divide_queue_depth);
    CHECK(layout_error({{1, 2, 8192}, {1, 2, 8192}, {1, 2, 8192}, {1, 2, 8192}}, 2) ==
          ParseError::descriptors_do_not_divide_queue_depth);
    CHECK(layout_error({{1, 2, 16384}, {1, 2, 0}}, 2) ==
          ParseError::descriptor_length_not_whole_chunks);
    CHECK(layout_error({{1, 2, 12288}, {1, 2, 4096}}, 2) ==
          ParseError::descriptor_length_not_whole_chunks);
    CHECK(layout_error({{1, 2, 8192}}, 2) == ParseError::descriptors_do_not_cover_chunks);
    CHECK(layout_error({{1, 2, 16384}, {1, 2, 8192}}, 2) ==
          ParseError::descriptors_do_not_cover_chunks);
    // 2^32 bytes too many, which a 32-bit sum would not see.
    CHECK(layout_error({{1, 2, 0x80000000u},
                        {1, 2, 0x80000000u},
                        {1, 2, 8192},
                        {1, 2, 8192},
                        {1, 2, 8192},
                        {1, 2, 8192}},
                       6) == ParseError::descriptors_do_not_cover_chunks);
}
