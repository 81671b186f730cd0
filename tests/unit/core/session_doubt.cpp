// When a path may join the others (rtrs/core/session_doubt.h).
#include "rtrs/core/session_doubt.h"

#include <catch2/catch.hpp>
#include <cstddef>

using rtrs::ClientPath;
using rtrs::SessionDoubt;

namespace {

// Paths that nobody looks into.
struct Paths {
    std::byte places[4]{};
    ClientPath& operator[](std::size_t index) {
        return *reinterpret_cast<ClientPath*>(&places[index]);
    }
};

}  // namespace

TEST_CASE("one dial makes one session, several may make two") {
    SessionDoubt doubt;
    CHECK_FALSE(doubt.possible());
    doubt.dialled();
    CHECK_FALSE(doubt.possible());
    doubt.dialled();
    CHECK(doubt.possible());
}

TEST_CASE("a path joins at the answer to what was asked after it was accepted") {
    Paths paths;
    SessionDoubt doubt;
    doubt.waits(paths[1]);
    doubt.wants_sign(paths[1], paths[0], 7);
    CHECK(doubt.anybody_waits());
    CHECK(doubt.without_hope() == nullptr);
    CHECK(doubt.may_join(paths[0], 7) == nullptr);  // that was asked before
    CHECK(doubt.may_join(paths[2], 8) == nullptr);  // of that path nothing is wanted
    CHECK(doubt.may_join(paths[0], 8) == &paths[1]);
    doubt.leaves(paths[1]);
    CHECK_FALSE(doubt.anybody_waits());
    CHECK(doubt.may_join(paths[0], 9) == nullptr);
}

TEST_CASE("the sign of any path that is up is enough") {
    Paths paths;
    SessionDoubt doubt;
    doubt.waits(paths[2]);
    doubt.wants_sign(paths[2], paths[0], 5);
    doubt.wants_sign(paths[2], paths[1], 0);
    doubt.ended(paths[0]);
    CHECK(doubt.may_join(paths[0], 6) == nullptr);
    CHECK(doubt.without_hope() == nullptr);
    CHECK(doubt.may_join(paths[1], 1) == &paths[2]);
}

TEST_CASE("without those whose signs are wanted a path is without hope") {
    Paths paths;
    SessionDoubt doubt;
    doubt.waits(paths[2]);
    doubt.wants_sign(paths[2], paths[0], 0);
    doubt.waits(paths[3]);
    doubt.wants_sign(paths[3], paths[1], 0);
    doubt.ended(paths[0]);
    CHECK(doubt.without_hope() == &paths[2]);
    doubt.leaves(paths[2]);
    CHECK(doubt.without_hope() == nullptr);
    doubt.ended(paths[1]);
    CHECK(doubt.without_hope() == &paths[3]);
}

TEST_CASE("those that may join do so in the order in which they were accepted") {
    Paths paths;
    SessionDoubt doubt;
    for (const std::size_t waiting : {3u, 1u, 2u}) {
        doubt.waits(paths[waiting]);
        doubt.wants_sign(paths[waiting], paths[0], 1);
    }
    for (const std::size_t next : {3u, 1u, 2u}) {
        ClientPath* const joins = doubt.may_join(paths[0], 2);
        REQUIRE(joins == &paths[next]);
        doubt.leaves(*joins);
    }
    CHECK_FALSE(doubt.anybody_waits());
}
