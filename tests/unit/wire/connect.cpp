#include "rtrs/wire/connect.h"

#include <catch2/catch.hpp>

#include "rtrs/limits.h"
#include "tests/unit/wire/hex.h"

using namespace rtrs;
using test::emitted;
using test::hex;
using test::with;

namespace {

const char* const request_head = "00 00 bd 1b 00 02 ";

// Every field with bytes of its own.
ConnectRequestMessage distinct_request() {
    ConnectRequestMessage message;
    message.connection_id = 0x0102;
    message.connection_count = 0x0304;
    message.reconnect_count = 0x0506;
    for (std::size_t i = 0; i < 16; ++i) {
        message.path_uuid.bytes[i] = static_cast<std::byte>(0x20 + i);
        message.session_uuid.bytes[i] = static_cast<std::byte>(0x40 + i);
    }
    message.features = 0x71727374;
    return message;
}

test::ByteVector distinct_request_bytes() {
    return hex(std::string(request_head) +
               "02 01 04 03 06 05 "
               "20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f "
               "40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f "
               "01 00*3 74 73 72 71 00*4");
}

ParseError request_error(const test::ByteVector& bytes) {
    const auto parsed = ConnectRequestMessage::parse(bytes);
    REQUIRE_FALSE(parsed);
    return parsed.error();
}

ParseError response_error(const test::ByteVector& bytes) {
    const auto parsed = ConnectResponseMessage::parse(bytes);
    REQUIRE_FALSE(parsed);
    return parsed.error();
}

const ChunkGeometry default_geometry{
    .queue_depth = 512, .chunk_bytes = 131072, .io_bytes_max = 126976, .header_bytes_max = 4096};

test::ByteVector default_accept_bytes() {
    return hex("bd 1b 00 02 00 00 00 02 00 f0 01 00 00 10 00 00 02 00 00 00 00*36");
}

}  // namespace

TEST_CASE("connect request: a kernel client's bytes, both ways") {
    // As captured from a kernel client with two CPUs; the identities are this test's.
    const auto bytes = hex(std::string(request_head) + "00 00 03 00 01 00 a1*16 b2*16 01 00*11");
    const auto message = ConnectRequestMessage::parse(bytes);
    REQUIRE(message);
    CHECK(message->connection_id == 0);
    CHECK(message->connection_count == 3);
    CHECK(message->reconnect_count == 1);
    CHECK(message->path_uuid.bytes[0] == std::byte{0xa1});
    CHECK(message->session_uuid.bytes[15] == std::byte{0xb2});
    CHECK(message->first_connection == FirstConnection::yes);
    CHECK(message->features == 0);
    CHECK(emitted(*message, 56) == bytes);
}

TEST_CASE("connect request: every field has its place and its byte order") {
    CHECK(emitted(distinct_request(), 56) == distinct_request_bytes());
    CHECK(ConnectRequestMessage::parse(distinct_request_bytes()) == distinct_request());
    auto message = distinct_request();
    message.first_connection = FirstConnection::no;
    CHECK(emitted(message, 56) == with(distinct_request_bytes(), 44, hex("00")));
    CHECK(ConnectRequestMessage::parse(emitted(message, 56)) == message);
}

TEST_CASE("connect request: emit leaves what is behind it alone") {
    const auto bytes = emitted(distinct_request(), 60);
    CHECK(test::first(bytes, 56) == distinct_request_bytes());
    CHECK(bytes[56] == std::byte{0xee});
}

TEST_CASE("connect request: what a kernel server tolerates") {
    const auto plain = distinct_request_bytes();
    const auto same = distinct_request();
    CHECK(ConnectRequestMessage::parse(with(plain, 4, hex("7f"))) == same);     // minor
    CHECK(ConnectRequestMessage::parse(with(plain, 0, hex("99 46"))) == same);  // cma, ip version
    CHECK(ConnectRequestMessage::parse(with(plain, 45, hex("ff*3"))) == same);  // reserved
    CHECK(ConnectRequestMessage::parse(with(plain, 52, hex("ff*4"))) == same);  // reserved
    CHECK(ConnectRequestMessage::parse(with(plain, 44, hex("fd"))) == same);    // other flags
    auto longer = plain;
    longer.resize(92, std::byte{0x5a});
    CHECK(ConnectRequestMessage::parse(longer) == same);
    // Bit 0 alone is first_conn: a big-endian bit field would have put it in bit 7.
    const auto other = ConnectRequestMessage::parse(with(plain, 44, hex("fe")));
    CHECK(other->first_connection == FirstConnection::no);
}

