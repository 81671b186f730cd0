#include "rnbd/messages.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>

#include "rtrs/base/random.h"
#include "tests/unit/wire/hex.h"

using namespace rnbd;
using test::emitted;
using test::hex;
using test::with;

namespace {

template <typename Message>
ParseError error_of(const test::ByteVector& bytes) {
    const auto parsed = Message::parse(bytes);
    REQUIRE_FALSE(parsed);
    return parsed.error();
}

// Too short by one byte, and of another type.
template <typename Message>
void check_length_and_type(const test::ByteVector& plain, std::size_t bytes_min) {
    CHECK(error_of<Message>({}) == ParseError::too_short);
    CHECK(error_of<Message>(test::first(plain, bytes_min - 1)) == ParseError::too_short);
    CHECK(Message::parse(test::first(plain, bytes_min)));
    CHECK(error_of<Message>(with(plain, 0, hex("2a"))) == ParseError::wrong_type);
    CHECK(error_of<Message>(with(plain, 1, hex("01"))) == ParseError::wrong_type);
    // Padding of the header can be anything, and there may be more.
    auto longer = with(plain, 2, hex("ff ff"));
    longer.resize(plain.size() + 5, std::byte{0x5a});
    CHECK(Message::parse(longer) == Message::parse(plain));
}

test::ByteVector open_bytes() { return hex("02 00 00 00 01 00 76 6f 6c 31 00*254"); }  // "vol1"

IoMessage distinct_io() {
    return {.device_id = 0x01020304,
            .sector = 0x1112131415161718,
            .operation = Operation::write_zeroes,
            .flags = static_cast<IoFlag>(0x21222300),
            .bytes = 0x31323334,
            .priority = 0x4142};
}

}  // namespace

TEST_CASE("request type: the server's dispatch") {
    CHECK(request_type(hex("00 00 ff ff")) == MessageType::session_info);
    CHECK(request_type(hex("02 00")) == MessageType::open);
    CHECK(request_type(hex("04 00")) == MessageType::io);
    CHECK(request_type(hex("05 00")) == MessageType::close);
    CHECK(request_type(hex("10 00")) == MessageType::extents);
    CHECK(request_type({}).error() == ParseError::too_short);
    CHECK(request_type(hex("04")).error() == ParseError::too_short);
    for (const char* other : {"01 00", "03 00", "06 00", "07 00", "11 00", "04 01", "ff ff"}) {
        CHECK(request_type(hex(other)).error() == ParseError::unknown_type);
    }
}

TEST_CASE("session info: a kernel's bytes, both ways") {
    const auto request = hex("00 00 00 00 02 00*31");
    CHECK(emitted(SessionInfoMessage{}, 36) == request);
    CHECK(SessionInfoMessage::parse(request) == SessionInfoMessage{});
    const auto response = hex("01 00 00 00 02 00*31");
    CHECK(emitted(SessionInfoResponse{}, 36) == response);
    CHECK(SessionInfoResponse::parse(response) == SessionInfoResponse{});
    check_length_and_type<SessionInfoMessage>(request, 36);
}

TEST_CASE("session info: our features, with their mark") {
    const auto features = static_cast<Feature>(0x01020304);
    const auto request = hex("00*4 02 00*3 04 03 02 01 72 6e 62 64 52 45 51 00 00*16");
    CHECK(emitted(SessionInfoMessage{.features = features}, 36) == request);
    CHECK(SessionInfoMessage::parse(request)->features == features);
    const auto response = hex("01 00*3 02 00*3 04 03 02 01 72 6e 62 64 52 53 50 00 00*16");
    CHECK(emitted(SessionInfoResponse{.features = features}, 36) == response);
    CHECK(SessionInfoResponse::parse(response)->features == features);
}

