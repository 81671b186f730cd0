#include "rtrs/wire/request.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <expected>

#include "rtrs/base/random.h"
#include "tests/unit/wire/hex.h"

using namespace rtrs;
using test::emitted;
using test::hex;
using test::with;

namespace {

constexpr std::uint32_t chunk_bytes = 131072;

// Parses the message bytes as a server does that got them at this offset.
std::expected<RequestMessage, RequestRefusal> parsed(const test::ByteVector& message,
                                                     const RequestPlace& place) {
    test::ByteVector copy = message;
    copy.resize(place.copy_bytes(), std::byte{0x5a});  // stale bytes of the chunk
    // Nothing of what was there before stays.
    RequestMessage request{.invalidation = Invalidation::needed,
                           .destination = BufferDescriptor{1, 2, 3},
                           .sequence = 4};
    if (const auto refusal = RequestMessage::parse(copy, place, request))
        return std::unexpected(*refusal);
    return request;
}

RequestPlace at(std::uint32_t offset) { return {.offset = offset, .chunk_bytes = chunk_bytes}; }

RequestRefusal refused(const test::ByteVector& message, const RequestPlace& place) {
    const auto result = parsed(message, place);
    REQUIRE_FALSE(result);
    return result.error();
}

const char* const io_read_4k =
    "03 00 20 00 01 00 01 00 08 07 06 05 04 03 02 01 14 13 12 11 00 10 00 00";

}  // namespace

TEST_CASE("write message: bytes") {
    CHECK(emitted(WriteMessage{.user_bytes = 32}, 4) == hex("02 00 20 00"));
    CHECK(emitted(WriteMessage{.user_bytes = 8}, 4) == hex("02 00 08 00"));
    CHECK(emitted(WriteMessage{.user_bytes = 0x0102}, 4) == hex("02 00 02 01"));
}

TEST_CASE("read message: bytes") {
    const ReadMessage io{.user_bytes = 32,
                         .invalidation = Invalidation::needed,
                         .destination = BufferDescriptor{0x0102030405060708, 0x11121314, 4096}};
    CHECK(io.wire_bytes() == 24);
    CHECK(emitted(io, 24) == hex(io_read_4k));
    // OPEN: usr_len 0x0108, 56 bytes wanted.
    const ReadMessage open{.user_bytes = 264,
                           .invalidation = Invalidation::none,
                           .destination = BufferDescriptor{0, 0, 56}};
    CHECK(emitted(open, 24) == hex("03 00 08 01 00 00 01 00 00*12 38 00 00 00"));
    const ReadMessage flush{.user_bytes = 32};
    CHECK(flush.wire_bytes() == 8);
    CHECK(emitted(flush, 8) == hex("03 00 20 00 00 00 00 00"));
}

TEST_CASE("request: the requests of a kernel client") {
    const auto read = parsed(hex(io_read_4k), at(4128));
    REQUIRE(read);
    CHECK(read->kind == RequestKind::read);
    CHECK(read->data_bytes == 4096);
    CHECK(read->user_bytes == 32);
    CHECK(read->invalidation == Invalidation::needed);
    CHECK(read->destination == BufferDescriptor{0x0102030405060708, 0x11121314, 4096});

    const auto write = parsed(hex("02 00 20 00"), at(4128));
    REQUIRE(write);
    CHECK(write->kind == RequestKind::write);
    CHECK(write->data_bytes == 4096);
    CHECK(write->user_bytes == 32);
    CHECK_FALSE(write->destination);

    const auto flush = parsed(hex("03 00 20 00 00 00 00 00"), at(32));
    REQUIRE(flush);
    CHECK(flush->kind == RequestKind::read);
    CHECK(flush->data_bytes == 0);
    CHECK_FALSE(flush->destination);
    CHECK(flush->invalidation == Invalidation::none);

    const auto info = parsed(hex("03 00 24 00 01 00 01 00 00*12 24 00 00 00"), at(72));
    REQUIRE(info);
    CHECK(info->data_bytes == 36);
    CHECK(info->user_bytes == 36);

    const auto close = parsed(hex("02 00 08 00"), at(8));
    REQUIRE(close);
    CHECK(close->data_bytes == 0);
    CHECK(close->user_bytes == 8);
}

TEST_CASE("request: unknown flags are ignored, a shorter descriptor is allowed") {
    const auto message = parsed(with(hex(io_read_4k), 4, hex("fe ff")), at(4128));
    REQUIRE(message);
    CHECK(message->invalidation == Invalidation::none);
    const auto shorter = parsed(with(hex(io_read_4k), 20, hex("01 00")), at(4128));
    REQUIRE(shorter);
    CHECK(shorter->destination->bytes == 1);
    CHECK(shorter->data_bytes == 4096);
}

TEST_CASE("request: an offset outside of the chunk drops the path") {
    for (const std::uint32_t offset : {chunk_bytes, chunk_bytes + 1, 0x0fffffffu}) {
        CHECK(at(offset).copy_bytes() == 0);
        const auto refusal = refused({}, at(offset));
        CHECK(refusal.why == ParseError::offset_out_of_range);
        CHECK(refusal.answer_errno == 0);
    }
}

