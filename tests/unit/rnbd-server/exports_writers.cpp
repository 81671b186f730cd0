// Exports and the file of those who write to them.
#include <memory>

#include "tests/unit/rnbd-server/export_fixtures.h"

using namespace rnbd;
using namespace rnbd::told;

namespace {

// A volume beside a writers' file.
struct WithWriterFile {
    explicit WithWriterFile(std::vector<ServerConfig::Allow> allow)
        : volume(*reactor,
                 {.deferred = deferred, .claims = claims, .epochs = epochs, .writers = file},
                 memory("vol", std::move(allow))) {
        REQUIRE(!file.load());
        turns([&] { return volume.state() == Volume::State::ready; });
    }
    template <typename Done>
    void turns(Done done) {
        for (int i = 0; i < 2000 && !done(); ++i) reactor->run_once(5ms);
        REQUIRE(done());
    }
    Volume::Open* open(const std::string& session, AccessMode access, Writers::Id writer) {
        const auto made = volume.open(
            {.session = session, .host = "127.0.0.1", .access = access, .writer = writer});
        REQUIRE(made);
        return *made;
    }
    bool is_in_file() const { return file.is_written(volume.in_file()); }

    TemporaryFolder folder;
    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
    DeferredCompletions deferred{*reactor};
    EpochFile epochs{*reactor, ""};
    WriterFile file{*reactor, folder.file("writers")};
    MediumClaims claims;
    Volume volume;
};

}  // namespace

TEST_CASE("exports: where others may write, an open waits until it is in the file, no write does") {
    WithWriterFile world({{.session = "host-a", .access = AccessMode::migration},
                          {.session = "host-b", .access = AccessMode::migration}});
    Volume::Open* const first = world.open("host-a", AccessMode::migration, 17);
    CHECK_FALSE(world.is_in_file());
    world.turns([&] { return world.is_in_file(); });
    CHECK(world.volume.may_write(*first));
    Volume::Open* const second = world.open("host-b", AccessMode::migration, 18);
    CHECK_FALSE(world.is_in_file());
    CHECK(world.volume.may_write(*first));
    world.turns([&] { return world.is_in_file(); });
    WriterFile server_after_it(*world.reactor, world.file.path());
    REQUIRE(!server_after_it.load());
    CHECK(server_after_it.of("vol")->knows(17));
    CHECK(server_after_it.of("vol")->knows(18));
    world.volume.close(second);
    world.volume.close(first);
}

// Else a server that is killed and started again lets it in with what it held.
TEST_CASE("exports: a write waits until a former life of its own session is out on disk") {
    WithWriterFile world({{.session = "host-a", .access = AccessMode::read_write}});
    Volume::Open* const former = world.open("host-a", AccessMode::read_write, 17);
    CHECK(world.volume.may_write(*former));
    // No other one may write it: there is nobody to be remembered for.
    CHECK(world.is_in_file());
    world.volume.close(former);
    Volume::Open* const next = world.open("host-a", AccessMode::read_write, 18);
    CHECK(world.volume.is_out(17));
    CHECK_FALSE(world.volume.may_write(*next));
    world.turns([&] { return world.volume.may_write(*next); });
    WriterFile server_after_it(*world.reactor, world.file.path());
    REQUIRE(!server_after_it.load());
    CHECK(server_after_it.of("vol")->is_out(17));
    world.volume.close(next);
}
