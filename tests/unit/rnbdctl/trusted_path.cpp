#include "rnbdctl/trusted_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/skip.h"

using rnbd::changed_by_others;

namespace {

constexpr uid_t somebody = 12345;

struct Folder {
    Folder() {
        char name[] = "/tmp/rnbd-trusted-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        path = name;
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string file(const std::string& name) const {
        std::ofstream(path + "/" + name) << "x";
        REQUIRE(::chmod((path + "/" + name).c_str(), 0644) == 0);
        return path + "/" + name;
    }
    std::string path;
};

}  // namespace

TEST_CASE("trusted path: what root alone can change") {
    if (::geteuid() != 0) return rnbd::testing::skip("needs root");
    const Folder folder;
    const std::string file = folder.file("file");
    CHECK(changed_by_others(file).empty());
    CHECK(changed_by_others(folder.path + "/not-there/nor-this").empty());
    const std::string link = folder.path + "/link";
    REQUIRE(::symlink("file", link.c_str()) == 0);
    CHECK(changed_by_others(link).empty());

    SECTION("a file of somebody else") {
        REQUIRE(::chown(file.c_str(), somebody, 0) == 0);
        CHECK(changed_by_others(file) == file + " belongs to user 12345");
        CHECK(changed_by_others(link) == file + " belongs to user 12345");
    }
    SECTION("a link of somebody else") {
        REQUIRE(::lchown(link.c_str(), somebody, 0) == 0);
        CHECK(changed_by_others(link) == link + " belongs to user 12345");
        CHECK(changed_by_others(file).empty());
    }
    SECTION("a folder of somebody else, on the way") {
        REQUIRE(::chown(folder.path.c_str(), somebody, 0) == 0);
        CHECK(changed_by_others(file) == folder.path + " belongs to user 12345");
        CHECK(changed_by_others(folder.path + "/not-there") ==
              folder.path + " belongs to user 12345");
    }
    SECTION("a folder that others may write, unless it is sticky") {
        REQUIRE(::chmod(folder.path.c_str(), 0775) == 0);
        CHECK(changed_by_others(file) == folder.path + " can be written by others than root");
        REQUIRE(::chmod(folder.path.c_str(), 01777) == 0);
        CHECK(changed_by_others(file).empty());
        CHECK(changed_by_others(folder.path + "/not-there/nor-this") ==
              folder.path + " can be written by others than root");
    }
    SECTION("a file that others may write") {
        REQUIRE(::chmod(file.c_str(), 0646) == 0);
        CHECK(changed_by_others(link) == file + " can be written by others than root");
    }
    SECTION("links in a ring") {
        const std::string ring = folder.path + "/ring";
        REQUIRE(::symlink("ring", ring.c_str()) == 0);
        CHECK(changed_by_others(ring).find("ring: ") != std::string::npos);
    }
}
