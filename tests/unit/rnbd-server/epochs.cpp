// Which epoch is shown after which end of a server.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "rnbd-server/state/cache_life.h"
#include "rnbd-server/state/epoch_file.h"
#include "rnbd-server/storage/cache_epoch.h"
#include "tests/contract/storage/support.h"
#include "tests/unit/rnbd-server/said.h"

using namespace rnbd;
using namespace rnbd::testing;
using namespace std::chrono_literals;

namespace {

// A file with a loop of its own; what it begins is over when it returns.
class File {
  public:
    explicit File(std::string path, std::chrono::milliseconds loss_timeout = 30s)
        : epochs(*reactor, std::move(path), loss_timeout) {}

    std::uint64_t opened(const std::string& medium, std::uint64_t storage_epoch) {
        const auto ticket = epochs.opens(medium, storage_epoch);
        wait(ticket);
        return epochs.opened(medium, storage_epoch, ticket);
    }
    void lost(const std::string& medium) { epochs.lost(medium); }
    std::error_code load() { return epochs.load(); }
    std::error_code begin() { return epochs.begin(); }
    std::error_code save() { return epochs.save(); }
    void flushed(const std::string& medium) { epochs.flushed(medium); }
    void wait(EpochFile::Ticket ticket) {
        for (int i = 0; i < 2000 && !epochs.is_over(ticket); ++i) {
            reactor->run_once(std::chrono::milliseconds(5));
        }
        REQUIRE(epochs.is_over(ticket));
    }

    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
    EpochFile epochs;
};

enum class End : std::uint8_t { killed, flushed, in_order_but_not_flushed };

// One life of a server with two exports; what the first one shows.
std::uint64_t life(const std::string& path, std::uint64_t storage_epoch, End end) {
    File file(path);
    REQUIRE(!file.load());
    const std::uint64_t shown = file.opened("vol1", storage_epoch);
    file.opened("vol2", storage_epoch + 1000);
    REQUIRE(!file.begin());
    if (end == End::killed) return shown;
    if (end == End::flushed) file.flushed("vol1");
    file.flushed("vol2");
    REQUIRE(!file.save());
    return shown;
}

}  // namespace

TEST_CASE("epochs: numbers") {
    CHECK(machine_epoch() > epoch_without_cache);
    CHECK(machine_epoch() == machine_epoch());
    CHECK(mix_epoch(5, 6) > epoch_without_cache);
    CHECK(mix_epoch(5, 6) != mix_epoch(5, 7));
    CHECK(mix_epoch(5, 6) != mix_epoch(6, 6));
    CHECK(mix_epoch(0, 6) == 0);
}

