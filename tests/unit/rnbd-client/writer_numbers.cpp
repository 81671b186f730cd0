// As which writer a daemon comes back that was killed.
#include "rnbd-client/writer_numbers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

using namespace rnbd;

namespace {

struct Folder {
    Folder() { REQUIRE(::mkdtemp(path) != nullptr); }
    ~Folder() {
        ::unlink(file().c_str());
        ::rmdir(path);
    }
    std::string file() const { return std::string(path) + "/client.ctl.writers"; }
    bool has_file() const { return ::access(file().c_str(), F_OK) == 0; }
    char path[64] = "/tmp/rnbd-numbers-XXXXXX";
};

const MediumId medium{
    .uuid = *parse_uuid("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), .life = 0xf00d, .number = 3};

struct Loaded final : WriterNumbers {
    explicit Loaded(const Folder& folder) : WriterNumbers(folder.file()) { REQUIRE(!load()); }
};

}  // namespace

TEST_CASE("writer numbers: of a life that was killed, until they are forgotten") {
    Folder folder;
    {
        Loaded numbers(folder);
        CHECK(numbers.former("host-a", "vol1").number == 0);
        CHECK(numbers.keep("host-a", "vol1", {0xabc, 0xe, medium}));
        CHECK(numbers.keep("host \"b\"\\", "vol1", {5}));
        CHECK(numbers.keep("host-a", "vol2", {7}));
        CHECK(numbers.keep("host-a", "vol2", {8}));
        CHECK_FALSE(numbers.keep("host-a", "vol2", {8}));
        CHECK(numbers.keep("host-a", "lost", {9, 0xe, medium, true}));
        REQUIRE(!numbers.write());
    }
    Loaded numbers(folder);
    CHECK(numbers.former("host-a", "vol1").number == 0xabc);
    CHECK(numbers.former("host-a", "vol1").epoch == 0xe);
    CHECK(numbers.former("host-a", "vol1").medium == medium);
    CHECK_FALSE(numbers.former("host-a", "vol1").untold_loss);
    CHECK(numbers.former("host-a", "lost") == WriterNumbers::Life{9, 0xe, medium, true});
    CHECK(numbers.keep("host-a", "vol1", {0xabc, 0xf}));
    CHECK(numbers.keep("host-a", "vol1", {0xabc, 0xe}));
    CHECK(numbers.former("host \"b\"\\", "vol1").number == 5);
    CHECK(numbers.former("host \"b\"\\", "vol1").epoch == 0);
    CHECK(!numbers.former("host \"b\"\\", "vol1").medium.known());
    CHECK(numbers.former("host-a", "vol2").number == 8);
    CHECK(numbers.former("host-b", "vol2").number == 0);
    CHECK_FALSE(numbers.keep("host-a", "vol1", {0xabc, 0xe}));
    CHECK(numbers.forget("host-a", "vol1"));
    REQUIRE(!numbers.write());
    CHECK(Loaded(folder).former("host-a", "vol1").number == 0);
    CHECK(Loaded(folder).former("host-a", "vol2").number == 8);
}

TEST_CASE("writer numbers: an end in order leaves nothing") {
    Folder folder;
    Loaded numbers(folder);
    REQUIRE(!numbers.write());
    CHECK_FALSE(folder.has_file());
    CHECK(numbers.keep("host-a", "vol1", {1}));
    CHECK(numbers.keep("host-a", "vol2", {2}));
    CHECK(numbers.forget("host-a", "vol1"));
    REQUIRE(!numbers.write());
    CHECK(Loaded(folder).former("host-a", "vol1").number == 0);
    CHECK(Loaded(folder).former("host-a", "vol2").number == 2);
    CHECK(numbers.forget("host-a", "vol2"));
    REQUIRE(!numbers.write());
    CHECK_FALSE(folder.has_file());
    CHECK_FALSE(numbers.forget("host-a", "vol2"));
}

TEST_CASE(
    "writer numbers: what is of another boot counts as nothing, and what is damaged is told") {
    Folder folder;
    std::ofstream(folder.file())
        << "rnbd-client writers 1 00000000-0000-0000-0000-000000000000\n1 \"host-a\" \"vol1\"\n";
    CHECK(Loaded(folder).former("host-a", "vol1").number == 0);
    {
        Loaded numbers(folder);
        CHECK(numbers.keep("host-a", "vol2", {2}));
        REQUIRE(!numbers.write());
        std::ofstream(folder.file(), std::ios::app)
            << "\nzz \"a\" \"b\" 0 - 0 0\n0 \"a\" \"b\"\n3 \"a\n4\n5 \"a\" \"b\"\n"
               "6 \"a\" \"b\" 0 - 0\n";
    }
    WriterNumbers numbers(folder.file());
    CHECK(numbers.load() == std::errc::bad_message);
    CHECK(numbers.former("host-a", "vol2").number == 2);
    CHECK(numbers.former("a", "b").number == 0);
    for (const char* const text : {"", "junk\n", "rnbd-client writers 2\n"}) {
        std::ofstream(folder.file()) << text;
        CHECK(WriterNumbers(folder.file()).load() == std::errc::bad_message);
    }
}

TEST_CASE("writer numbers: a file that cannot be written is told of") {
    Folder folder;
    WriterNumbers numbers(std::string(folder.path) + "/none/client.ctl.writers");
    REQUIRE(!numbers.load());
    CHECK(numbers.keep("host-a", "vol1", {1}));
    CHECK(numbers.write() == std::errc::no_such_file_or_directory);
}

TEST_CASE("writer numbers: what another user has put there is neither waited for nor followed") {
    Folder folder;
    const std::string fresh = folder.file() + ".new";
    const std::string victim = std::string(folder.path) + "/victim";
    std::ofstream(victim) << "precious\n";
    REQUIRE(::mkfifo(folder.file().c_str(), 0600) == 0);
    WriterNumbers numbers(folder.file());
    CHECK(numbers.load() == std::errc::bad_message);
    REQUIRE(::unlink(folder.file().c_str()) == 0);
    REQUIRE(::symlink(victim.c_str(), folder.file().c_str()) == 0);
    CHECK(numbers.load() == std::errc::too_many_symbolic_link_levels);

    REQUIRE(::symlink(victim.c_str(), fresh.c_str()) == 0);
    CHECK(numbers.keep("host-a", "vol1", {1}));
    REQUIRE(!numbers.write());
    CHECK(Loaded(folder).former("host-a", "vol1").number == 1);
    struct stat about{};
    REQUIRE(::lstat(folder.file().c_str(), &about) == 0);
    CHECK(S_ISREG(about.st_mode));
    CHECK((about.st_mode & 0022) == 0);
    std::string line;
    std::getline(std::ifstream(victim), line);
    CHECK(line == "precious");
    ::unlink(victim.c_str());

    if (::geteuid() != 0) return;
    REQUIRE(::chown(folder.file().c_str(), 65534, 65534) == 0);
    CHECK(WriterNumbers(folder.file()).load() == std::errc::operation_not_permitted);
}

TEST_CASE("writer numbers: nothing is left of a file that could not take its place") {
    Folder folder;
    WriterNumbers numbers(folder.file());
    REQUIRE(::mkdir(folder.file().c_str(), 0700) == 0);
    CHECK(numbers.keep("host-a", "vol1", {1}));
    CHECK(numbers.write() == std::errc::is_a_directory);
    CHECK(::access((folder.file() + ".new").c_str(), F_OK) != 0);
    ::rmdir(folder.file().c_str());
}
