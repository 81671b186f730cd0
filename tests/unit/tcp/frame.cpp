#include "rtrs/fabric/tcp/frame.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "rtrs/base/random.h"
#include "rtrs/fabric/tcp/crc32c.h"

using namespace rtrs;
using namespace rtrs::tcp;

namespace {

using HeaderBytes = std::array<std::byte, header_bytes>;

HeaderBytes bytes_of(const FrameHeader& header) {
    HeaderBytes bytes;
    emit_header(header, bytes.data());
    return bytes;
}

std::string hex(Bytes bytes) {
    std::string text;
    for (const std::byte b : bytes) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
        text += digits;
    }
    return text;
}

// With the checksum made right, so that what is behind it is looked at.
std::optional<Error> refusal(HeaderBytes bytes) {
    store_le32(bytes.data() + 28, crc32c(Bytes(bytes).first(28)));
    FrameHeader parsed;
    return parse_header(bytes, parsed);
}

FrameHeader write_immediate() {
    FrameHeader header;
    header.opcode = Opcode::write_immediate;
    header.flags = flag_payload_crc;
    header.payload_bytes = 0x00102030;
    header.address = 0x1122334455667788;
    header.key = 0xa1b2c3d4;
    header.immediate = 0x10203040;
    header.payload_crc = 0xe3069283;
    return header;
}

}  // namespace

TEST_CASE("frame: golden bytes of a header") {
    const HeaderBytes bytes = bytes_of(write_immediate());
    CHECK(hex(Bytes(bytes).first(28)) ==
          "5246"              // magic
          "0801"              // write with immediate, payload CRC
          "30201000"          // payload bytes
          "8877665544332211"  // address
          "d4c3b2a1"          // key
          "10203040"          // immediate, big-endian
          "839206e3");        // payload CRC
    CHECK(load_le32(bytes.data() + 28) == crc32c(Bytes(bytes).first(28)));
    FrameHeader parsed;
    REQUIRE(!parse_header(bytes, parsed));
    CHECK(parsed.opcode == Opcode::write_immediate);
    CHECK(parsed.has_payload_crc());
    CHECK(parsed.payload_bytes == 0x00102030);
    CHECK(parsed.address == 0x1122334455667788);
    CHECK(parsed.key == 0xa1b2c3d4);
    CHECK(parsed.immediate == 0x10203040);
    CHECK(parsed.payload_crc == 0xe3069283);
}

TEST_CASE("frame: golden bytes of an empty disconnect") {
    FrameHeader header;
    header.opcode = Opcode::disconnect;
    header.immediate = 2;
    const HeaderBytes bytes = bytes_of(header);
    CHECK(hex(bytes).substr(0, 56) == "52460b00000000000000000000000000000000000000000200000000");
}

TEST_CASE("frame: every flipped bit of a header is noticed") {
    const HeaderBytes good = bytes_of(write_immediate());
    for (std::size_t bit = 0; bit < header_bytes * 8; ++bit) {
        HeaderBytes bad = good;
        bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
        FrameHeader parsed;
        REQUIRE(parse_header(bad, parsed) == (bit < 16 ? Error::protocol : Error::checksum));
    }
}

TEST_CASE("frame: unknown opcodes and reserved flags are refused") {
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
        FrameHeader header;
        header.opcode = static_cast<Opcode>(opcode);
        const bool empty_is_fine = (opcode >= 4 && opcode <= 8) || opcode == 10 || opcode == 11;
        CHECK(!refusal(bytes_of(header)) == empty_is_fine);
    }
    for (unsigned bit = 1; bit < 8; ++bit) {
        FrameHeader header = write_immediate();
        header.flags |= static_cast<std::uint8_t>(1u << bit);
        CHECK(refusal(bytes_of(header)) == Error::protocol);
    }
}

TEST_CASE("frame: payloads beyond the limit of their opcode are refused") {
    const auto with = [](Opcode opcode, std::uint32_t bytes) {
        FrameHeader header;
        header.opcode = opcode;
        header.payload_bytes = bytes;
        return refusal(bytes_of(header));
    };
    for (const Opcode opcode : {Opcode::send, Opcode::write, Opcode::read_response}) {
        CHECK(!with(opcode, Endpoint::payload_bytes_max));
        CHECK(with(opcode, Endpoint::payload_bytes_max + 1) == Error::protocol);
    }
    CHECK(!with(Opcode::connect_request, 16));
    CHECK(!with(Opcode::connect_request, 16 + 56));
    CHECK(with(Opcode::connect_request, 15));
    CHECK(with(Opcode::connect_request, 16 + 57));
    CHECK(!with(Opcode::accept, 16 + 196));
    CHECK(with(Opcode::accept, 16 + 197));
    CHECK(with(Opcode::reject, 16 + 197));
    CHECK(with(Opcode::read_request, 7));
    CHECK(!with(Opcode::read_request, 8));
    CHECK(with(Opcode::read_request, 9));
    CHECK(with(Opcode::disconnect, 1));
}

TEST_CASE("frame: fields that an opcode does not use must be zero") {
    const auto with = [](Opcode opcode, std::uint64_t address, Key key, std::uint32_t immediate) {
        FrameHeader header;
        header.opcode = opcode;
        header.address = address;
        header.key = key;
        header.immediate = immediate;
        return !refusal(bytes_of(header));
    };
    CHECK(!with(Opcode::send, 1, 0, 0));
    CHECK(!with(Opcode::send, 0, 1, 0));
    CHECK(!with(Opcode::send, 0, 0, 1));
    CHECK(with(Opcode::send_immediate, 0, 0, 1));
    CHECK(with(Opcode::send_invalidate, 0, 1, 0));
    CHECK(!with(Opcode::send_invalidate, 0, 1, 1));
    CHECK(with(Opcode::write, 1, 1, 0));
    CHECK(!with(Opcode::write, 1, 1, 1));
    CHECK(with(Opcode::read_response, 1, 0, 0));
    CHECK(!with(Opcode::read_response, 1, 1, 0));
    FrameHeader header;
    header.opcode = Opcode::write;
    header.payload_crc = 1;  // without the flag
    CHECK(refusal(bytes_of(header)) == Error::protocol);
    header.flags = flag_payload_crc;  // without a payload
    CHECK(refusal(bytes_of(header)) == Error::protocol);
}