TEST_CASE("request: a message that crosses the end of the chunk drops the path") {
    const auto crosses = [](const char* message, std::uint32_t offset) {
        const auto refusal =
            refused(test::first(hex(message), at(offset).copy_bytes()), at(offset));
        return refusal.why == ParseError::message_crosses_chunk_end && refusal.answer_errno == 0;
    };
    CHECK(parsed(hex("02 00 20 00"), at(chunk_bytes - 4)));
    CHECK(crosses("02 00 20 00", chunk_bytes - 3));
    CHECK(crosses("02 00 20 00", chunk_bytes - 1));
    CHECK(parsed(hex("03 00 20 00 00 00 00 00"), at(chunk_bytes - 8)));
    CHECK(crosses("03 00 20 00 00 00 00 00", chunk_bytes - 7));
    CHECK(crosses("03 00 20 00 00 00 00 00", chunk_bytes - 4));
    CHECK(parsed(hex(io_read_4k), at(chunk_bytes - 24)));
    CHECK(crosses(io_read_4k, chunk_bytes - 23));
    CHECK(crosses(io_read_4k, chunk_bytes - 8));
}

TEST_CASE("request: an unknown type drops the path") {
    for (const char* type : {"00 00", "01 00", "04 00", "02 01", "03 01", "ff ff"}) {
        const auto refusal = refused(with(hex(io_read_4k), 0, hex(type)), at(4128));
        CHECK(refusal.why == ParseError::bad_type);
        CHECK(refusal.answer_errno == 0);
    }
}

TEST_CASE("request: a user message that starts before the chunk is answered") {
    CHECK(parsed(hex("02 00 20 00"), at(32)));
    const auto write = refused(hex("02 00 20 00"), at(31));
    CHECK(write.why == ParseError::user_message_before_chunk);
    CHECK(write.answer_errno == EINVAL);
    CHECK_FALSE(write.invalidate);
    const auto read = refused(with(hex(io_read_4k), 2, hex("ff ff")), at(4128));
    CHECK(read.why == ParseError::user_message_before_chunk);
    CHECK(read.answer_errno == EINVAL);
    CHECK(read.invalidate == 0x11121314);
}

TEST_CASE("request: a user message longer than the server copies is answered") {
    const RequestPlace place{.offset = 4096, .chunk_bytes = chunk_bytes, .user_bytes_max = 264};
    CHECK(parsed(hex("02 00 08 01"), place));
    const auto refusal = refused(hex("02 00 09 01"), place);
    CHECK(refusal.why == ParseError::user_message_too_long);
    CHECK(refusal.answer_errno == EMSGSIZE);
}

TEST_CASE("request: more than one descriptor is answered, with the invalidation that it wants") {
    const auto refusal = refused(with(hex(io_read_4k), 6, hex("02 00")), at(4128));
    CHECK(refusal.why == ParseError::too_many_descriptors);
    CHECK(refusal.answer_errno == EINVAL);
    CHECK(refusal.invalidate == 0x11121314);
    CHECK(refused(with(hex(io_read_4k), 4, hex("00 00 00 01")), at(4128)).why ==
          ParseError::too_many_descriptors);
    CHECK_FALSE(refused(with(hex(io_read_4k), 4, hex("00 00 ff ff")), at(4128)).invalidate);
}

TEST_CASE("request: a descriptor that is empty or longer than the data is answered") {
    const auto empty = refused(with(hex(io_read_4k), 20, hex("00*4")), at(4128));
    CHECK(empty.why == ParseError::descriptor_empty);
    CHECK(empty.answer_errno == EINVAL);
    CHECK(empty.invalidate == 0x11121314);
    const auto longer = refused(with(hex(io_read_4k), 20, hex("01 10 00 00")), at(4128));
    CHECK(longer.why == ParseError::descriptor_longer_than_data);
    CHECK(longer.answer_errno == EINVAL);
    CHECK(longer.invalidate == 0x11121314);
    CHECK(refused(with(hex(io_read_4k), 20, hex("ff*4")), at(4128)).why ==
          ParseError::descriptor_longer_than_data);
    // The user message itself is not data.
    CHECK(refused(hex(io_read_4k), at(4127)).why == ParseError::descriptor_longer_than_data);
}

TEST_CASE("request: an invalidation needs a descriptor") {
    const auto refusal = refused(hex("03 00 20 00 01 00 00 00"), at(32));
    CHECK(refusal.why == ParseError::invalidate_without_descriptor);
    CHECK(refusal.answer_errno == EINVAL);
    CHECK_FALSE(refusal.invalidate);
}

