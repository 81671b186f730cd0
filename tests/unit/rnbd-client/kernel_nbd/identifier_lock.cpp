#include "rnbd-client/kernel_nbd/identifier_lock.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

using rnbd::IdentifierLock;
namespace fs = std::filesystem;

namespace {

struct Folder {
    Folder() {
        std::string made = (fs::temp_directory_path() / "identifier_lock.XXXXXX").string();
        REQUIRE(::mkdtemp(made.data()) != nullptr);
        base = made;
        path = made + "/rnbd/nbd-devices";
    }
    ~Folder() { fs::remove_all(base); }
    std::string base, path;
};

}  // namespace

TEST_CASE("identifier lock: one at a time, until it ends") {
    const Folder folder;
    {
        auto first = IdentifierLock::take("rnbd/host-a/vol1", folder.path);
        REQUIRE(first);
        const auto second = IdentifierLock::take("rnbd/host-a/vol1", folder.path);
        REQUIRE_FALSE(second);
        CHECK(second.error() == "another rnbd-client on this machine serves /dev/rnbd/host-a/vol1");
        CHECK(IdentifierLock::take("rnbd/host-a/vol2", folder.path));
        const IdentifierLock moved = std::move(*first);
        CHECK_FALSE(IdentifierLock::take("rnbd/host-a/vol1", folder.path));
    }
    CHECK(IdentifierLock::take("rnbd/host-a/vol1", folder.path));
}

TEST_CASE("identifier lock: names of any length") {
    const Folder folder;
    const std::string session = "rnbd/" + std::string(1020, 's') + "/";
    const auto first = IdentifierLock::take(session + std::string(1020, 'v'), folder.path);
    REQUIRE(first);
    CHECK(IdentifierLock::take(session + std::string(1019, 'v'), folder.path));
    CHECK_FALSE(IdentifierLock::take(session + std::string(1020, 'v'), folder.path));
}

TEST_CASE("identifier lock: not where others could take it away") {
    const Folder folder;
    SECTION("they may write there") {
        fs::create_directories(folder.path);
        REQUIRE(::chmod(folder.path.c_str(), 0770) == 0);
        const auto lock = IdentifierLock::take("rnbd/host-a/vol1", folder.path);
        REQUIRE_FALSE(lock);
        CHECK(lock.error() == folder.path + " belongs to others, or others may write there");
    }
    SECTION("it is a link") {
        fs::create_directories(folder.base + "/elsewhere");
        fs::create_directories(folder.base + "/rnbd");
        fs::create_directory_symlink(folder.base + "/elsewhere", folder.path);
        CHECK_FALSE(IdentifierLock::take("rnbd/host-a/vol1", folder.path));
        CHECK(fs::is_empty(folder.base + "/elsewhere"));
    }
    SECTION("it cannot be made") {
        const auto lock = IdentifierLock::take("rnbd/host-a/vol1", folder.base + "/a/b/c");
        REQUIRE_FALSE(lock);
        CHECK(lock.error().starts_with(folder.base + "/a/b/c, which tells"));
    }
}