TEST_CASE("epochs: a machine that was restarted in order shows what it showed") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::killed) == 100);
    CHECK(life(path, 100, End::flushed) == 100);
    CHECK(life(path, 200, End::killed) == 100);  // another boot
    CHECK(life(path, 200, End::flushed) == 100);
    CHECK(life(path, 200, End::flushed) == 100);
    CHECK(life(path, 300, End::flushed) == 100);
    SECTION("and one that crashed does not") {
        CHECK(life(path, 300, End::killed) == 100);
        CHECK(life(path, 400, End::killed) == 400);
        CHECK(life(path, 400, End::killed) == 400);
    }
    SECTION("nor one whose export was opened later") {
        File file(path);
        REQUIRE(!file.load());
        REQUIRE(!file.begin());
        CHECK(file.opened("vol1", 300) == 100);
        CHECK(life(path, 400, End::killed) == 400);
    }
    SECTION("unless it had opened nothing") {
        File file(path);
        REQUIRE(!file.load());
        const bool begins = GENERATE(false, true);
        if (begins) REQUIRE(!file.begin());
        CHECK(life(path, 400, End::killed) == 100);
    }
    SECTION("but one whose export was found, but never to be written to") {
        File file(path);
        REQUIRE(!file.load());
        REQUIRE(!file.begin());
        file.wait(file.epochs.opens("vol1", 300));
        file.epochs.was_not_opened("vol1");
        REQUIRE(!file.save());
        CHECK(life(path, 400, End::killed) == 100);
    }
    SECTION("one that was not waited for, whatever becomes of the file") {
        File file(path);
        REQUIRE(!file.load());
        REQUIRE(!file.begin());
        const auto ticket = file.epochs.opens("vol1", 300);
        REQUIRE(!file.epochs.is_over(ticket));
        const std::uint64_t shown = file.epochs.opened("vol1", 300, ticket);
        CHECK(shown != 100);
        CHECK(shown != 300);
        file.wait(ticket);
        const bool is_killed = GENERATE(false, true);
        if (!is_killed) REQUIRE(!file.save());
        CHECK(life(path, is_killed ? 300 : 400, End::killed) != shown);
    }
    SECTION("a start that cannot be noted is not hidden") {
        File file(path);
        REQUIRE(!file.load());
        const bool early = GENERATE(false, true);
        if (early) CHECK(file.opened("vol1", 300) == 100);
        if (!early) REQUIRE(!file.begin());
        // Where the new file would be there is a folder.
        REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);
        if (early) CHECK(file.begin());
        if (early) return;
        const std::uint64_t shown = file.opened("vol1", 300);
        CHECK(shown != 100);
        CHECK(shown != 300);
        // One life long.
        CHECK(file.opened("vol1", 300) == shown);
        CHECK(file.opened("vol1", 301) != 301);
        CHECK(file.opened("vol1", 300) == shown);
    }
    SECTION("an end without its last flush is a crash") {
        CHECK(life(path, 300, End::in_order_but_not_flushed) == 100);
        CHECK(life(path, 300, End::in_order_but_not_flushed) == 100);  // same boot: nothing lost
        CHECK(life(path, 400, End::killed) == 400);
    }
}

TEST_CASE("epochs: an export that could not be opened meanwhile is still flushed") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    {
        File file(path);
        REQUIRE(!file.load());
        REQUIRE(!file.save());
    }
    CHECK(life(path, 200, End::killed) == 100);
}

TEST_CASE("epochs: once writes were lost the next server shows another one, and keeps to it") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    const auto end = GENERATE(End::killed, End::flushed, End::in_order_but_not_flushed);
    {
        File file(path);
        REQUIRE(!file.load());
        CHECK(file.opened("vol1", 100) == 100);
        file.lost("vol1");
        // Whatever becomes of this one now.
        File at_once(path);
        REQUIRE(!at_once.load());
        CHECK(at_once.opened("vol1", 100) != 100);
        if (end == End::flushed) file.flushed("vol1");
        if (end != End::killed) REQUIRE(!file.save());
    }
    SECTION("in the same boot") {
        const std::uint64_t shown = life(path, 100, End::killed);
        CHECK(shown != 100);
        CHECK(life(path, 100, End::killed) == shown);
        CHECK(life(path, 100, End::flushed) == shown);
        CHECK(life(path, 200, End::killed) == shown);
        CHECK(life(path, 300, End::killed) == 300);
    }
    SECTION("in another") {
        const std::uint64_t shown = life(path, 200, End::killed);
        CHECK(shown != 100);
        CHECK(life(path, 200, End::killed) == shown);
    }
    SECTION("and if it is opened anew by the same") {
        File file(path);
        REQUIRE(!file.load());
        const std::uint64_t shown = file.opened("vol1", 100);
        file.lost("vol1");
        CHECK(file.opened("vol1", 100) != shown);
    }
}

