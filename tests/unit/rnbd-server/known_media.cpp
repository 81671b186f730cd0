// Which medium a session's volumes were opened on.
#include "rnbd-server/known_media.h"

#include <catch2/catch.hpp>

using rnbd::KnownMedia;

namespace {

constexpr std::uint64_t one = 1, other = 2, unknown = 0;

}  // namespace

TEST_CASE("known media: a volume stays on what it was opened on") {
    KnownMedia media;
    CHECK(!media.is_another(7, one));
    media.opened(7, one);
    CHECK(!media.is_another(7, one));
    CHECK(media.is_another(7, other));
    CHECK(media.is_another(7, other));  // however often it asks
    CHECK(!media.is_another(7, unknown));
    CHECK(!media.is_another(8, other));  // mapped anew
    media.opened(7, other);
    CHECK(media.is_another(7, one));
    media.forget(7);
    CHECK(!media.is_another(7, one));
}

TEST_CASE("known media: of too many the oldest is forgotten") {
    KnownMedia media;
    for (std::uint64_t volume = 1; volume <= KnownMedia::known_max + 1; ++volume) {
        media.opened(volume, one);
    }
    CHECK(!media.is_another(1, other));
    CHECK(media.is_another(2, other));
    CHECK(media.is_another(KnownMedia::known_max + 1, other));
}
