// Which epoch is shown after which end of a server.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "rnbd-server/books/cache_life.h"
#include "rnbd-server/books/epoch_book.h"
#include "rnbd-server/storage/cache_epoch.h"
#include "tests/contract/storage/support.h"
#include "tests/unit/rnbd-server/said.h"

using namespace rnbd;
using namespace rnbd::testing;
using namespace std::chrono_literals;

namespace {

// A book with a loop of its own; what it begins is over when it returns.
class Book {
  public:
    explicit Book(std::string path, std::chrono::milliseconds loss_patience = 30s)
        : book(*reactor, std::move(path), loss_patience) {}

    std::uint64_t opened(const std::string& medium, std::uint64_t storage_epoch) {
        const auto ticket = book.opens(medium, storage_epoch);
        wait(ticket);
        return book.opened(medium, storage_epoch, ticket);
    }
    void lost(const std::string& medium) { book.lost(medium); }
    std::error_code load() { return book.load(); }
    std::error_code begin() { return book.begin(); }
    std::error_code save() { return book.save(); }
    void flushed(const std::string& medium) { book.flushed(medium); }
    void wait(EpochBook::Ticket ticket) {
        for (int i = 0; i < 2000 && !book.is_over(ticket); ++i) {
            reactor->run_once(std::chrono::milliseconds(5));
        }
        REQUIRE(book.is_over(ticket));
    }

    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
    EpochBook book;
};

enum class End : std::uint8_t { killed, flushed, in_order_but_not_flushed };

// One life of a server with two exports; what the first one shows.
std::uint64_t life(const std::string& path, std::uint64_t storage_epoch, End end) {
    Book book(path);
    REQUIRE(!book.load());
    const std::uint64_t shown = book.opened("vol1", storage_epoch);
    book.opened("vol2", storage_epoch + 1000);
    REQUIRE(!book.begin());
    if (end == End::killed) return shown;
    if (end == End::flushed) book.flushed("vol1");
    book.flushed("vol2");
    REQUIRE(!book.save());
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
        Book book(path);
        REQUIRE(!book.load());
        REQUIRE(!book.begin());
        CHECK(book.opened("vol1", 300) == 100);
        CHECK(life(path, 400, End::killed) == 400);
    }
    SECTION("unless it had opened nothing") {
        Book book(path);
        REQUIRE(!book.load());
        const bool begins = GENERATE(false, true);
        if (begins) REQUIRE(!book.begin());
        CHECK(life(path, 400, End::killed) == 100);
    }
    SECTION("but one whose export was found, but never to be written to") {
        Book book(path);
        REQUIRE(!book.load());
        REQUIRE(!book.begin());
        book.wait(book.book.opens("vol1", 300));
        book.book.was_not_opened("vol1");
        REQUIRE(!book.save());
        CHECK(life(path, 400, End::killed) == 100);
    }
    SECTION("one that was not waited for, whatever becomes of the file") {
        Book book(path);
        REQUIRE(!book.load());
        REQUIRE(!book.begin());
        const auto ticket = book.book.opens("vol1", 300);
        REQUIRE(!book.book.is_over(ticket));
        const std::uint64_t shown = book.book.opened("vol1", 300, ticket);
        CHECK(shown != 100);
        CHECK(shown != 300);
        book.wait(ticket);
        const bool is_killed = GENERATE(false, true);
        if (!is_killed) REQUIRE(!book.save());
        CHECK(life(path, is_killed ? 300 : 400, End::killed) != shown);
    }
    SECTION("a start that cannot be noted is not hidden") {
        Book book(path);
        REQUIRE(!book.load());
        const bool early = GENERATE(false, true);
        if (early) CHECK(book.opened("vol1", 300) == 100);
        if (!early) REQUIRE(!book.begin());
        // Where the new file would be there is a folder.
        REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);
        if (early) CHECK(book.begin());
        if (early) return;
        const std::uint64_t shown = book.opened("vol1", 300);
        CHECK(shown != 100);
        CHECK(shown != 300);
        // One life long.
        CHECK(book.opened("vol1", 300) == shown);
        CHECK(book.opened("vol1", 301) != 301);
        CHECK(book.opened("vol1", 300) == shown);
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
        Book book(path);
        REQUIRE(!book.load());
        REQUIRE(!book.save());
    }
    CHECK(life(path, 200, End::killed) == 100);
}

TEST_CASE("epochs: once writes were lost the next server shows another one, and keeps to it") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    const auto end = GENERATE(End::killed, End::flushed, End::in_order_but_not_flushed);
    {
        Book book(path);
        REQUIRE(!book.load());
        CHECK(book.opened("vol1", 100) == 100);
        book.lost("vol1");
        // Whatever becomes of this one now.
        Book at_once(path);
        REQUIRE(!at_once.load());
        CHECK(at_once.opened("vol1", 100) != 100);
        if (end == End::flushed) book.flushed("vol1");
        if (end != End::killed) REQUIRE(!book.save());
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
        Book book(path);
        REQUIRE(!book.load());
        const std::uint64_t shown = book.opened("vol1", 100);
        book.lost("vol1");
        CHECK(book.opened("vol1", 100) != shown);
    }
}