TEST_CASE("frame: golden bytes of a handshake") {
    Hello hello;
    hello.payload_crc = true;
    hello.reads_max = 64;
    const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
    const HandshakeFrame frame = emit_handshake(Opcode::connect_request, hello, data);
    REQUIRE(frame.size == 32 + 16 + 3);
    const Bytes payload = Bytes(frame.bytes).subspan(32, 19);
    CHECK(hex(payload) ==
          "0100"  // version
          "0100"  // payload checksums
          "4000"  // reads
          "0000"  // no reason
          "0300"  // private bytes
          "000000000000"
          "010203");
    FrameHeader header;
    REQUIRE(!parse_header(std::span(frame.bytes).first<header_bytes>(), header));
    CHECK(header.opcode == Opcode::connect_request);
    CHECK(header.payload_bytes == 19);
    CHECK(header.payload_crc == crc32c(payload));
    const auto parsed = parse_hello(payload);
    REQUIRE(parsed);
    CHECK(parsed->payload_crc);
    CHECK(parsed->reads_max == 64);
    CHECK(parsed->private_bytes == 3);
}

TEST_CASE("frame: a hello with wrong lengths or reserved bits is refused") {
    const HandshakeFrame frame = emit_handshake(Opcode::accept, Hello{}, {});
    const Bytes good = Bytes(frame.bytes).subspan(32, 16);
    REQUIRE(parse_hello(good));
    for (std::size_t bytes = 0; bytes < 16; ++bytes) CHECK(!parse_hello(good.first(bytes)));
    CHECK(!parse_hello(Bytes(frame.bytes).subspan(32, 17)));
    for (const std::size_t offset : {2u, 3u, 10u, 13u, 15u}) {
        std::vector<std::byte> bad(good.begin(), good.end());
        bad[offset] |= std::byte{0x80};
        CHECK(!parse_hello(bad));
    }
    std::vector<std::byte> newer(good.begin(), good.end());
    newer[0] = std::byte{2};
    newer[15] = std::byte{0xff};  // whatever version 2 may mean by it
    const auto parsed = parse_hello(newer);
    REQUIRE(parsed);
    CHECK(parsed->version == 2);
}

TEST_CASE("frame: what was parsed is emitted as it was, for any bytes") {
    Random random(7);
    int good = 0;
    for (int round = 0; round < 200000; ++round) {
        HeaderBytes bytes{};
        store_le16(bytes.data(), frame_magic);
        store_u8(bytes.data() + 2, static_cast<std::uint8_t>(random.below(14)));
        store_u8(bytes.data() + 3, static_cast<std::uint8_t>(random.below(3)));
        for (const std::size_t offset : {4u, 8u, 12u, 16u, 20u, 24u}) {
            if (random.chance(1, 2)) {
                store_le32(bytes.data() + offset,
                           static_cast<std::uint32_t>(random.next()) >> random.below(32));
            }
        }
        store_le32(bytes.data() + 28, crc32c(Bytes(bytes).first(28)));
        if (FrameHeader parsed; !parse_header(bytes, parsed)) {
            ++good;
            REQUIRE(bytes_of(parsed) == bytes);
        }
    }
    CHECK(good > 1000);
}

TEST_CASE("frame: what is refused is told in words, of each field") {
    const auto wrong = [](FrameHeader header, auto change) {
        HeaderBytes bytes = bytes_of(header);
        change(bytes);
        store_le32(bytes.data() + 28, crc32c(Bytes(bytes).first(28)));
        FrameHeader parsed;
        REQUIRE(parse_header(bytes, parsed));
        return wrong_with_header(bytes);
    };
    const auto nothing = [](HeaderBytes&) {};
    const auto set = [](std::size_t at, std::uint8_t value) {
        return [=](HeaderBytes& bytes) { bytes[at] = std::byte{value}; };
    };
    FrameHeader send;
    CHECK(wrong(send, set(0, 0)) == "magic of a frame: found byte 0 'F', expected 'R' 'F'");
    CHECK(wrong(send, set(2, 99)) == "opcode of a frame: found 99, expected 1 to 11");
    CHECK(wrong(send, set(3, 2)) ==
          "flags of a frame with opcode 4 (send): found 2, expected 0 or 1");
    CHECK(wrong(send, set(3, 1)) ==
          "flags of a frame with opcode 4 (send): found 1, expected 0, as it has no payload");
    CHECK(wrong(send, set(24, 7)) ==
          "payload checksum of a frame with opcode 4 (send): found 7, expected 0, as its flags say "
          "that there is none");
    CHECK(wrong(send, set(8, 5)) == "address of a frame with opcode 4 (send): found 5, expected 0");
    CHECK(wrong(send, set(16, 5)) == "key of a frame with opcode 4 (send): found 5, expected 0");
    CHECK(wrong(send, set(23, 5)) ==
          "immediate of a frame with opcode 4 (send): found 5, expected 0");
    FrameHeader read;
    read.opcode = Opcode::read_request;
    CHECK(wrong(read, nothing) ==
          "payload length of a frame with opcode 9 (read_request): found 0, expected 8 to 8");
}
