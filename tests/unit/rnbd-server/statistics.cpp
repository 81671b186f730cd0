// A server's own view of a session, asked for by its client.
#include <optional>

#include "rnbd/remote_statistics.h"
#include "rtrs/base/error.h"
#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;

namespace {

struct OneVolume final : RemoteVolumeHandler {
    OneVolume(World& its_world, const std::string& name)
        : world(its_world), volume(*its_world.session, {.name = name}, *this) {
        world.run_until([&] { return volume.state() == VolumeState::open; });
    }
    ~OneVolume() {
        volume.close();
        world.run_until([&] { return closed; });
    }
    void on_volume_changed(RemoteVolume&) override {}
    void on_volume_closed(RemoteVolume&) override { closed = true; }

    std::error_code write(std::uint64_t offset, std::uint32_t bytes) {
        auto permit = world.session->rtrs().try_take();
        REQUIRE(permit);
        std::optional<std::error_code> result;
        volume.submit(std::move(*permit),
                      {.operation = VolumeOperation::write,
                       .offset = offset,
                       .bytes = bytes,
                       .responded =
                           [](void* context, rtrs::Permit, std::error_code error) {
                               *static_cast<std::optional<std::error_code>*>(context) = error;
                           },
                       .context = &result});
        world.run_until([&] { return result.has_value(); });
        return *result;
    }

    World& world;
    bool closed = false;
    RemoteVolume volume;
};

StatisticsResponse ask(World& world) {
    std::optional<StatisticsResponse> answer;
    world.session->statistics().ask(
        [&](std::error_code error, const StatisticsResponse& statistics) {
            CHECK(!error);
            answer = statistics;
        });
    world.run_until([&] { return answer.has_value(); });
    return *answer;
}

}  // namespace

TEST_CASE("statistics: what the server knows of the session") {
    World world({memory("vol", {{.session = "host-a", .access = AccessMode::read_write}})});
    CHECK(ask(world).queue_depth == 16);
    OneVolume one(world, "vol");
    for (int i = 0; i < 5; ++i) CHECK(!one.write(4096 * i, 4096));
    StatisticsResponse statistics = ask(world);
    CHECK(statistics.writes == 5);
    CHECK(statistics.write_bytes == 5 * 4096);
    CHECK(statistics.reads + statistics.refused + statistics.storage_errors + statistics.stale ==
          0);
    CHECK(statistics.in_flight == 0);
    CHECK(statistics.p50 <= statistics.p99);
    CHECK(statistics.p99 <= statistics.longest);
    // The client knows a larger size for a moment: the server refuses what lies behind the end.
    world.target.find("vol")->resize(4096, Volume::Shrink::cut, [](const auto&) {});
    CHECK(one.write(1 << 16, 4096));
    statistics = ask(world);
    CHECK(statistics.refused == 1);
    CHECK(statistics.storage_errors == 0);
    CHECK(statistics.writes == 5);
}

TEST_CASE("statistics: who asks while a question is on its way gets its answer; each is answered") {
    World world({});
    int answers = 0;
    for (int i = 0; i < 100; ++i) {
        world.session->statistics().ask([&](std::error_code error, const StatisticsResponse&) {
            CHECK(!error);
            ++answers;
        });
    }
    world.run_until([&] { return answers == 100; });
    ask(world);
    bool closed = false;
    world.session->statistics().ask([&](std::error_code error, const StatisticsResponse&) {
        CHECK(error == rtrs::Error::closed);
        closed = true;
    });
    world.session->close();
    world.run_until([&] { return closed; });
    // Nobody can be asked any more.
    std::error_code refused;
    world.session->statistics().ask(
        [&](std::error_code error, const StatisticsResponse&) { refused = error; });
    CHECK(refused == std::errc::not_connected);
}