TEST_CASE(
    "epochs: a loss that the disk does not take at once keeps nobody waiting, and is not "
    "forgotten") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    {
        Book book(path, 10ms);
        REQUIRE(!book.load());
        CHECK(book.opened("vol1", 100) == 100);
        CHECK(book.opened("vol2", 1100) == 1100);
        // A pipe that nobody reads: whoever opens it waits.
        const std::string pipe = path + ".new";
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        const std::string text = said([&] { book.lost("vol1"); });
        CHECK(lines_with(text, path + ": takes long to write") == 1);
        CHECK(lines_with(text, "timed out") == 0);
        book.lost("vol2");
        const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        REQUIRE(::unlink(pipe.c_str()) == 0);
        CHECK(!book.save());
        ::close(reader);
    }
    Book next(path);
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
        Book book(path);
        REQUIRE(!book.load());
        CHECK(book.opened("vol1", 100) == 100);
        REQUIRE(!book.begin());
        // Where the new file would be there is a folder, for a moment.
        REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);
        second_shown = book.opened("vol2", 1100);
        CHECK(second_shown != 1100);
        if (!can_be_noted) book.lost("vol1");
        REQUIRE(::rmdir((path + ".new").c_str()) == 0);
        if (can_be_noted) book.lost("vol1");
        // In order, but for what was lost.
        book.flushed("vol2");
        CHECK(!book.save());
    }
    Book next(path);
    REQUIRE(!next.load());
    CHECK(next.opened("vol1", 100) != 100);
    CHECK(next.opened("vol2", 1100) == second_shown);
}

TEST_CASE("epochs: what is noted of a medium stays when it is not exported any more") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    {
        Book book(path);
        REQUIRE(!book.load());
        REQUIRE(!book.begin());
        {
            const auto exported = book.book.hold("medium");
            CHECK(book.opened("medium", 100) == 100);
            book.lost("medium");
        }
        book.book.hold("never opened");
        CHECK(book.opened("other", 100) == 100);
    }
    Book book(path);
    REQUIRE(!book.load());
    const auto exported = book.book.hold("medium");
    CHECK(book.opened("medium", 100) != 100);
}

TEST_CASE("epochs: storages without a cache, and servers without a file") {
    TemporaryFolder folder;
    Book book(folder.file("epochs"));
    REQUIRE(!book.load());
    CHECK(book.opened("null", epoch_without_cache) == epoch_without_cache);
    CHECK(book.opened("unknown", 0) == 0);
    Book none("");
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
        Book book(path);
        CHECK(book.load() == rtrs::from_errno(EBADMSG));
        const std::uint64_t shown = book.opened("vol1", 100);
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
        Book book(path);
        REQUIRE(!book.load());
        CHECK(book.opened("vol1", 100) == 100);
        book.lost("vol1");
    }
    REQUIRE(::chmod(folder.file(".").c_str(), 0777) == 0);
    REQUIRE(::chmod(path.c_str(), 0) == 0);
    {
        const WithoutRootsRights plain;
        Book book(path);
        CHECK(book.load() == std::errc::permission_denied);
        CHECK(book.opened("vol1", 100) != 100);
        CHECK(!book.save());
    }
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    CHECK(life(path, 100, End::killed) != 100);  // the loss is told, still
    // It loops.
    const std::string loop = folder.file("loop");
    REQUIRE(::symlink("loop", loop.c_str()) == 0);
    CHECK(Book(loop).load() == std::errc::too_many_symbolic_link_levels);
}

TEST_CASE("epochs: a file that cannot be rewritten is not believed, and no epoch comes twice") {
    TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    CHECK(life(path, 100, End::flushed) == 100);
    // Where the new file would be there is a folder.
    REQUIRE(::mkdir((path + ".new").c_str(), 0700) == 0);
    Book first(path);
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
    Book second(path);
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
            Book book(path);
            REQUIRE(!book.load());
            REQUIRE(!book.begin());
            CacheLife cache(book.book);
            cache.begins("vol1", 100, rtrs::Instant(5s));
            CHECK(cache.noted_by() == rtrs::Instant(5s) + CacheLife::book_patience);
            for (int i = 0; i < 2000 && !cache.is_noted(); ++i) {
                book.reactor->run_once(std::chrono::milliseconds(5));
            }
            REQUIRE(cache.is_noted());
            cache.opened();
            CHECK(cache.epoch() == 100);
            ends(cache);
            REQUIRE(!book.save());
        }
        Book next(path);
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

TEST_CASE("epochs: a cache that the book does not keep is shown as it is") {
    TemporaryFolder folder;
    Book book(folder.file("epochs"));
    REQUIRE(!book.begin());
    CacheLife cache(book.book);
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
