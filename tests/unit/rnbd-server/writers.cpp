// Who is let in again after another one has written; and that a server which is started again knows
// it, too.
#include "rnbd-server/writers.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "rnbd-server/writer_book.h"

using namespace rnbd;

namespace {

std::vector<Writers::Id> ids(const std::vector<Writers::Known>& writers) {
    std::vector<Writers::Id> all;
    for (const auto& one : writers) all.push_back(one.id);
    return all;
}

using Ids = std::vector<Writers::Id>;

struct Folder {
    Folder() { REQUIRE(::mkdtemp(path) != nullptr); }
    ~Folder() {
        ::unlink(file().c_str());
        ::rmdir(path);
    }
    std::string file() const { return std::string(path) + "/writers"; }
    char path[64] = "/tmp/rnbd-writers-XXXXXX";
};

struct Books {
    Folder folder;
    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
};

// Of the next server.
struct Loaded final : WriterBook {
    explicit Loaded(Books& books) : WriterBook(*books.reactor, books.folder.file()) {
        REQUIRE(!load());
    }
};

}  // namespace

TEST_CASE("writers: one that is away is out when another one writes, and not before") {
    Writers writers;
    CHECK(writers.opens(1, "host-a"));
    CHECK_FALSE(writers.opens(1, "host-a"));  // is back
    CHECK(writers.writes(Ids{1}).empty());
    CHECK(writers.opens(2, "host-b"));
    CHECK_FALSE(writers.is_out(1));
    const auto away = writers.writes(Ids{2});
    REQUIRE(away.size() == 1);
    CHECK(away[0].id == 1);
    CHECK(away[0].session == "host-a");
    CHECK(writers.is_out(1));
    CHECK_FALSE(writers.is_out(2));
    CHECK(writers.writes(Ids{2}).empty());
}

TEST_CASE("writers: who closes, and who has it open beside the one that writes, is not out") {
    Writers writers;
    writers.opens(1, "host-a");
    writers.opens(2, "host-b");
    writers.opens(3, "host-c");
    CHECK(writers.closes(1));
    CHECK_FALSE(writers.closes(1));
    CHECK(writers.writes(Ids{2, 3}).empty());
    CHECK(ids(writers.known()) == Ids{2, 3});
    CHECK(writers.out().empty());
    // One whose number is not known writes.
    CHECK(ids(writers.writes(Ids{})) == Ids{2, 3});
}

TEST_CASE("writers: of too many the oldest are out, and of those the oldest forgotten") {
    Writers writers;
    for (Writers::Id id = 1; id <= Writers::known_max + 1; ++id) writers.opens(id, "host");
    CHECK(writers.known().size() == Writers::known_max);
    CHECK(writers.is_out(1));
    CHECK_FALSE(writers.is_out(2));
    for (Writers::Id id = 1000; id < 1000 + Writers::out_max; ++id) {
        writers.opens(id, "host");
        writers.writes(Ids{});
    }
    CHECK(writers.out().size() == Writers::out_max);
    CHECK_FALSE(writers.is_out(1));
    CHECK(writers.is_out(999 + Writers::out_max));
}

TEST_CASE("writers: the next server knows them") {
    Books books;
    {
        Loaded book(books);
        book.of("vol one").opens(0xabc, "host-a");
        book.of("vol one").writes(Ids{});
        book.of("vol one").opens(0xdef, "host-b");
        book.of("vol2").opens(5, "host-c");
        REQUIRE(!book.save());
    }
    Loaded book(books);
    CHECK(book.of("vol one").is_out(0xabc));
    CHECK(ids(book.of("vol one").known()) == Ids{0xdef});
    CHECK(ids(book.of("vol2").known()) == Ids{5});
    CHECK(book.of("vol2").out().empty());
    CHECK(book.of("vol3").known().empty());
}

TEST_CASE("writers: a book is saved aside, what is newer later") {
    Books books;
    Loaded book(books);
    int saved = 0;
    book.when_saved([&] { ++saved; });
    book.of("vol1").opens(1, "host-a");
    SECTION("soon") {
        book.changed();
        CHECK_FALSE(book.saving());
        for (int i = 0; i < 100 && Loaded(books).of("vol1").known().empty(); ++i) {
            books.reactor->run_once(std::chrono::milliseconds(50));
        }
        CHECK(saved == 0);
    }
    SECTION("at once") {
        book.save_now();
        REQUIRE(book.saving());
        // While that is written.
        book.of("vol1").opens(2, "host-b");
        book.save_now();
        for (int i = 0; i < 100 && book.saving(); ++i) {
            books.reactor->run_once(std::chrono::milliseconds(50));
        }
        CHECK(saved == 1);
        CHECK(ids(Loaded(books).of("vol1").known()) == Ids{1, 2});
    }
    CHECK(Loaded(books).of("vol1").known()[0].id == 1);
}

TEST_CASE("writers: a book that cannot be written goes on, and one without a path keeps nothing") {
    Books books;
    WriterBook book(*books.reactor, std::string(books.folder.path) + "/none/writers");
    REQUIRE(!book.load());
    book.of("vol1").opens(1, "host-a");
    CHECK(book.save() == std::errc::no_such_file_or_directory);
    book.save_now();
    for (int i = 0; i < 100 && book.saving(); ++i) {
        books.reactor->run_once(std::chrono::milliseconds(50));
    }
    CHECK_FALSE(book.saving());
    WriterBook none(*books.reactor, "");
    none.save_now();
    CHECK_FALSE(none.saving());
    CHECK(!none.save());
}

TEST_CASE("writers: lines that are not of the book's form are skipped") {
    Books books;
    {
        std::ofstream file(books.folder.file());
        SECTION("another first line") { file << "rnbd-server writers 2\nknown 1 vol1\n"; }
        SECTION("lines") {
            file << "rnbd-server writers 1\nknown\nknown zz vol1\nknown 0 vol1\nwhat 1 vol1\n"
                    "out 7\n\nout 8 vol1\n";
        }
        SECTION("more than are kept") {
            file << "rnbd-server writers 1\nout 8 vol1\n";
            for (int i = 1; i < 1000; ++i) file << "known " << i << " vol2\n";
        }
    }
    Loaded book(books);
    CHECK(book.of("vol1").known().empty());
    CHECK(book.of("vol1").out().size() <= 1);
    CHECK(book.of("vol2").known().size() <= Writers::known_max);
}
