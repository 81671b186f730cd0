// Who is let in again after another one has written; and that a server which is started again knows
// it, too.
#include "rnbd-server/books/writers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "rnbd-server/books/writer_book.h"
#include "rnbd-server/medium_claims.h"
#include "rtrs/base/error.h"

using namespace rnbd;

namespace {

std::vector<Writers::Id> ids(const std::vector<Writers::One>& writers) {
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

template <typename Done>
void run_until(Books& books, Done done) {
    for (int i = 0; i < 600 && !done(); ++i) {
        books.reactor->run_once(std::chrono::milliseconds(50));
    }
    CHECK(done());
}

}  // namespace

TEST_CASE("writers: one that is away is out when another one writes, and not before") {
    Writers writers;
    CHECK(writers.opens({1, "host-a", "vol1"}, Ids{}) == Writers::News::known);
    CHECK(writers.opens({1, "host-a", "vol1"}, Ids{}) == Writers::News::none);  // is back
    CHECK(writers.writes(Ids{1}).empty());
    CHECK(writers.opens({2, "host-b", "vol1"}, Ids{}) == Writers::News::known);
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
    writers.opens({1, "host-a", "vol1"}, Ids{});
    writers.opens({2, "host-b", "vol1"}, Ids{});
    writers.opens({3, "host-c", "vol1"}, Ids{});
    CHECK(writers.closes(1));
    CHECK_FALSE(writers.closes(1));
    CHECK(writers.writes(Ids{2, 3}).empty());
    CHECK(ids(writers.known()) == Ids{2, 3});
    CHECK(writers.out().empty());
    // One whose number is not known writes.
    CHECK(ids(writers.writes(Ids{})) == Ids{2, 3});
}

TEST_CASE("writers: a session that opens as another writer leaves its former life out") {
    Writers writers;
    writers.opens({1, "host-a", "vol1"}, Ids{});
    writers.opens({2, "host-b", "vol1"}, Ids{});
    CHECK(writers.opens({3, "host-b", "vol1"}, Ids{}) == Writers::News::out);
    CHECK(writers.is_out(2));
    CHECK(ids(writers.known()) == Ids{1, 3});
    // But for one that is there.
    writers.opens({4, "host-b", "vol1"}, Ids{3});
    CHECK(ids(writers.known()) == Ids{1, 3, 4});
}

TEST_CASE("writers: lives of one session crowd out no other's") {
    Writers writers;
    writers.opens({1, "host-a", "vol1"}, Ids{});
    SECTION("that is away") {
        for (Writers::Id id = 2; id < 2000; ++id) writers.opens({id, "host-b", "vol1"}, Ids{});
        CHECK_FALSE(writers.is_out(1));
        CHECK(ids(writers.known()) == Ids{1, 1999});
    }
    SECTION("that is out") {
        for (Writers::Id id = 2; id < 2000; ++id) {
            writers.opens({id, "host-b", "vol1"}, Ids{});
            writers.writes(Ids{id});
        }
        CHECK(writers.is_out(1));
        CHECK(writers.out().size() == 1 + Writers::out_of_session_max);
        CHECK(writers.is_out(1998));
    }
}

TEST_CASE("writers: of too many sessions the oldest that is away is forgotten") {
    Writers writers;
    for (Writers::Id id = 1; id <= Writers::known_max + 1; ++id) {
        writers.opens({id, "host-" + std::to_string(id), "vol1"}, Ids{1});
    }
    CHECK(writers.known().size() == Writers::known_max);
    CHECK(writers.known()[0].id == 1);
    CHECK(writers.known()[1].id == 3);
    CHECK_FALSE(writers.is_out(2));
    writers.writes(Ids{});
    CHECK(writers.out().size() == Writers::out_max);
}

TEST_CASE("writers: the next server knows them") {
    Books books;
    {
        Loaded book(books);
        book.of("vol1")->opens({0xabc, "host-a", "vol1"}, Ids{});
        book.of("vol1")->writes(Ids{});
        book.of("vol1")->opens({0xdef, "host b\n%", "vol1"}, Ids{});
        book.of("vol2")->opens({5, "", "vol1"}, Ids{});
        REQUIRE(!book.save());
    }
    Loaded book(books);
    CHECK(book.of("vol1")->is_out(0xabc));
    CHECK(book.of("vol1")->out()[0].session == "host-a");
    CHECK(ids(book.of("vol1")->known()) == Ids{0xdef});
    CHECK(book.of("vol1")->known()[0].session == "host b\n%");
    CHECK(ids(book.of("vol2")->known()) == Ids{5});
    CHECK(book.of("vol2")->known()[0].session.empty());
    CHECK(book.of("vol2")->out().empty());
    CHECK(book.of("vol3")->known().empty());
}

TEST_CASE("writers: a book is written aside, what is newer later") {
    Books books;
    Loaded book(books);
    int written = 0;
    book.when_written([&] { ++written; });
    book.of("vol1")->opens({1, "host-a", "vol1"}, Ids{});
    SECTION("soon") {
        book.changed();
        CHECK(written == 0);
        run_until(books, [&] { return written == 1; });
    }
    SECTION("at once") {
        const auto first = book.write_now();
        REQUIRE_FALSE(book.is_written(first));
        // While that is written.
        book.of("vol1")->opens({2, "host-b", "vol1"}, Ids{});
        const auto second = book.write_now();
        CHECK(second > first);
        run_until(books, [&] { return book.is_written(first); });
        run_until(books, [&] { return book.is_written(second); });
        CHECK(written == 2);
        CHECK(ids(Loaded(books).of("vol1")->known()) == Ids{1, 2});
    }
    CHECK(Loaded(books).of("vol1")->known()[0].id == 1);
}

TEST_CASE("writers: a book that cannot be written holds nobody up, and is tried again") {
    Books books;
    const std::string folder = std::string(books.folder.path) + "/none";
    WriterBook book(*books.reactor, folder + "/writers");
    REQUIRE(!book.load());
    book.of("vol1")->opens({1, "host-a", "vol1"}, Ids{});
    CHECK(book.save() == std::errc::no_such_file_or_directory);
    const auto ticket = book.write_now();
    run_until(books, [&] { return book.is_written(ticket); });
    REQUIRE(::mkdir(folder.c_str(), 0700) == 0);
    run_until(books, [&] { return ::access(book.path().c_str(), F_OK) == 0; });
    REQUIRE(!book.save());
    ::unlink(book.path().c_str());
    ::rmdir(folder.c_str());

    WriterBook none(*books.reactor, "");
    CHECK(none.is_written(none.write_now()));
    CHECK(!none.save());
}

TEST_CASE("writers: a medium is held by all who have it exported") {
    Books books;
    Loaded book(books);
    const auto one = book.of("vol1");
    const auto other = book.of("vol1");
    CHECK(one == other);
    one->opens({1, "host-a", "vol1"}, Ids{});
    CHECK(other->knows(1));
    CHECK(book.of("vol2")->empty());
}

TEST_CASE("writers: of media that are not exported the newest are kept") {
    Books books;
    constexpr auto left_max = MediumRecords<Writers>::left_max;
    {
        Loaded book(books);
        const auto held = book.of("held");
        held->opens({1, "host-a", "vol1"}, Ids{});
        for (std::size_t i = 0; i < left_max; ++i) {
            const auto left = book.of(std::to_string(i));
            left->opens({2, "host-a", "vol1"}, Ids{});
            book.of("nobody may hold writes for it");
        }
        CHECK(book.of("0")->knows(2));  // let go of once more
        REQUIRE(!book.save());
    }
    Loaded book(books);
    CHECK(book.of("0")->knows(2));
    book.of("one more")->opens({3, "host-a", "vol1"}, Ids{});
    CHECK(book.of("0")->knows(2));
    CHECK(book.of("held")->knows(1));
    CHECK(!book.of("1")->knows(2));
    CHECK(!book.of("2")->knows(2));
    CHECK(book.of("3")->knows(2));
}

TEST_CASE("writers: what is known of a medium is known of it by its new name") {
    Books books;
    Loaded book(books);
    book.of("vol1")->opens({1, "host-a", "vol1"}, Ids{});
    book.take_over("uuid", "vol1");
    CHECK(book.of("uuid")->knows(1));
    CHECK(book.of("vol1")->empty());
    SECTION("unless that is known itself") {
        book.of("vol1")->opens({2, "host-a", "vol1"}, Ids{});
        book.take_over("uuid", "vol1");
        CHECK(ids(book.of("uuid")->known()) == Ids{1});
        CHECK(book.of("vol1")->knows(2));
    }
    SECTION("or the former one is exported") {
        const auto exported = book.of("uuid");
        book.take_over("other", "uuid");
        CHECK(exported->knows(1));
        CHECK(book.of("other")->empty());
    }
    book.take_over("uuid", "uuid");
    book.take_over("uuid", "nothing");
    CHECK(book.of("uuid")->knows(1));
}

TEST_CASE("writers: of another export it may be another device's life") {
    Writers writers;
    writers.opens({1, "host-a", "vol1"}, Ids{});
    CHECK(writers.opens({2, "host-a", "vol2"}, Ids{}) == Writers::News::known);
    CHECK(ids(writers.known()) == Ids{1, 2});
    CHECK(ids(writers.writes(Ids{2})) == Ids{1});
}

TEST_CASE("media are claimed by one export") {
    MediumClaims claims;
    const Uuid uuid = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").value();
    const Uuid another = parse_uuid("00112233-4455-6677-8899-aabbccddeefe").value();
    auto first = claims.claim(uuid, "vol1");
    REQUIRE(first);
    auto again = claims.claim(uuid, "vol1");
    REQUIRE(again);
    CHECK(claims.claim(uuid, "vol2") == std::unexpected(std::string("vol1")));
    CHECK(claims.claim(another, "vol2"));
    first->reset();
    CHECK_FALSE(claims.claim(uuid, "vol2"));
    again->reset();
    CHECK(claims.claim(uuid, "vol2"));
}

TEST_CASE("media are named by their uuid, those without one by their export") {
    MediumId medium{.life = 1, .number = 2};
    CHECK(medium_name(medium, "vol1") == "vol1");
    medium.uuid = parse_uuid("00112233-4455-6677-8899-aabbccddeeff").value();
    CHECK(medium_name(medium, "vol1") == "/uuid/00112233-4455-6677-8899-aabbccddeeff");
}

TEST_CASE("writers: lines that are not of the book's form are skipped, and told of") {
    Books books;
    bool damaged = false;
    {
        std::ofstream file(books.folder.file());
        SECTION("lines") {
            file
                << "rnbd-server writers 2\nknown\nknown zz vol1 =\nknown 0 vol1 =\nwhat 1 vol1 =\n"
                   "out 7\n\nout 8 vol1\nout b vol1 =\nout 9 vol1 =% vol1\nout a vol1 %%%zz vol1\n";
            damaged = true;
        }
        SECTION("more than are kept") {
            file << "rnbd-server writers 2\nout 8 vol1 = vol1\n";
            for (int i = 1; i < 3000; ++i) file << "known " << i << " vol2 = vol2\n";
        }
    }
    WriterBook book(*books.reactor, books.folder.file());
    CHECK(book.load() == (damaged ? rtrs::from_errno(EBADMSG) : std::error_code{}));
    CHECK(book.of("vol1")->known().empty());
    CHECK(book.of("vol1")->out().size() <= 2);
    CHECK(book.of("vol2")->known().size() <= Writers::known_max);
}

TEST_CASE("writers: a file that is no book is told of") {
    Books books;
    std::ofstream(books.folder.file()) << "rnbd-server writers 1\nknown 1 vol1 = vol1\n";
    WriterBook book(*books.reactor, books.folder.file());
    CHECK(book.load() == rtrs::from_errno(EBADMSG));
    CHECK(book.of("vol1")->empty());
}
