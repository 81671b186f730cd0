// Which medium a session's volumes were opened on.
#include "rnbd-server/known_media.h"

#include <catch2/catch.hpp>

using rnbd::KnownMedia;

namespace {

constexpr std::uint64_t one = 1, other = 2, unknown = 0;

}  // namespace

TEST_CASE("known media: a writer stays on what it has opened") {
    const std::string name = "vol1";
    KnownMedia media;
    CHECK(!media.is_another({name, 7}, one));
    media.opened({name, 7}, one);
    CHECK(!media.is_another({name, 7}, one));
    CHECK(media.is_another({name, 7}, other));
    CHECK(!media.is_another({name, 7}, unknown));
    CHECK(!media.is_another({name, 8}, other));  // mapped anew
    media.opened({name, 7}, other);
    CHECK(media.is_another({name, 7}, one));
    media.forget({name, 7});
    CHECK(!media.is_another({name, 7}, one));
}

TEST_CASE("known media: a reader is known by the name") {
    const std::string name = "vol1", another = "vol2";
    KnownMedia media;
    media.opened({name, 0}, one);
    media.opened({another, 0}, other);
    CHECK(media.is_another({name, 0}, other));
    CHECK(!media.is_another({another, 0}, other));
    CHECK(!media.is_another({name, 7}, other));
    media.forget({name, 0});
    CHECK(!media.is_another({name, 0}, other));
    CHECK(media.is_another({another, 0}, one));
}

TEST_CASE("known media: of too many the oldest is forgotten") {
    const std::string name = "vol1";
    KnownMedia media;
    for (std::uint64_t writer = 1; writer <= KnownMedia::known_max + 1; ++writer) {
        media.opened({name, writer}, one);
    }
    CHECK(!media.is_another({name, 1}, other));
    CHECK(media.is_another({name, 2}, other));
    CHECK(media.is_another({name, KnownMedia::known_max + 1}, other));
}
