// What only a storage in memory does.
#include <array>

#include "tests/contract/storage/support.h"

using namespace rnbd;
using namespace rnbd::testing;

// The loop has others to serve.
TEST_CASE("memory storage: a long range is emptied while other requests go on") {
    constexpr std::uint64_t bytes = 128u << 20;
    const BlockOperation operation =
        GENERATE(BlockOperation::discard, BlockOperation::write_zeroes);
    const bool no_unmap = GENERATE(false, true);
    Bench bench;
    REQUIRE(!bench.open({.kind = StorageOptions::Kind::memory,
                         .path = {},
                         .size_bytes = bytes,
                         .logical_block_bytes = 512}));
    Pages pages(1u << 20);
    pages.fill(0x5a);
    for (std::uint64_t at = 0; at < bytes; at += 1u << 20) {
        REQUIRE(bench.write(at, pages.bytes()) == 0);
    }
    // Neither ends with a page; both are long.
    std::array<TestRequest, 2> long_ones;
    for (std::size_t i = 0; i < 2; ++i) {
        long_ones[i].operation = operation;
        long_ones[i].no_unmap = no_unmap;
        long_ones[i].offset = i * bytes / 2 + 512;
        long_ones[i].bytes = bytes / 2 - 1024;
        bench.submit(long_ones[i]);
    }
    TestRequest read;
    read.operation = BlockOperation::read;
    read.offset = bytes / 2 - 512;
    read.bytes = 1024;
    read.data = pages.bytes().first(1024);
    bench.submit(read);
    bench.finish(read);
    CHECK(pages.all(0x5a, 0, 1024));
    CHECK(!long_ones[0].finished);
    CHECK(!long_ones[1].finished);
    for (TestRequest& one : long_ones) {
        bench.finish(one);
        CHECK(!one.error);
    }
    for (std::uint64_t at = 0; at < bytes; at += 1u << 20) {
        REQUIRE(bench.read(at, pages.bytes()) == 0);
        const bool begins = at % (bytes / 2) == 0, ends = (at + (1u << 20)) % (bytes / 2) == 0;
        const std::size_t from = begins ? 512 : 0, to = (1u << 20) - (ends ? 512 : 0);
        REQUIRE(pages.all(0x5a, 0, from));
        REQUIRE(pages.all(0, from, to - from));
        REQUIRE(pages.all(0x5a, to, (1u << 20) - to));
    }
}

TEST_CASE("memory storage: a size that no address space has is refused with what is possible") {
    Bench bench;
    StorageOptions options{.kind = StorageOptions::Kind::memory,
                           .path = {},
                           .size_bytes = 1u << 20,
                           .logical_block_bytes = 512};
    REQUIRE(!bench.open(options));
    for (const std::uint64_t bytes : {1ull << 62, 1ull << 48}) {
        const auto refused = bench.storage->resize(bytes);
        REQUIRE(!refused);
        CHECK(refused.error().code == std::errc::not_enough_memory);
        CHECK(refused.error().text.find("below 128 TiB") != std::string::npos);
        CHECK(bench.storage->geometry().size_bytes == 1u << 20);
    }
    Pages pages(4096);
    CHECK(bench.read((1u << 20) - 4096, pages.bytes()) == 0);
    bench.close();
    options.size_bytes = 1ull << 62;
    CHECK(bench.open(options) == std::errc::not_enough_memory);
    CHECK(bench.last_text.find("below 128 TiB") != std::string::npos);
}
