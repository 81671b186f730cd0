#include "rtrs/core/packet_doubt.h"

#include <catch2/catch.hpp>

using namespace rtrs;
using namespace std::chrono_literals;
using End = PacketDoubt::End;

namespace {

struct Path {
    PacketDoubt doubt;
    Instant now{1h};

    void answered_after(Duration time) {
        now += time;
        doubt.answered(now);
    }
    bool ended_after(Duration time, End end) {
        now += time;
        return doubt.ended(end, now);
    }
    // As a path does that carries no large packet.
    void fall_into_doubt() {
        answered_after(0s);
        REQUIRE_FALSE(ended_after(10s, End::silent));
        answered_after(1s);
        REQUIRE(ended_after(10s, End::silent));
    }
};

}  // namespace

TEST_CASE("packet doubt: silent twice, though answered at once between, is dialled for small") {
    Path path;
    CHECK_FALSE(path.doubt.small());
    path.fall_into_doubt();
    CHECK(path.doubt.small());
}

TEST_CASE("packet doubt: what does not answer at once has lost all packets, not the large ones") {
    Path path;
    path.answered_after(0s);
    CHECK_FALSE(path.ended_after(10s, End::silent));
    path.doubt.failed();
    path.answered_after(5s);
    CHECK_FALSE(path.ended_after(10s, End::silent));
    CHECK_FALSE(path.doubt.small());
    // That one counts as the first again.
    path.answered_after(1s);
    CHECK(path.ended_after(10s, End::silent));
}

TEST_CASE("packet doubt: an attempt that this side begins anew changes nothing") {
    Path path;
    path.answered_after(0s);
    path.doubt.begins_anew();
    path.answered_after(1s);
    CHECK_FALSE(path.ended_after(10s, End::silent));
    path.answered_after(1s);
    path.doubt.begins_anew();
    path.answered_after(1s);
    CHECK(path.ended_after(10s, End::silent));
}

TEST_CASE("packet doubt: losses that are told, and those long after, are none") {
    Path path;
    path.answered_after(0s);
    const End first = GENERATE(End::told, End::silent);
    const End second = first == End::told ? End::silent : End::told;
    CHECK_FALSE(path.ended_after(10s, first));
    path.answered_after(1s);
    CHECK_FALSE(path.ended_after(10s, second));

    Path late;
    late.answered_after(0s);
    CHECK_FALSE(late.ended_after(10s, End::silent));
    late.answered_after(1s);
    CHECK_FALSE(late.ended_after(PacketDoubt::soon + 1s, End::silent));
    CHECK_FALSE(late.doubt.small());
}

TEST_CASE("packet doubt: small packets stay over other losses and failed attempts") {
    Path path;
    path.fall_into_doubt();
    path.answered_after(1s);
    CHECK_FALSE(path.ended_after(1h, End::told));
    path.doubt.failed();
    CHECK(path.doubt.small());
    path.answered_after(1s);
    CHECK_FALSE(path.ended_after(1s, End::told));
    CHECK(path.doubt.small());
}

TEST_CASE("packet doubt: lost in silence with small packets, it was something else") {
    Path path;
    path.fall_into_doubt();
    path.answered_after(1s);
    CHECK_FALSE(path.ended_after(10s, End::silent));
    CHECK_FALSE(path.doubt.small());
    // And that loss is no suspicion either.
    path.answered_after(1s);
    CHECK_FALSE(path.ended_after(10s, End::silent));
}

TEST_CASE("packet doubt: forgotten, it begins anew") {
    Path path;
    path.fall_into_doubt();
    path.doubt.forget();
    CHECK_FALSE(path.doubt.small());
    path.fall_into_doubt();
}
