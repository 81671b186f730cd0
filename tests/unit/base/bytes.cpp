#include "rtrs/base/bytes.h"

#include <array>
#include <catch2/catch.hpp>

using namespace rtrs;

namespace {
constexpr std::array<std::byte, 9> bytes{std::byte{0xff}, std::byte{0x01}, std::byte{0x23},
                                         std::byte{0x45}, std::byte{0x67}, std::byte{0x89},
                                         std::byte{0xab}, std::byte{0xcd}, std::byte{0xef}};
}

TEST_CASE("bytes: loads from unaligned places in both orders") {
    const std::byte* p = bytes.data() + 1;
    REQUIRE(load_u8(p) == 0x01);
    REQUIRE(load_be16(p) == 0x0123);
    REQUIRE(load_le16(p) == 0x2301);
    REQUIRE(load_be32(p) == 0x01234567);
    REQUIRE(load_le32(p) == 0x67452301);
    REQUIRE(load_be64(p) == 0x0123456789abcdef);
    REQUIRE(load_le64(p) == 0xefcdab8967452301);
}

TEST_CASE("bytes: stores put the same bytes that loads read, and none beside them") {
    std::array<std::byte, 10> target;
    auto check = [&](auto store, auto value, std::size_t size, bool big) {
        target.fill(std::byte{0xff});
        store(target.data() + 1, value);
        REQUIRE(target[0] == std::byte{0xff});
        REQUIRE(target[1 + size] == std::byte{0xff});
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t shift = 8 * (big ? size - 1 - i : i);
            REQUIRE(target[1 + i] == static_cast<std::byte>(std::uint64_t{value} >> shift));
        }
    };
    check(store_u8, std::uint8_t{0x12}, 1, false);
    check(store_le16, std::uint16_t{0x1234}, 2, false);
    check(store_be16, std::uint16_t{0x1234}, 2, true);
    check(store_le32, std::uint32_t{0x12345678}, 4, false);
    check(store_be32, std::uint32_t{0x12345678}, 4, true);
    check(store_le64, std::uint64_t{0x123456789abcdef0}, 8, false);
    check(store_be64, std::uint64_t{0x123456789abcdef0}, 8, true);
}
