#include "rtrs/wire/immediate.h"

#include <catch2/catch.hpp>
#include <cerrno>

#include "rtrs/base/random.h"

using namespace rtrs;

namespace {

Immediate decoded(const ImmediateCodec& codec, std::uint32_t value) {
    const auto result = codec.decode(value);
    REQUIRE(result);
    return *result;
}

}  // namespace

TEST_CASE("immediate: values seen between kernels, both ways") {
    const ImmediateCodec codec(512);
    CHECK(codec.request(1, 4128) == 0x00081020);
    CHECK(codec.request(0, 320) == 0x00000140);
    CHECK(codec.request(0, 72) == 0x00000048);
    CHECK(codec.request(0, 4128) == 0x00001020);
    CHECK(codec.request(0, 8) == 0x00000008);
    CHECK(codec.response_invalidated(0, 0) == 0x20000000);
    CHECK(codec.response_invalidated(1, 0) == 0x20000001);
    CHECK(codec.response_invalidated(0, ENOENT) == 0x20100000);
    CHECK(codec.response(0, 0) == 0x10000000);
    CHECK(codec.response(9, ENOTCONN) == 0x13580009);
    CHECK(codec.heartbeat() == 0x80000000);
    CHECK(codec.heartbeat_ack() == 0x90000000);

    CHECK(decoded(codec, 0x00081020) ==
          Immediate{.type = ImmediateType::request, .permit = 1, .offset = 4128});
    CHECK(decoded(codec, 0x20000001) ==
          Immediate{.type = ImmediateType::response_invalidated, .permit = 1});
    CHECK(decoded(codec, 0x20100000) ==
          Immediate{.type = ImmediateType::response_invalidated, .error = ENOENT});
    CHECK(decoded(codec, 0x13580009) ==
          Immediate{.type = ImmediateType::response, .permit = 9, .error = ENOTCONN});
    CHECK(decoded(codec, 0x80000000) == Immediate{.type = ImmediateType::heartbeat});
    CHECK(decoded(codec, 0x90000000) == Immediate{.type = ImmediateType::heartbeat_ack});
}

TEST_CASE("immediate: the offset's width follows the queue depth") {
    const std::pair<std::uint32_t, unsigned> widths[] = {
        {1, 28},   {2, 27},   {3, 26},   {4, 26},    {5, 25},     {64, 22},    {65, 21},
        {128, 21}, {512, 19}, {513, 18}, {1025, 17}, {32768, 13}, {65535, 12},
    };
    for (const auto& [depth, bits] : widths) {
        CAPTURE(depth);
        const ImmediateCodec codec(depth);
        CHECK(codec.offset_bits() == bits);
        CHECK(codec.offset_max() == (1u << bits) - 1);
        const std::uint32_t last = codec.request(depth - 1, codec.offset_max());
        CHECK(last >> 28 == 0);
        CHECK(decoded(codec, last) == Immediate{.type = ImmediateType::request,
                                                .permit = depth - 1,
                                                .offset = codec.offset_max()});
    }
    CHECK(ImmediateCodec(1).request(0, 0x0abcdef1) == 0x0abcdef1);
}

TEST_CASE("immediate: a permit beyond the queue depth is refused") {
    const ImmediateCodec codec(3);
    CHECK(codec.decode(3u << 26).error() == ParseError::permit_out_of_range);
    CHECK(codec.decode(2u << 26));
    CHECK(codec.decode(0x10000003).error() == ParseError::permit_out_of_range);
    CHECK(codec.decode(0x20000003).error() == ParseError::permit_out_of_range);
    CHECK(codec.decode(0x1007ffff).error() == ParseError::permit_out_of_range);
}

TEST_CASE("immediate: unknown types are told apart from bad permits") {
    const ImmediateCodec codec(512);
    for (const std::uint32_t type : {3u, 4u, 5u, 6u, 7u, 10u, 11u, 12u, 13u, 14u, 15u}) {
        CHECK(codec.decode(type << 28).error() == ParseError::immediate_type_unknown);
        CHECK(codec.decode(type << 28 | 0x0fffffff).error() == ParseError::immediate_type_unknown);
    }
}

TEST_CASE("immediate: the payload of a heartbeat is ignored") {
    const ImmediateCodec codec(512);
    CHECK(decoded(codec, 0x8fffffff) == Immediate{.type = ImmediateType::heartbeat});
    CHECK(decoded(codec, 0x90000001) == Immediate{.type = ImmediateType::heartbeat_ack});
}

TEST_CASE("immediate: an errno that does not fit never becomes success") {
    const ImmediateCodec codec(512);
    CHECK(decoded(codec, codec.response(3, 511)).error == 511);
    CHECK(decoded(codec, codec.response(3, 512)).error == EIO);
    CHECK(decoded(codec, codec.response(3, 1024)).error == EIO);
}

TEST_CASE("immediate: what is encoded is decoded, whatever the values") {
    Random random(1);
    for (int i = 0; i < 100000; ++i) {
        const auto depth = static_cast<std::uint32_t>(1 + random.below(65535));
        const ImmediateCodec codec(depth);
        const auto permit = static_cast<std::uint32_t>(random.below(depth));
        const auto offset = static_cast<std::uint32_t>(random.below(codec.offset_max() + 1ull));
        const auto error = static_cast<int>(random.below(512));
        const bool same =
            *codec.decode(codec.request(permit, offset)) ==
                Immediate{.type = ImmediateType::request, .permit = permit, .offset = offset} &&
            *codec.decode(codec.response(permit, error)) ==
                Immediate{.type = ImmediateType::response, .permit = permit, .error = error} &&
            codec.decode(codec.response_invalidated(permit, error))->type ==
                ImmediateType::response_invalidated;
        if (!same) FAIL("depth " << depth << " permit " << permit << " offset " << offset);
    }
}