TEST_CASE(
    "epochs: a loss that the disk does not take at once keeps nobody waiting, and is not "
    "forgotten") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    {
        File file(path, 10ms);
        REQUIRE(!file.load());
        CHECK(file.opened("vol1", 100) == 100);
        CHECK(file.opened("vol2", 1100) == 1100);
        // A pipe that nobody reads: whoever opens it waits.
        const std::string pipe = path + ".new";
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        const std::string text = said([&] { file.lost("vol1"); });
        CHECK(lines_with(text, path + ": takes long to write") == 1);
        CHECK(lines_with(text, "timed out") == 0);
        file.lost("vol2");
        const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        REQUIRE(::unlink(pipe.c_str()) == 0);
        CHECK(!file.save());
        ::close(reader);
    }
    File next(path);
    REQUIRE(!next.load());
    CHECK(next.opened("vol1", 100) != 100);
    CHECK(next.opened("vol2", 1100) != 1100);
}

TEST_CASE("epochs: one opening that cannot be noted is no reason to forget the others") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    std::uint64_t second_shown = 0;
    const bool can_be_noted = GENERATE(false, true);
    {
        File file(path);
        REQUIRE(!file.load());
        CHECK(file.opened("vol1", 100) == 100);
        REQUIRE(!file.begin());
        // Where the new file would be there is a folder, for a moment.
        REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);
        second_shown = file.opened("vol2", 1100);
        CHECK(second_shown != 1100);
        if (!can_be_noted) file.lost("vol1");
        REQUIRE(::rmdir((path + ".new").c_str()) == 0);
        if (can_be_noted) file.lost("vol1");
        // In order, but for what was lost.
        file.flushed("vol2");
        CHECK(!file.save());
    }
    File next(path);
    REQUIRE(!next.load());
    CHECK(next.opened("vol1", 100) != 100);
    CHECK(next.opened("vol2", 1100) == second_shown);
}

TEST_CASE("epochs: what is noted of a medium stays when it is not exported any more") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    {
        File file(path);
        REQUIRE(!file.load());
        REQUIRE(!file.begin());
        {
            const auto exported = file.epochs.hold("medium");
            CHECK(file.opened("medium", 100) == 100);
            file.lost("medium");
        }
        file.epochs.hold("never opened");
        CHECK(file.opened("other", 100) == 100);
    }
    File file(path);
    REQUIRE(!file.load());
    const auto exported = file.epochs.hold("medium");
    CHECK(file.opened("medium", 100) != 100);
}

TEST_CASE("epochs: storages without a cache, and servers without a file") {
    TemporaryFolder folder;
    File file(folder.file("epochs"));
    REQUIRE(!file.load());
    CHECK(file.opened("null", epoch_without_cache) == epoch_without_cache);
    CHECK(file.opened("unknown", 0) == 0);
    File none("");
    REQUIRE(!none.load());
    CHECK(none.opened("vol1", 7) == 7);
    none.flushed("vol1");
    none.lost("vol1");
    CHECK(!none.save());
}

// It may have said that writes were lost.
TEST_CASE("epochs: a file that was damaged is not believed, and is replaced") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    const char* content =
        GENERATE("", "something\nvol1 64 64 flushed\n", "rnbd-server epochs 1\nvol1\n",
                 "rnbd-server epochs 1\nvol1 64 64 flushed\n\n",
                 "rnbd-server epochs 1\nvol1 x y flushed\n", "rnbd-server epochs 1\nvol1 64 64 l");
    std::ofstream(path) << content;
    {
        File file(path);
        CHECK(file.load() == rtrs::from_errno(EBADMSG));
        const std::uint64_t shown = file.opened("vol1", 100);
        CHECK(shown > epoch_without_cache);
        CHECK(shown != 100);
    }
    CHECK(life(path, 100, End::flushed) == 100);
    CHECK(life(path, 200, End::killed) == 100);
}

TEST_CASE("epochs: a file that cannot be read is not believed, and not replaced") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    {
        File file(path);
        REQUIRE(!file.load());
        CHECK(file.opened("vol1", 100) == 100);
        file.lost("vol1");
    }
    REQUIRE(::chmod(folder.file(".").c_str(), 0777) == 0);
    REQUIRE(::chmod(path.c_str(), 0) == 0);
    {
        const WithoutRootsRights plain;
        File file(path);
        CHECK(file.load() == std::errc::permission_denied);
        CHECK(file.opened("vol1", 100) != 100);
        CHECK(!file.save());
    }
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    CHECK(life(path, 100, End::killed) != 100);  // the loss is told, still
    // It loops.
    const std::string loop = folder.file("loop");
    REQUIRE(::symlink("loop", loop.c_str()) == 0);
    CHECK(File(loop).load() == std::errc::too_many_symbolic_link_levels);
}