TEST_CASE("request: what is emitted is parsed, whatever the values") {
    Random random(2);
    for (int i = 0; i < 20000; ++i) {
        const auto user =
            static_cast<std::uint16_t>(random.below(limits::user_message_bytes_max + 1));
        const auto data = static_cast<std::uint32_t>(random.below(126976));
        const auto place = at(data + user);
        if (random.chance(1, 2)) {
            const auto result = parsed(emitted(WriteMessage{user}, 4), place);
            if (!result || result->data_bytes != data || result->user_bytes != user) FAIL(i);
            continue;
        }
        ReadMessage message{.user_bytes = user};
        if (data > 0 && random.chance(3, 4)) {
            message.destination =
                BufferDescriptor{random.next(), static_cast<std::uint32_t>(random.next()),
                                 static_cast<std::uint32_t>(1 + random.below(data))};
            if (random.chance(1, 2)) message.invalidation = Invalidation::needed;
        }
        const auto result = parsed(emitted(message, message.wire_bytes()), place);
        if (!result || result->data_bytes != data || result->user_bytes != user ||
            result->destination != message.destination ||
            result->invalidation != message.invalidation) {
            FAIL(i);
        }
    }
}

TEST_CASE("key response: bytes, both ways") {
    const KeyResponseMessage message{.permit = 0x0102, .key = 0x11121314};
    CHECK(emitted(message, 8) == hex("04 00 02 01 14 13 12 11"));
    for (const char* bytes : {"04 00 02 01 14 13 12 11", "04 00 02 01 14 13 12 11 ff"}) {
        KeyResponseMessage parsed;
        CHECK(!KeyResponseMessage::parse(hex(bytes), 512, parsed));
        CHECK(parsed == message);
    }
}

TEST_CASE("key response: refused") {
    const auto error = [](const char* bytes, std::uint32_t depth) {
        KeyResponseMessage parsed;
        return KeyResponseMessage::parse(hex(bytes), depth, parsed);
    };
    CHECK(error("", 512) == ParseError::too_short);
    CHECK(error("04 00 00 00 01 00 00", 512) == ParseError::too_short);
    CHECK(error("03 00 00 00 01 00 00 00", 512) == ParseError::bad_type);
    CHECK(error("04 01 00 00 01 00 00 00", 512) == ParseError::bad_type);
    CHECK(error("04 00 00 02 01 00 00 00", 512) == ParseError::permit_out_of_range);
    CHECK(!error("04 00 ff 01 01 00 00 00", 512));
}

TEST_CASE("parse error: each has a text of its own") {
    std::vector<std::string> texts;
    for (int i = 1; i <= static_cast<int>(ParseError::invalidate_without_descriptor); ++i) {
        texts.emplace_back(text(static_cast<ParseError>(i)));
        CHECK(texts.back() != text(static_cast<ParseError>(255)));
    }
    std::sort(texts.begin(), texts.end());
    CHECK(std::adjacent_find(texts.begin(), texts.end()) == texts.end());
}

TEST_CASE("request: the sequence of the failover extension follows the message") {
    RequestPlace place = at(4096 + 32);
    place.sequenced = true;
    CHECK(place.copy_bytes() == 32);
    const auto sequence = std::string(" 08 07 06 05 04 03 02 01");
    const auto write = parsed(hex("02 00 20 00" + sequence), place);
    REQUIRE(write);
    CHECK(write->sequence == 0x0102030405060708);
    CHECK(write->data_bytes == 4096);
    const auto read = parsed(hex(io_read_4k + sequence), place);
    REQUIRE(read);
    CHECK(read->sequence == 0x0102030405060708);
    const auto flush = parsed(hex("03 00 20 00 00 00 00 00" + sequence), place);
    REQUIRE(flush);
    CHECK(flush->sequence == 0x0102030405060708);
    std::byte emitted_bytes[sequence_bytes];
    emit_sequence(0x0102030405060708, emitted_bytes);
    CHECK(std::ranges::equal(emitted_bytes, hex("08 07 06 05 04 03 02 01")));

    SECTION("not without the extension") {
        const auto plain = parsed(hex("02 00 20 00" + sequence), at(4096 + 32));
        REQUIRE(plain);
        CHECK(plain->sequence == 0);
    }
    SECTION("a fence is a write of nothing") {
        RequestPlace start = at(0);
        start.sequenced = true;
        const auto fence = parsed(hex("02 00 00 00" + sequence), start);
        REQUIRE(fence);
        CHECK(fence->data_bytes == 0);
        CHECK(fence->user_bytes == 0);
    }
    SECTION("0 is none") {
        const auto refusal = refused(hex("02 00 20 00 00*8"), place);
        CHECK(refusal.why == ParseError::sequence_zero);
        CHECK(refusal.answer_errno == 0);
    }
    SECTION("it must end in the chunk") {
        RequestPlace end = at(chunk_bytes - 11);
        end.sequenced = true;
        CHECK(refused(hex("02 00 20 00"), end).why == ParseError::message_crosses_chunk_end);
        end.offset = chunk_bytes - 12;
        CHECK(parsed(hex("02 00 20 00" + sequence), end));
    }
}