TEST_CASE("session info: reserved bytes that a kernel did not clear announce nothing") {
    CHECK(SessionInfoMessage::parse(hex("00 00 ff ff 02 ff*31"))->features == Feature::none);
    CHECK(SessionInfoMessage::parse(hex("00*4 02 00*3 03 00*27"))->features == Feature::none);
    CHECK(SessionInfoResponse::parse(hex("01 00 ff ff 02 ff*31"))->features == Feature::none);
    // Our own request, left over in the buffer, is not an answer; and the other way round.
    const auto request = emitted(SessionInfoMessage{.features = Feature::extents}, 36);
    CHECK(SessionInfoResponse::parse(with(request, 0, hex("01")))->features == Feature::none);
    const auto response = emitted(SessionInfoResponse{.features = Feature::extents}, 36);
    CHECK(SessionInfoMessage::parse(with(response, 0, hex("00")))->features == Feature::none);
}

TEST_CASE("session info: the answer takes the smaller version and common features") {
    CHECK(SessionInfoResponse::to({.version = 1}, features_known) ==
          SessionInfoResponse{.version = 1, .features = Feature::none});
    CHECK(
        SessionInfoResponse::to({.version = 200, .features = features_known}, Feature::fast_zero) ==
        SessionInfoResponse{.version = 2, .features = Feature::fast_zero});
    CHECK(SessionInfoResponse::to({.features = static_cast<Feature>(0xfffffffe)}, features_known)
              .features == (Feature::extents | Feature::epoch | Feature::writer | Feature::medium));
    CHECK(has(features_known, Feature::extents));
    CHECK_FALSE(has(Feature::fast_zero, Feature::extents));
}

TEST_CASE("session info response: only its length is checked") {
    const auto plain = emitted(SessionInfoResponse{.version = 1}, 36);
    CHECK(error_of<SessionInfoResponse>(test::first(plain, 35)) == ParseError::too_short);
    CHECK(SessionInfoResponse::parse(with(plain, 0, hex("63 63")))->version == 1);
}

TEST_CASE("open: bytes, both ways") {
    const OpenMessage message{.access_mode = AccessMode::read_write, .device_name = "vol1"};
    CHECK(emitted(message, 264) == open_bytes());
    CHECK(OpenMessage::parse(open_bytes()) == message);
    check_length_and_type<OpenMessage>(open_bytes(), 264);
    CHECK(OpenMessage::parse(with(open_bytes(), 4, hex("00")))->access_mode ==
          AccessMode::read_only);
    CHECK(OpenMessage::parse(with(open_bytes(), 4, hex("02")))->access_mode ==
          AccessMode::migration);
    const OpenMessage longest{.access_mode = AccessMode::migration,
                              .device_name = std::string(254, 'n')};
    CHECK(emitted(longest, 264) == hex("02 00*3 02 00 6e*254 00*4"));
    CHECK(OpenMessage::parse(emitted(longest, 264)) == longest);
}