TEST_CASE("epochs: a file that cannot be rewritten is not believed, and no epoch comes twice") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    // Where the new file would be there is a folder.
    REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);
    File first(path);
    CHECK(first.load());
    const std::uint64_t shown = first.opened("vol1", 100);
    CHECK(shown != 100);
    // One life long, as any other: opened again it has lost nothing, unless writes were lost.
    first.flushed("vol1");
    CHECK(first.opened("vol1", 100) == shown);
    first.lost("vol1");
    const std::uint64_t after_loss = first.opened("vol1", 100);
    CHECK(after_loss != shown);
    CHECK(first.opened("vol1", 100) == after_loss);
    File second(path);
    CHECK(second.load());
    CHECK(second.opened("vol1", 100) != shown);
    CHECK(!second.save());
}

TEST_CASE("epochs: what the next server shows after the life of a cache") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    // The first server sees the boot 100, the one after it the boot 200.
    const auto shown_after = [&](const std::function<void(CacheLife&)>& ends) {
        {
            File file(path);
            REQUIRE(!file.load());
            REQUIRE(!file.begin());
            CacheLife cache(file.epochs);
            cache.begins("vol1", 100, rtrs::Instant(5s));
            CHECK(cache.noted_by() == rtrs::Instant(5s) + CacheLife::file_wait_max);
            for (int i = 0; i < 2000 && !cache.is_noted(); ++i) {
                file.reactor->run_once(std::chrono::milliseconds(5));
            }
            REQUIRE(cache.is_noted());
            cache.opened();
            CHECK(cache.epoch() == 100);
            ends(cache);
            REQUIRE(!file.save());
        }
        File next(path);
        REQUIRE(!next.load());
        REQUIRE(!next.begin());
        return next.opened("vol1", 200);
    };
    SECTION("nothing is said: a crash") {
        CHECK(shown_after([](CacheLife&) {}) == 200);
    }
    SECTION("flushed") {
        CHECK(shown_after([](CacheLife& cache) { cache.flushed(); }) == 100);
    }
    SECTION("flushed, but a sync had failed") {
        CHECK(shown_after([](CacheLife& cache) {
                  cache.sync_has_failed();
                  cache.flushed();
              }) == 200);
    }
    SECTION("a sync had failed, but the loss was told by another epoch since") {
        CHECK(shown_after([](CacheLife& cache) {
                  cache.sync_has_failed();
                  cache.is_another(101);
                  CHECK(cache.epoch() == 101);
                  cache.flushed();
              }) == 101);
    }
    SECTION("left by a flush that failed, or after a sync that did") {
        const bool sync_failed = GENERATE(false, true);
        const std::uint64_t shown = shown_after([&](CacheLife& cache) {
            if (sync_failed) cache.sync_has_failed();
            cache.left(!sync_failed);
        });
        CHECK(shown != 100);
        CHECK(shown != 200);
    }
    SECTION("left in order is no more than a crash") {
        CHECK(shown_after([](CacheLife& cache) { cache.left(false); }) == 200);
    }
}

TEST_CASE("epochs: a cache that the file does not keep is shown as it is") {
    TemporaryFolder folder;
    File file(folder.file("epochs"));
    REQUIRE(!file.begin());
    CacheLife cache(file.epochs);
    cache.begins(7);
    CHECK(cache.is_noted());
    cache.opened();
    CHECK(cache.epoch() == 7);
    cache.is_another(8);
    CHECK(cache.epoch() == 8);
    cache.was_not_opened();
    cache.flushed();
    cache.lost();
}
