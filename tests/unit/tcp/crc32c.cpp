#include "rtrs/fabric/tcp/crc32c.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "rtrs/base/random.h"
#include "rtrs/fabric/tcp/crc32c_x86.h"
#include "tests/skip.h"

using namespace rtrs;
using tcp::Crc32c;
using tcp::crc32c;

namespace {

// The definition, bit by bit.
std::uint32_t plain(Bytes bytes) {
    std::uint32_t state = ~0u;
    for (const std::byte byte : bytes) {
        state ^= std::to_integer<std::uint8_t>(byte);
        for (int i = 0; i < 8; ++i) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78 : 0);
    }
    return ~state;
}

std::vector<std::byte> noise(Random& random, std::size_t bytes) {
    std::vector<std::byte> result(bytes);
    for (std::byte& b : result) b = static_cast<std::byte>(random.next());
    return result;
}

}  // namespace

TEST_CASE("crc32c: golden vectors") {
    const auto text = [](std::string_view s) { return crc32c(std::as_bytes(std::span(s))); };
    CHECK(text("123456789") == 0xe3069283);
    CHECK(text("") == 0);
    // RFC 3720 B.4.
    std::vector<std::byte> bytes(32);
    CHECK(crc32c(bytes) == 0x8a9136aa);
    std::ranges::fill(bytes, std::byte{0xff});
    CHECK(crc32c(bytes) == 0x62a8ab43);
    for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
    CHECK(crc32c(bytes) == 0x46dd794e);
}

TEST_CASE("crc32c: every length and alignment agrees with the definition") {
    Random random(1);
    const auto bytes = noise(random, 10000);
    for (std::size_t length = 0; length < 1300; ++length) {
        const Bytes piece = Bytes(bytes).subspan(length % 9, length);
        REQUIRE(crc32c(piece) == plain(piece));
    }
    for (const std::size_t length : {4079u, 4080u, 4081u, 4096u, 4156u, 8160u, 9991u}) {
        const Bytes piece = Bytes(bytes).subspan(length % 9, length);
        REQUIRE(crc32c(piece) == plain(piece));
    }
}

TEST_CASE("crc32c: pieces in order give the value of the whole") {
    Random random(2);
    const auto bytes = noise(random, 20000);
    for (int round = 0; round < 200; ++round) {
        Crc32c crc;
        Bytes rest = bytes;
        while (!rest.empty()) {
            const std::size_t part = std::min<std::size_t>(rest.size(), random.below(6000));
            crc.add(rest.first(part));
            rest = rest.subspan(part);
        }
        REQUIRE(crc.value() == crc32c(bytes));
    }
}

TEST_CASE("crc32c: what is added with a copy is copied whole, and nothing beside it") {
    Random random(4);
    const auto bytes = noise(random, 140000);
    constexpr std::byte untouched{0x5a};
    for (int round = 0; round < 3000; ++round) {
        const std::size_t most = round < 2900 ? 6000 : 131072;
        const Bytes piece = Bytes(bytes).subspan(random.below(70), random.below(most));
        const std::size_t before = random.below(70);
        std::vector<std::byte> to(before + piece.size() + 64, untouched);
        Crc32c crc;
        crc.add(Bytes(bytes).last(random.below(9)));
        Crc32c wanted = crc;
        crc.add_copied(to.data() + before, piece);
        wanted.add(piece);
        REQUIRE(crc.value() == wanted.value());
        const Bytes all(to);
        REQUIRE(std::ranges::equal(all.subspan(before, piece.size()), piece));
        const auto is_untouched = [&](std::byte b) { return b == untouched; };
        REQUIRE(std::ranges::all_of(all.first(before), is_untouched));
        REQUIRE(std::ranges::all_of(all.last(64), is_untouched));
    }
}

#if defined(__x86_64__)
TEST_CASE("crc32c: each way of x86 agrees with the definition, from any state") {
    Random random(3);
    const auto bytes = noise(random, 140000);
    const auto check = [&](tcp::ContinueCrc32c proceed) {
        for (std::size_t length = 0; length < 9000; length += 1 + random.below(9)) {
            const Bytes before = Bytes(bytes).first(length % 13);
            const Bytes piece = Bytes(bytes).subspan(length % 13, length);
            const std::uint32_t state = proceed(~plain(before), piece.data(), piece.size());
            REQUIRE(~state == plain(Bytes(bytes).first(before.size() + length)));
        }
        for (const std::size_t length : {16167u, 16168u, 16169u, 17192u, 32336u, 131072u + 777}) {
            const Bytes large = Bytes(bytes).subspan(5, length);
            REQUIRE(~proceed(~0u, large.data(), large.size()) == plain(large));
        }
    };
    if (tcp::x86::has_lanes()) check(tcp::x86::continue_by_lanes);
    if (tcp::x86::has_folds()) {
        check(tcp::x86::continue_by_folds);
        check(tcp::x86::continue_by_folds_and_lanes);
    }
    if (!tcp::x86::has_folds()) rnbd::testing::skip_part("no AVX-512: without wide registers");
}
#endif
