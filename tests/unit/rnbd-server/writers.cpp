// Who is let in again after another one has written; and that a server which is started again knows
// it, too.
#include "rnbd-server/state/writers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "rnbd-server/medium_claims.h"
#include "rnbd-server/state/writer_file.h"
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

struct Files {
    Folder folder;
    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
};

// Of the next server.
struct Loaded final : WriterFile {
    explicit Loaded(Files& files) : WriterFile(*files.reactor, files.folder.file()) {
        REQUIRE(!load());
    }
};

template <typename Done>
void run_until(Files& files, Done done) {
    for (int i = 0; i < 600 && !done(); ++i) {
        files.reactor->run_once(std::chrono::milliseconds(50));
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
    Files files;
    {
        Loaded file(files);
        file.of("vol1")->opens({0xabc, "host-a", "vol1"}, Ids{});
        file.of("vol1")->writes(Ids{});
        file.of("vol1")->opens({0xdef, "host b\n%", "vol1"}, Ids{});
        file.of("vol2")->opens({5, "", "vol1"}, Ids{});
        REQUIRE(!file.save());
    }
    Loaded file(files);
    CHECK(file.of("vol1")->is_out(0xabc));
    CHECK(file.of("vol1")->out()[0].session == "host-a");
    CHECK(ids(file.of("vol1")->known()) == Ids{0xdef});
    CHECK(file.of("vol1")->known()[0].session == "host b\n%");
    CHECK(ids(file.of("vol2")->known()) == Ids{5});
    CHECK(file.of("vol2")->known()[0].session.empty());
    CHECK(file.of("vol2")->out().empty());
    CHECK(file.of("vol3")->known().empty());
}

TEST_CASE("writers: a file is written aside, what is newer later") {
    Files files;
    Loaded file(files);
    int written = 0;
    file.when_written([&] { ++written; });
    file.of("vol1")->opens({1, "host-a", "vol1"}, Ids{});
    SECTION("soon") {
        file.changed();
        CHECK(written == 0);
        run_until(files, [&] { return written == 1; });
    }
    SECTION("at once") {
        const auto first = file.write_now();
        REQUIRE_FALSE(file.is_written(first));
        // While that is written.
        file.of("vol1")->opens({2, "host-b", "vol1"}, Ids{});
        const auto second = file.write_now();
        CHECK(second > first);
        run_until(files, [&] { return file.is_written(first); });
        run_until(files, [&] { return file.is_written(second); });
        CHECK(written == 2);
        CHECK(ids(Loaded(files).of("vol1")->known()) == Ids{1, 2});
    }
    CHECK(Loaded(files).of("vol1")->known()[0].id == 1);
}

TEST_CASE("writers: a file that cannot be written holds nobody up, and is tried again") {
    Files files;
    const std::string folder = std::string(files.folder.path) + "/none";
    WriterFile file(*files.reactor, folder + "/writers");
    REQUIRE(!file.load());
    file.of("vol1")->opens({1, "host-a", "vol1"}, Ids{});
    CHECK(file.save() == std::errc::no_such_file_or_directory);
    const auto ticket = file.write_now();
    run_until(files, [&] { return file.is_written(ticket); });
    REQUIRE(::mkdir(folder.c_str(), 0700) == 0);
    run_until(files, [&] { return ::access(file.path().c_str(), F_OK) == 0; });
    REQUIRE(!file.save());
    ::unlink(file.path().c_str());
    ::rmdir(folder.c_str());

    WriterFile none(*files.reactor, "");
    CHECK(none.is_written(none.write_now()));
    CHECK(!none.save());
}

TEST_CASE("writers: a medium is held by all who have it exported") {
    Files files;
    Loaded file(files);
    const auto one = file.of("vol1");
    const auto other = file.of("vol1");
    CHECK(one == other);
    one->opens({1, "host-a", "vol1"}, Ids{});
    CHECK(other->knows(1));
    CHECK(file.of("vol2")->empty());
}

TEST_CASE("writers: of media that are not exported the newest are kept") {
    Files files;
    constexpr auto left_max = MediumRecords<Writers>::left_max;
    {
        Loaded file(files);
        const auto held = file.of("held");
        held->opens({1, "host-a", "vol1"}, Ids{});
        for (std::size_t i = 0; i < left_max; ++i) {
            const auto left = file.of(std::to_string(i));
            left->opens({2, "host-a", "vol1"}, Ids{});
            file.of("nobody may hold writes for it");
        }
        CHECK(file.of("0")->knows(2));  // let go of once more
        REQUIRE(!file.save());
    }
    Loaded file(files);
    CHECK(file.of("0")->knows(2));
    file.of("one more")->opens({3, "host-a", "vol1"}, Ids{});
    CHECK(file.of("0")->knows(2));
    CHECK(file.of("held")->knows(1));
    CHECK(!file.of("1")->knows(2));
    CHECK(!file.of("2")->knows(2));
    CHECK(file.of("3")->knows(2));
}

TEST_CASE("writers: what is known of a medium is known of it by its new name") {
    Files files;
    Loaded file(files);
    file.of("vol1")->opens({1, "host-a", "vol1"}, Ids{});
    file.take_over("uuid", "vol1");
    CHECK(file.of("uuid")->knows(1));
    CHECK(file.of("vol1")->empty());
    SECTION("unless that is known itself") {
        file.of("vol1")->opens({2, "host-a", "vol1"}, Ids{});
        file.take_over("uuid", "vol1");
        CHECK(ids(file.of("uuid")->known()) == Ids{1});
        CHECK(file.of("vol1")->knows(2));
    }
    SECTION("or the former one is exported") {
        const auto exported = file.of("uuid");
        file.take_over("other", "uuid");
        CHECK(exported->knows(1));
        CHECK(file.of("other")->empty());
    }
    file.take_over("uuid", "uuid");
    file.take_over("uuid", "nothing");
    CHECK(file.of("uuid")->knows(1));
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

TEST_CASE("writers: lines that are not of the file's form are skipped, and told of") {
    Files files;
    bool damaged = false;
    {
        std::ofstream file(files.folder.file());
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
    WriterFile file(*files.reactor, files.folder.file());
    CHECK(file.load() == (damaged ? rtrs::from_errno(EBADMSG) : std::error_code{}));
    CHECK(file.of("vol1")->known().empty());
    CHECK(file.of("vol1")->out().size() <= 2);
    CHECK(file.of("vol2")->known().size() <= Writers::known_max);
}

TEST_CASE("writers: a file that is no file is told of") {
    Files files;
    std::ofstream(files.folder.file()) << "rnbd-server writers 1\nknown 1 vol1 = vol1\n";
    WriterFile file(*files.reactor, files.folder.file());
    CHECK(file.load() == rtrs::from_errno(EBADMSG));
    CHECK(file.of("vol1")->empty());
}