TEST_CASE("connect request: refused") {
    const auto plain = distinct_request_bytes();
    CHECK(request_error({}) == ParseError::too_short);
    CHECK(request_error(test::first(plain, 55)) == ParseError::too_short);
    CHECK(request_error(with(plain, 2, hex("1b bd"))) == ParseError::bad_magic);
    CHECK(request_error(with(plain, 4, hex("00 01"))) == ParseError::bad_version);
    CHECK(request_error(with(plain, 4, hex("02 03"))) == ParseError::bad_version);
    CHECK(request_error(with(plain, 8, hex("01 10"))) == ParseError::too_many_connections);
    CHECK(ConnectRequestMessage::parse(with(plain, 8, hex("00 10"))));  // 4096
    CHECK(request_error(with(plain, 6, hex("04 03"))) == ParseError::connection_id_out_of_range);
    CHECK(ConnectRequestMessage::parse(with(plain, 6, hex("03 03"))));
    CHECK(request_error(with(plain, 6, hex("00 00 00 00"))) ==
          ParseError::connection_id_out_of_range);  // cid_num 0
    // The order of the checks is the kernel's: magic before version before numbers.
    CHECK(request_error(with(plain, 2, hex("00*8"))) == ParseError::bad_magic);
    CHECK(request_error(with(plain, 4, hex("00 00 ff*4"))) == ParseError::bad_version);
    CHECK(request_error(with(plain, 6, hex("ff*4"))) == ParseError::too_many_connections);
}

TEST_CASE("connect response: a kernel server's accept, both ways") {
    const auto message = ConnectResponseMessage::parse(default_accept_bytes());
    REQUIRE(message);
    CHECK(*message ==
          ConnectResponseMessage::accept(default_geometry, KeyRenewal::every_answer, 0));
    CHECK(message->geometry() == default_geometry);
    CHECK(emitted(*message, 56) == default_accept_bytes());
}

TEST_CASE("connect response: rejects of a kernel server, both ways") {
    for (const auto& [error, bytes] : {std::pair{104, hex("bd 1b 00 02 98 ff 00*50")},
                                       std::pair{17, hex("bd 1b 00 02 ef ff 00*50")},
                                       std::pair{6, hex("bd 1b 00 02 fa ff 00*50")}}) {
        CHECK(emitted(ConnectResponseMessage::reject(error), 56) == bytes);
        const auto parsed = ConnectResponseMessage::parse(bytes);
        REQUIRE(parsed);
        CHECK(parsed->error == error);
        CHECK(parsed == ConnectResponseMessage::reject(error));
    }
}

TEST_CASE("connect response: every field has its place and its byte order") {
    const auto bytes =
        hex("bd 1b 00 02 ff fe 02 01 14 13 12 11 24 23 22 21 02 00 00 00 34 33 32 31 00*32");
    ConnectResponseMessage message;
    message.error = 0x0101;
    message.queue_depth = 0x0102;
    message.io_bytes_max = 0x11121314;
    message.header_bytes_max = 0x21222324;
    message.key_renewal = KeyRenewal::every_answer;
    message.features = 0x31323334;
    CHECK(emitted(message, 56) == bytes);
    CHECK(ConnectResponseMessage::parse(bytes) == message);
    message.key_renewal = KeyRenewal::no;
    CHECK(emitted(message, 56) == with(bytes, 16, hex("00")));
}

