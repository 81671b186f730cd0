// The last flush of a storage that is gone.
#include <chrono>
#include <future>
#include <thread>

#include "rnbd-server/storage/parting_flush.h"
#include "rtrs/base/error.h"
#include "tests/contract/storage/support.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

using namespace std::chrono_literals;

// Generous: a test that fails takes so long.
void wait_for(const PartingFlush& flush) {
    for (int i = 0; i < 2000 && !flush.is_over(); ++i) std::this_thread::sleep_for(5ms);
    REQUIRE(flush.is_over());
}

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
    PartingFlush flush(std::move(aside));
    wait_for(flush);
    CHECK(!flush.error());
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

TEST_CASE("parting: an error is told, and one that is not answered is left alone") {
    PartingFlush failing([] { return rtrs::from_errno(EIO); });
    wait_for(failing);
    CHECK(failing.error() == std::errc::io_error);

    std::promise<void> answer;
    std::promise<void> ended;
    {
        const PartingFlush silent([&] {
            answer.get_future().wait();
            ended.set_value();
            return std::error_code{};
        });
        CHECK(!silent.is_over());
    }
    answer.set_value();
    ended.get_future().wait();
}
