// Which acknowledged writes are lost with a cache, and who has heard of it.
#include "rnbd/unflushed_writes.h"

#include <catch2/catch.hpp>

using namespace rnbd;

namespace {

UnflushedWrites in_cache(std::uint64_t epoch, int writes) {
    UnflushedWrites unflushed(0);
    REQUIRE_FALSE(unflushed.note_epoch(epoch));
    for (int i = 0; i < writes; ++i) unflushed.acknowledge();
    return unflushed;
}

}  // namespace

TEST_CASE("unflushed writes: a flush covers what was acknowledged when it was submitted") {
    UnflushedWrites unflushed = in_cache(5, 3);
    CHECK(unflushed.epoch() == 5);
    const auto covers = unflushed.acknowledged();
    unflushed.acknowledge();
    unflushed.flushed(covers);
    CHECK(unflushed.count() == 1);
    // One that was submitted before, and is answered after it.
    unflushed.flushed(covers - 1);
    CHECK(unflushed.count() == 1);
    CHECK(unflushed.losses().news == 0);
    CHECK_FALSE(unflushed.flushes_fail());
}

TEST_CASE("unflushed writes: another cache has lost what was not flushed") {
    UnflushedWrites unflushed = in_cache(5, 3);
    unflushed.flushed(1);
    CHECK_FALSE(unflushed.note_epoch(5));
    const auto loss = unflushed.note_epoch(6);
    REQUIRE(loss);
    CHECK(loss->writes == 2);
    CHECK(loss->flushed == 1);
    CHECK_FALSE(loss->of_former_life);
    CHECK(unflushed.epoch() == 6);
    CHECK(unflushed.count() == 0);
    CHECK(unflushed.losses().caches == 1);
    CHECK(unflushed.losses().writes == 2);
    CHECK(unflushed.losses().news == 1);
    REQUIRE(unflushed.flushes_fail());
    // One that covered a part of them was submitted before.
    unflushed.told(2);
    CHECK(unflushed.flushes_fail());
    unflushed.acknowledge();
    unflushed.told(unflushed.acknowledged());
    CHECK_FALSE(unflushed.flushes_fail());
    CHECK(unflushed.count() == 1);
}

TEST_CASE("unflushed writes: another cache loses nothing if all was flushed") {
    UnflushedWrites unflushed = in_cache(5, 3);
    unflushed.flushed(3);
    CHECK_FALSE(unflushed.note_epoch(6));
    CHECK(unflushed.epoch() == 6);
    CHECK_FALSE(unflushed.flushes_fail());
    CHECK(unflushed.losses().caches == 0);
}

TEST_CASE("unflushed writes: one that is answered after its cache was lost") {
    UnflushedWrites unflushed = in_cache(5, 0);
    CHECK_FALSE(unflushed.was_lost(5));
    (void)unflushed.note_epoch(6);
    CHECK(unflushed.was_lost(5));
    CHECK_FALSE(unflushed.was_lost(6));
    CHECK_FALSE(unflushed.was_lost(0));  // sent to a server that does not tell
}

TEST_CASE("unflushed writes: of a former life") {
    SECTION("whose cache is there yet") {
        UnflushedWrites unflushed(5);
        CHECK(unflushed.count() == 1);
        CHECK_FALSE(unflushed.note_epoch(5));
        unflushed.acknowledge();
        const auto loss = unflushed.note_epoch(6);
        REQUIRE(loss);
        CHECK(loss->of_former_life);
        CHECK(loss->writes == 2);
    }
    SECTION("and were flushed by this one") {
        UnflushedWrites unflushed(5);
        (void)unflushed.note_epoch(5);
        unflushed.flushed(unflushed.acknowledged());
        unflushed.acknowledge();
        const auto loss = unflushed.note_epoch(6);
        REQUIRE(loss);
        CHECK_FALSE(loss->of_former_life);
    }
    SECTION("were lost, which nobody has heard of") {
        UnflushedWrites unflushed(0);
        unflushed.lost_in_former_life();
        CHECK(unflushed.flushes_fail());
        CHECK(unflushed.count() == 0);
        CHECK(unflushed.losses().writes == 1);
        unflushed.told(unflushed.acknowledged());
        CHECK_FALSE(unflushed.flushes_fail());
    }
}

TEST_CASE("unflushed writes: a change that was lost in part is told though the loss was") {
    UnflushedWrites unflushed = in_cache(5, 2);
    const auto covers = unflushed.acknowledged();
    REQUIRE(unflushed.note_epoch(6));
    unflushed.told(covers);
    CHECK_FALSE(unflushed.flushes_fail());
    unflushed.acknowledge();
    unflushed.lost_in_part();
    CHECK(unflushed.losses().news == 2);
    unflushed.told(covers);
    CHECK(unflushed.flushes_fail());
    unflushed.told(unflushed.acknowledged());
    CHECK_FALSE(unflushed.flushes_fail());
}