TEST_CASE("connect response: what a kernel client tolerates") {
    const auto plain = default_accept_bytes();
    const auto same = *ConnectResponseMessage::parse(plain);
    CHECK(ConnectResponseMessage::parse(with(plain, 2, hex("63"))) == same);        // minor
    CHECK(ConnectResponseMessage::parse(with(plain, 16, hex("fe ff*3"))) == same);  // other flags
    CHECK(ConnectResponseMessage::parse(with(plain, 24, hex("ff*32"))) == same);    // reserved
    auto longer = plain;
    longer.resize(196, std::byte{0x5a});
    CHECK(ConnectResponseMessage::parse(longer) == same);
    // The most negative errno does not overflow, a positive one is taken by its size.
    CHECK(ConnectResponseMessage::parse(with(plain, 4, hex("00 80")))->error == 32768);
    CHECK(ConnectResponseMessage::parse(with(plain, 4, hex("68 00")))->error == 104);
}

TEST_CASE("connect response: refused") {
    const auto plain = default_accept_bytes();
    CHECK(response_error({}) == ParseError::too_short);
    CHECK(response_error(test::first(plain, 55)) == ParseError::too_short);
    CHECK(response_error(with(plain, 0, hex("bc"))) == ParseError::bad_magic);
    CHECK(response_error(with(plain, 3, hex("01"))) == ParseError::bad_version);
    CHECK(response_error(with(plain, 0, hex("00*4"))) == ParseError::bad_magic);
}

TEST_CASE("connect response: only possible chunks are believed") {
    const auto geometry = [](std::uint16_t depth, std::uint32_t io, std::uint32_t header) {
        ConnectResponseMessage message;
        message.queue_depth = depth;
        message.io_bytes_max = io;
        message.header_bytes_max = header;
        return message.geometry();
    };
    CHECK(geometry(1, 4096, 4096));
    CHECK(geometry(512, (512 << 10) - 65536, 65536));  // a server with 64 KiB pages
    CHECK(geometry(65535, 4096, 4096).error() == ParseError::chunk_size_out_of_range);
    CHECK(geometry(0, 126976, 4096).error() == ParseError::queue_depth_out_of_range);
    CHECK(geometry(512, 0, 131072).error() == ParseError::chunk_size_out_of_range);
    CHECK(geometry(512, 131072, 0).error() == ParseError::chunk_size_out_of_range);
    CHECK(geometry(512, 100, 4096).error() == ParseError::chunk_size_out_of_range);
    CHECK(geometry(512, 520192 + 4096, 4096).error() == ParseError::chunk_size_out_of_range);
    // 0xfffff000 + 0x3000 is 8192 if one adds in 32 bits.
    CHECK(geometry(1, 0xfffff000u, 0x3000).error() == ParseError::chunk_size_out_of_range);
}

TEST_CASE("limits: a session's chunks") {
    using limits::geometry_possible;
    CHECK(limits::ceil_log2(1) == 0);
    CHECK(limits::ceil_log2(2) == 1);
    CHECK(limits::ceil_log2(3) == 2);
    CHECK(limits::ceil_log2(512) == 9);
    CHECK(limits::ceil_log2(513) == 10);
    CHECK(limits::ceil_log2(65535) == 16);
    for (const std::uint32_t depth : {1u, 2u, 3u, 64u, 512u, 1025u}) {
        for (const std::uint32_t chunk : {8192u, 131072u}) {
            CAPTURE(depth, chunk);
            CHECK(geometry_possible(depth, chunk));
        }
    }
    CHECK(geometry_possible(256, 1 << 20));
    CHECK_FALSE(geometry_possible(257, 1 << 20));
    CHECK_FALSE(geometry_possible(0, 8192));
    CHECK_FALSE(geometry_possible(65536, 8192));
    CHECK_FALSE(geometry_possible(1, 4096));
    CHECK_FALSE(geometry_possible(1, 8192 + 512));
    CHECK_FALSE(geometry_possible(1, 1ull << 29));
}

TEST_CASE("connect request: for messages, if both the flag and the feature say so") {
    ConnectRequestMessage message = distinct_request();
    message.purpose = ConnectionPurpose::messages;
    message.features = features_of(Feature::messages);
    const auto bytes = emitted(message, 56);
    CHECK((bytes[44] & std::byte{2}) == std::byte{2});
    CHECK(ConnectRequestMessage::parse(bytes) == message);
    const auto without = ConnectRequestMessage::parse(with(bytes, 48, hex("fd ff ff ff")));
    REQUIRE(without);
    CHECK(without->purpose == ConnectionPurpose::path);
}
