// The first frame of a peer, however its bytes come.
#include "rtrs/fabric/tcp/handshake_reader.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "rtrs/fabric/tcp/crc32c.h"

using namespace rtrs;
using namespace rtrs::tcp;

namespace {

using Awaited = HandshakeReader::Awaited;
using Progress = HandshakeReader::Progress;
using Result = std::expected<Progress, std::error_code>;

// At most so many at a time; the last result.
Result feed(HandshakeReader& reader, Bytes bytes, std::size_t at_most = 1000) {
    Result result = Progress::more;
    while (!bytes.empty() && result && *result == Progress::more) {
        const MutableBytes space = reader.space();
        REQUIRE_FALSE(space.empty());
        const std::size_t n = std::min({space.size(), bytes.size(), at_most});
        std::ranges::copy(bytes.first(n), space.begin());
        bytes = bytes.subspan(n);
        result = reader.received(n);
    }
    CHECK(bytes.empty());
    return result;
}

std::error_code refusal(Awaited awaited, Bytes bytes) {
    HandshakeReader reader(awaited);
    const Result result = feed(reader, bytes);
    REQUIRE_FALSE(result);
    return result.error();
}

Bytes bytes_of(const HandshakeFrame& frame) { return Bytes(frame.bytes).first(frame.size); }

Hello hello_of(std::uint16_t reads) {
    Hello hello;
    hello.payload_crc = true;
    hello.reads_max = reads;
    return hello;
}

}  // namespace

TEST_CASE("handshake reader: a whole frame, in pieces of any size, and no byte more") {
    const std::size_t private_bytes = GENERATE(0, 1, private_data_request_max);
    const std::size_t piece = GENERATE(1, 7, 31, 32, 33, 1000);
    const std::vector<std::byte> data(private_bytes, std::byte{0x5a});
    const HandshakeFrame frame = emit_handshake(Opcode::connect_request, hello_of(7), data);
    HandshakeReader reader(Awaited::connect_request);
    CHECK(reader.space().size() == header_bytes);
    const Result before = feed(reader, bytes_of(frame).first(frame.size - 1), piece);
    REQUIRE(before);
    CHECK(*before == Progress::more);
    CHECK(reader.space().size() == 1);
    const Result after = feed(reader, bytes_of(frame).last(1));
    REQUIRE(after);
    CHECK(*after == Progress::whole);
    CHECK(reader.opcode() == Opcode::connect_request);
    CHECK(reader.hello().payload_crc);
    CHECK(reader.hello().reads_max == 7);
    CHECK(std::ranges::equal(reader.private_data(), data));
}

TEST_CASE("handshake reader: who dials takes an answer, who listens a request") {
    const std::vector<std::byte> data(private_data_reply_max, std::byte{1});
    const HandshakeFrame request = emit_handshake(Opcode::connect_request, hello_of(1), {});
    const HandshakeFrame accept = emit_handshake(Opcode::accept, hello_of(1), data);
    const HandshakeFrame reject = emit_handshake(Opcode::reject, hello_of(1), {});
    for (const HandshakeFrame* answer : {&accept, &reject}) {
        HandshakeReader reader(Awaited::answer);
        const Result result = feed(reader, bytes_of(*answer));
        REQUIRE(result);
        CHECK(*result == Progress::whole);
        // Nothing of its payload is waited for.
        CHECK(refusal(Awaited::connect_request, bytes_of(*answer).first(header_bytes)) ==
              Error::protocol);
    }
    CHECK(refusal(Awaited::answer, bytes_of(request).first(header_bytes)) == Error::protocol);
}

TEST_CASE("handshake reader: checksums, lengths, and a hello of another version") {
    HandshakeFrame frame = emit_handshake(Opcode::connect_request, hello_of(1), {});
    frame.bytes[header_bytes] ^= std::byte{1};
    CHECK(refusal(Awaited::connect_request, bytes_of(frame)) == Error::checksum);
    frame.bytes[8] ^= std::byte{1};
    CHECK(refusal(Awaited::connect_request, bytes_of(frame).first(header_bytes)) ==
          Error::checksum);

    // A frame that says it has no payload, and so no hello.
    FrameHeader empty;
    empty.opcode = Opcode::connect_request;
    empty.flags = flag_payload_crc;
    empty.payload_crc = crc32c({});
    std::array<std::byte, header_bytes> bytes;
    emit_header(empty, bytes.data());
    CHECK(refusal(Awaited::connect_request, bytes) == Error::protocol);

    Hello newer = hello_of(1);
    newer.version = fabric_version + 1;
    HandshakeReader reader(Awaited::connect_request);
    REQUIRE(feed(reader, bytes_of(emit_handshake(Opcode::connect_request, newer, {}))));
    CHECK(reader.hello().version == fabric_version + 1);
    CHECK(reader.private_data().empty());
}

TEST_CASE("handshake reader: complaints name the field, what was found and what was expected") {
    const auto complaint = [](Bytes bytes) {
        HandshakeReader reader(Awaited::connect_request);
        static_cast<void>(feed(reader, bytes));
        return reader.complaint();
    };
    const HandshakeFrame good = emit_handshake(Opcode::connect_request, hello_of(1), {});
    CHECK(complaint(bytes_of(good).first(10)) ==
          "10 bytes came of a connect request, expected 32 and more");
    CHECK(complaint(bytes_of(good).first(40)) == "40 bytes came of a connect request, expected 48");
    HandshakeFrame frame = good;
    frame.bytes[0] = std::byte{0x47};  // as of "GET / HTTP/1.0"
    CHECK(complaint(bytes_of(frame).first(header_bytes)) ==
          "magic of a frame: found 'G' 'F', expected 'R' 'F'");
    frame = good;
    frame.bytes[8] ^= std::byte{1};
    CHECK(complaint(bytes_of(frame).first(header_bytes))
              .starts_with("checksum of a frame's header: found "));
    frame = good;
    frame.bytes[header_bytes] ^= std::byte{1};
    CHECK(complaint(bytes_of(frame)).starts_with("payload checksum of a connect request: found "));
    const HandshakeFrame answer = emit_handshake(Opcode::accept, hello_of(1), {});
    CHECK(complaint(bytes_of(answer).first(header_bytes)) ==
          "opcode of the first frame: found 2 (accept), expected 1 (connect_request)");
}
