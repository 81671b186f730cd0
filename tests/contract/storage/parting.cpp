// The last flush of a storage that is gone.
#include <chrono>

#include "rtrs/base/detached_call.h"
#include "tests/contract/storage/support.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

using namespace std::chrono_literals;

}  // namespace

TEST_CASE("parting: the flush of a file outlives its storage, and keeps nothing open") {
    TemporaryFolder folder;
    const StorageOptions options{.path = folder.file("image"), .size_bytes = 1u << 20};
    Bench bench;
    REQUIRE(!bench.open(options));
    Pages pages(4096);
    pages.fill(0x11);
    REQUIRE(bench.write(0, pages.bytes()) == 0);
    auto aside = bench.storage->flush_aside();
    REQUIRE(aside);
    bench.close();
    auto flush = rtrs::DetachedCall<std::error_code>::start(std::move(aside), "rnbd-parting");
    REQUIRE(flush);
    REQUIRE(flush->wait_for(10s));
    CHECK(!flush->result());
    // It is not locked by it.
    CHECK(!bench.open(options));
}

TEST_CASE("parting: who only reads, and what has no file, has nothing to flush") {
    TemporaryFolder folder;
    StorageOptions options{.path = folder.file("image"), .size_bytes = 1u << 20};
    Bench bench;
    REQUIRE(!bench.open(options));
    bench.close();
    options.use = StorageOptions::Use::read_only;
    options.size_bytes.reset();
    REQUIRE(!bench.open(options));
    CHECK(!bench.storage->flush_aside());
    bench.close();
    REQUIRE(!bench.open({.kind = StorageOptions::Kind::memory, .size_bytes = 1u << 20}));
    CHECK(!bench.storage->flush_aside());
}