TEST_CASE("open: a writer follows what a kernel sends") {
    const OpenMessage message{.access_mode = AccessMode::read_write,
                              .device_name = "vol1",
                              .writer = 0x0807'0605'0403'0201};
    CHECK(message.size() == 272);
    const auto bytes = emitted(message, 272);
    CHECK(test::first(bytes, 264) == open_bytes());
    CHECK(std::vector<std::byte>(bytes.end() - 8, bytes.end()) == hex("01 02 03 04 05 06 07 08"));
    CHECK(OpenMessage::parse(bytes) == message);
    CHECK(OpenMessage::parse(test::first(bytes, 271))->writer == 0);
    CHECK(OpenMessage{.device_name = "vol1"}.size() == 264);
}

TEST_CASE("open: a medium follows the writer, whether there is one or not") {
    const MediumId medium{.uuid = *parse_uuid("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
                          .life = 0x0807'0605'0403'0201,
                          .number = 0x1817'1615'1413'1211};
    OpenMessage message{
        .access_mode = AccessMode::read_write, .device_name = "vol1", .medium = medium};
    CHECK(message.size() == 304);
    const auto bytes = emitted(message, 304);
    CHECK(test::first(bytes, 264) == open_bytes());
    CHECK(std::vector<std::byte>(bytes.begin() + 264, bytes.end()) ==
          hex("00*8 6b a7 b8 10 9d ad 11 d1 80 b4 00 c0 4f d4 30 c8 "
              "01 02 03 04 05 06 07 08 11 12 13 14 15 16 17 18"));
    CHECK(OpenMessage::parse(bytes) == message);
    CHECK(!OpenMessage::parse(test::first(bytes, 303))->medium.known());
    message.writer = 7;
    CHECK(OpenMessage::parse(emitted(message, 304)) == message);

    OpenResponse response{.logical_block_bytes = 512, .epoch = 9, .medium = medium};
    CHECK(OpenResponse::size(Feature::none) == 56);
    CHECK(OpenResponse::size(Feature::medium) == 88);
    CHECK(OpenResponse::parse(emitted(response, 88)) == response);
    CHECK(test::first(emitted(response, 88), 72) == [&] {
        auto expected = emitted(response, 56);
        for (const auto byte : hex("6b a7 b8 10 9d ad 11 d1 80 b4 00 c0 4f d4 30 c8"))
            expected.push_back(byte);
        return expected;
    }());
    CHECK(!OpenResponse::parse(test::first(emitted(response, 88), 87))->medium.known());
}

TEST_CASE("open: reserved bytes and what follows the NUL are ignored") {
    const auto parsed = OpenMessage::parse(hex("02 00 99 99 01 99 76 00 2e*253 ff*3"));
    REQUIRE(parsed);
    CHECK(parsed->device_name == "v");
}

TEST_CASE("open: refused") {
    CHECK(error_of<OpenMessage>(with(open_bytes(), 4, hex("03"))) == ParseError::bad_access_mode);
    CHECK(error_of<OpenMessage>(with(open_bytes(), 4, hex("ff"))) == ParseError::bad_access_mode);
    CHECK(error_of<OpenMessage>(with(open_bytes(), 6, hex("61*255"))) ==
          ParseError::name_unterminated);
    CHECK(error_of<OpenMessage>(with(open_bytes(), 6, hex("00"))) == ParseError::name_empty);
    CHECK(error_of<OpenMessage>(with(open_bytes(), 7, hex("2e 2e"))) ==
          ParseError::name_has_dot_dot);
}

TEST_CASE("device name: rules") {
    CHECK(check_device_name("/srv/images/a.b.c"));
    CHECK(check_device_name("").error() == ParseError::name_empty);
    CHECK(check_device_name(std::string(254, 'x')));
    CHECK(check_device_name(std::string(255, 'x')).error() == ParseError::name_too_long);
    CHECK(check_device_name("..").error() == ParseError::name_has_dot_dot);
    CHECK(check_device_name("a..b").error() == ParseError::name_has_dot_dot);
    CHECK(check_device_name("a/../b").error() == ParseError::name_has_dot_dot);
    CHECK(check_device_name(std::string("a\0b", 3)).error() == ParseError::name_has_nul);
}

TEST_CASE("open response: every field has its place and its byte order") {
    const OpenResponse message{.device_id = 0x01020304,
                               .sectors = 0x1112131415161718,
                               .max_hw_sectors = 0x21222324,
                               .max_write_zeroes_sectors = 0x31323334,
                               .max_discard_sectors = 0x41424344,
                               .discard_granularity_bytes = 0x51525354,
                               .discard_alignment_bytes = 0x61626364,
                               .physical_block_bytes = 0x7172,
                               .logical_block_bytes = 0x7374,
                               .max_segments = 0x7576,
                               .secure_discard = 0x7778,
                               .fua = true,
                               .write_back = true,
                               .epoch = 0x8182838485868788};
    const auto bytes =
        hex("03 00 00 00 04 03 02 01 18 17 16 15 14 13 12 11 24 23 22 21 34 33 32 31"
            " 44 43 42 41 54 53 52 51 64 63 62 61 72 71 74 73 76 75 78 77 00 03 00 00"
            " 88 87 86 85 84 83 82 81");
    REQUIRE(bytes.size() == OpenResponse::wire_bytes);
    CHECK(emitted(message, 56) == bytes);
    CHECK(OpenResponse::parse(bytes) == message);
    // Other bits, the obsolete and the reserved bytes and the type mean nothing.
    CHECK(OpenResponse::parse(with(with(bytes, 44, hex("01 ff ff ff")), 0, hex("09 09 09 09"))) ==
          message);
    const auto fua_only = OpenResponse::parse(with(bytes, 45, hex("01")));
    CHECK((fua_only->fua && !fua_only->write_back));
    const auto cache_only = OpenResponse::parse(with(bytes, 45, hex("02")));
    CHECK((!cache_only->fua && cache_only->write_back));
    CHECK(emitted(*cache_only, 56) == with(bytes, 45, hex("02")));
    CHECK(error_of<OpenResponse>(test::first(bytes, 55)) == ParseError::too_short);
    CHECK(error_of<OpenResponse>(with(bytes, 38, hex("00 00"))) ==
          ParseError::logical_block_size_zero);
}

TEST_CASE("close: bytes, both ways") {
    const auto bytes = hex("05 00 00 00 04 03 02 01");
    CHECK(emitted(CloseMessage{0x01020304}, 8) == bytes);
    CHECK(CloseMessage::parse(bytes) == CloseMessage{0x01020304});
    check_length_and_type<CloseMessage>(bytes, 8);
}

TEST_CASE("io: every field has its place and its byte order") {
    const auto bytes =
        hex("04 00 00 00 04 03 02 01 18 17 16 15 14 13 12 11 05 23 22 21 34 33 32 31 42 41 00*6");
    CHECK(emitted(distinct_io(), 32) == bytes);
    CHECK(IoMessage::parse(bytes) == distinct_io());
    CHECK(IoMessage::parse(with(bytes, 26, hex("ff*6"))) == distinct_io());
}

TEST_CASE("io: a kernel client's requests") {
    const auto read = hex("04 00 00 00 00*4 08 00*7 00 01 00 00 00 10 00 00 04 40 00*6");
    const IoMessage expected{.device_id = 0,
                             .sector = 8,
                             .operation = Operation::read,
                             .flags = IoFlag::sync,
                             .bytes = 4096,
                             .priority = 0x4004};
    CHECK(IoMessage::parse(read) == expected);
    CHECK(emitted(expected, 32) == read);
    check_length_and_type<IoMessage>(read, IoMessage::wire_bytes_min);

    const auto flush = IoMessage::parse(hex("04 00 99 99 00*4 ff*8 02 03 00 00 00*4 00 00 77*6"));
    REQUIRE(flush);
    CHECK(flush->operation == Operation::flush);
    CHECK(flush->sector == IoMessage::sector_none);
    CHECK(has(flush->flags, IoFlag::fua | IoFlag::sync));
    CHECK_FALSE(has(flush->flags, IoFlag::preflush));

    const auto newer = IoMessage::parse(with(read, 16, hex("02 07")));
    CHECK(has(newer->flags, IoFlag::sync | IoFlag::fua | IoFlag::preflush));
    const auto zeroes = IoMessage::parse(with(read, 16, hex("05 08")));
    CHECK(zeroes->operation == Operation::write_zeroes);
    CHECK(zeroes->flags == IoFlag::no_unmap);
    CHECK(has(IoMessage::parse(with(read, 16, hex("05 10")))->flags, IoFlag::fast_zero));
}

TEST_CASE("io: the priority needs the whole message, the rest does not") {
    const auto bytes = emitted(distinct_io(), 32);
    for (const std::size_t length : {24u, 28u, 31u}) {
        const auto parsed = IoMessage::parse(test::first(bytes, length));
        REQUIRE(parsed);
        auto expected = distinct_io();
        expected.priority = 0;
        CHECK(*parsed == expected);
    }
    CHECK(error_of<IoMessage>(test::first(bytes, 23)) == ParseError::too_short);
}

TEST_CASE("io: unknown operations are refused, unknown flags are not") {
    const auto plain = emitted(distinct_io(), 32);
    for (unsigned operation = 0; operation < 256; ++operation) {
        const auto parsed = IoMessage::parse(with(plain, 16, {static_cast<std::byte>(operation)}));
        CHECK(parsed.has_value() == (operation <= 5));
        if (!parsed) CHECK(parsed.error() == ParseError::unsupported_operation);
    }
    CHECK(IoMessage::parse(with(plain, 17, hex("ff*3"))));
}

TEST_CASE("io: size and data must agree where data travels") {
    const auto check = [](Operation operation, std::uint32_t bytes, std::uint64_t data) {
        return IoMessage{.operation = operation, .bytes = bytes}.check_data(data);
    };
    for (const Operation operation : {Operation::read, Operation::write}) {
        CHECK(check(operation, 4096, 4096));
        CHECK(check(operation, 4096, 4095).error() == ParseError::size_is_not_data);
        CHECK(check(operation, 4096, 8192).error() == ParseError::size_is_not_data);
        CHECK(check(operation, 0, 4096).error() == ParseError::size_is_not_data);
        CHECK(check(operation, 4096, 0).error() == ParseError::data_missing);
        CHECK(check(operation, 0, 0).error() == ParseError::data_missing);
        CHECK(check(operation, 0, 1ull << 32).error() == ParseError::size_is_not_data);
        CHECK(carries_data(operation));
    }
    for (const Operation operation :
         {Operation::flush, Operation::discard, Operation::secure_erase, Operation::write_zeroes}) {
        CHECK(check(operation, 1 << 30, 0));
        CHECK(check(operation, 0, 0));
        CHECK(check(operation, 512, 512).error() == ParseError::data_unexpected);
        CHECK_FALSE(carries_data(operation));
    }
    CHECK(sent_as_read(Operation::flush));
    CHECK(sent_as_read(Operation::read));
    CHECK_FALSE(sent_as_read(Operation::secure_erase));
    CHECK_FALSE(sent_as_read(Operation::discard));
}

TEST_CASE("extents: bytes, both ways") {
    const ExtentsMessage message{0x01020304, 0x1112131415161718, 0x2122232425262728};
    const auto bytes =
        hex("10 00 00 00 04 03 02 01 18 17 16 15 14 13 12 11 28 27 26 25 24 23 22 21 00*8");
    CHECK(emitted(message, 32) == bytes);
    CHECK(ExtentsMessage::parse(bytes) == message);
    check_length_and_type<ExtentsMessage>(bytes, 32);
}

TEST_CASE("extents response: bytes, both ways") {
    test::ByteVector bytes(ExtentsResponseView::wire_bytes(2), std::byte{0xee});
    const ExtentDescriptor data{.length = 0x0102030405060708};
    const ExtentDescriptor hole{.length = 0x1000, .flags = ExtentFlag::hole | ExtentFlag::zero};
    ExtentsResponseView::emit_extent(0, data, bytes);
    ExtentsResponseView::emit_extent(1, hole, bytes);
    ExtentsResponseView::emit_header(2, bytes);
    CHECK(bytes == hex("11 00 00 00 02 00 00 00 00*8 08 07 06 05 04 03 02 01 00*8"
                       " 00 10 00*6 03 00 00 00 00*4"));
    bytes.resize(4096, std::byte{0x5a});
    const auto view = ExtentsResponseView::parse(bytes);
    REQUIRE(view);
    REQUIRE(view->count() == 2);
    CHECK(view->extent(0) == data);
    CHECK(view->extent(1) == hole);
    bytes[ExtentsResponseView::wire_bytes(2) - 7] = std::byte{0x80};  // a flag of a newer server's
    CHECK(view->extent(1) == hole);
    CHECK(ExtentsResponseView::capacity(15) == 0);
    CHECK(ExtentsResponseView::capacity(16) == 0);
    CHECK(ExtentsResponseView::capacity(47) == 1);
    CHECK(ExtentsResponseView::capacity(48) == 2);
}

TEST_CASE("extents response: refused") {
    const auto error = [](const test::ByteVector& bytes) {
        return ExtentsResponseView::parse(bytes).error();
    };
    const auto plain = hex("11 00 00 00 01 00 00 00 00*8 01 00*15");
    CHECK(ExtentsResponseView::parse(plain));
    CHECK(ExtentsResponseView::parse(with(plain, 4, hex("00")))->count() == 0);
    CHECK(error({}) == ParseError::too_short);
    CHECK(error(test::first(plain, 15)) == ParseError::too_short);
    CHECK(error(test::first(plain, 31)) == ParseError::too_short);
    CHECK(error(with(plain, 4, hex("02"))) == ParseError::too_short);
    CHECK(error(with(plain, 4, hex("01 00 00 10"))) ==
          ParseError::too_short);  // * 16 wraps 32 bits
    CHECK(error(with(plain, 0, hex("10"))) == ParseError::wrong_type);
    CHECK(error(with(plain, 16, hex("00"))) == ParseError::extent_empty);
}

TEST_CASE("messages: what is emitted is parsed, whatever the values") {
    rtrs::Random random(3);
    const auto u32 = [&] { return static_cast<std::uint32_t>(random.next()); };
    const auto u16 = [&] { return static_cast<std::uint16_t>(random.next()); };
    for (int i = 0; i < 20000; ++i) {
        const IoMessage io{.device_id = u32(),
                           .sector = random.next(),
                           .operation = static_cast<Operation>(random.below(6)),
                           .flags = static_cast<IoFlag>(u32() & ~0xffu),
                           .bytes = u32(),
                           .priority = u16()};
        const OpenResponse open{.device_id = u32(),
                                .sectors = random.next(),
                                .max_hw_sectors = u32(),
                                .max_write_zeroes_sectors = u32(),
                                .max_discard_sectors = u32(),
                                .discard_granularity_bytes = u32(),
                                .discard_alignment_bytes = u32(),
                                .physical_block_bytes = u16(),
                                .logical_block_bytes = static_cast<std::uint16_t>(u16() | 1),
                                .max_segments = u16(),
                                .secure_discard = u16(),
                                .fua = random.chance(1, 2),
                                .write_back = random.chance(1, 2)};
        const SessionInfoMessage info{.version = static_cast<std::uint8_t>(u16()),
                                      .features = static_cast<Feature>(u32())};
        const ExtentsMessage extents{u32(), random.next(), random.next()};
        if (IoMessage::parse(emitted(io, 32)) != io ||
            OpenResponse::parse(emitted(open, 56)) != open ||
            SessionInfoMessage::parse(emitted(info, 36)) != info ||
            ExtentsMessage::parse(emitted(extents, 32)) != extents) {
            FAIL(i);
        }
    }
}

TEST_CASE("rnbd parse error: texts and errnos") {
    std::vector<std::string> texts;
    for (int i = 1; i <= static_cast<int>(ParseError::too_many_exports); ++i) {
        const auto error = static_cast<ParseError>(i);
        texts.emplace_back(text(error));
        CHECK(texts.back() != text(static_cast<ParseError>(255)));
        CHECK(to_errno(error) ==
              (error == ParseError::unsupported_operation ? EOPNOTSUPP : EINVAL));
    }
    std::sort(texts.begin(), texts.end());
    CHECK(std::adjacent_find(texts.begin(), texts.end()) == texts.end());
}
