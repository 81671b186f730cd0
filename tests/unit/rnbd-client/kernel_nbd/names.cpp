#include "rnbd-client/kernel_nbd/names.h"

#include <catch2/catch.hpp>

using rnbd::backend_identifier;

TEST_CASE("kernel names: plain ones are as they are configured") {
    CHECK(backend_identifier("host-a", "vol1") == "rnbd/host-a/vol1");
    CHECK(backend_identifier("a", "db_2.img") == "rnbd/a/db_2.img");
}

TEST_CASE("kernel names: nothing leaves the folder or breaks a udev rule") {
    CHECK(backend_identifier("a", "x/y") == "rnbd/a/x\\x2fy");
    CHECK(backend_identifier("a", "..") == "rnbd/a/\\x2e.");
    CHECK(backend_identifier("a$b", "c'd\"e\\") == "rnbd/a\\x24b/c\\x27d\\x22e\\x5c");
    CHECK(backend_identifier("a", "x/y") != backend_identifier("a", "x\\x2fy"));
}

TEST_CASE("kernel device: no volume has the name of another one's partition") {
    CHECK(backend_identifier("a", "vol-part1") == "rnbd/a/vol\\x2dpart1");
    CHECK(backend_identifier("a", "-part12") == "rnbd/a/\\x2dpart12");
    CHECK(backend_identifier("a", "vol-part") == "rnbd/a/vol-part");
    CHECK(backend_identifier("a", "vol-part1x") == "rnbd/a/vol-part1x");
    CHECK(backend_identifier("a", "part1") == "rnbd/a/part1");
    CHECK(backend_identifier("a", "123") == "rnbd/a/123");
}
