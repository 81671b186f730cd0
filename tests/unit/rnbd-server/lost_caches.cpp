// What a session sees of an export whose storage has lost its cache and goes on.
#include <array>
#include <optional>

#include "tests/contract/storage/nbd_server.h"
#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace rnbd::testing;

namespace {

// Asks by ids, as no volume of ours is so free to do.
struct ByHand {
    World& world;
    std::optional<int> answer;
    std::uint32_t id = 0;

    std::uint32_t open(const std::string& name) {
        std::array<std::byte, OpenMessage::wire_bytes> message{};
        OpenMessage{.access_mode = AccessMode::read_write, .device_name = name}.emit(message);
        answer.reset();
        world.session->rtrs().submit_user(
            rtrs::Direction::read, message, OpenResponse::size(features_known),
            [](void* context, std::error_code error, rtrs::Bytes response) {
                auto& self = *static_cast<ByHand*>(context);
                self.answer = error.value();
                if (const auto parsed = OpenResponse::parse(response)) self.id = parsed->device_id;
            },
            this);
        world.run_until([&] { return answer.has_value(); });
        CHECK(answer == 0);
        return id;
    }
    int ask(std::uint32_t device, Operation operation) {
        auto permit = world.session->rtrs().try_take();
        REQUIRE(permit);
        const std::uint32_t bytes = operation == Operation::write ? 4096 : 0;
        std::array<std::byte, IoMessage::wire_bytes> message{};
        IoMessage{.device_id = device, .operation = operation, .bytes = bytes}.emit(message);
        answer.reset();
        world.session->rtrs().submit(
            std::move(*permit),
            {.direction = sent_as_read(operation) ? rtrs::Direction::read : rtrs::Direction::write,
             .message = message,
             .payload_bytes = bytes,
             .responded =
                 [](void* context, rtrs::Permit, std::error_code error) {
                     static_cast<ByHand*>(context)->answer = error.value();
                 },
             .context = this});
        world.run_until([&] { return answer.has_value(); });
        return *answer;
    }
};

}  // namespace

TEST_CASE("lost caches: what was sent before the volume was opened again is not for the new one") {
    try {
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "file", "IMAGE"});
        ServerConfig::Export config;
        config.name = "vol";
        config.storage.kind = StorageOptions::Kind::nbd;
        config.storage.uri = served.server->uri();
        config.allow = {{.session = "host-a", .access = AccessMode::read_write}};
        World world({config});
        Volume& volume = *world.target.find("vol");
        world.run_until([&] { return volume.state() == Volume::State::ready; });
        ByHand hand{.world = world, .answer = {}};
        const std::uint32_t before = hand.open("vol");
        CHECK(hand.open("vol") == before);
        REQUIRE(hand.ask(before, Operation::write) == 0);
        served.server->kill();
        served.server->start();
        world.run_until([&] { return volume.losses() == 1; });
        CHECK(hand.ask(before, Operation::flush) == ENOTCONN);
        const std::uint32_t after = hand.open("vol");
        // As a flush that comes late, over another connection than the open.
        CHECK(hand.ask(before, Operation::flush) == ENOTCONN);
        CHECK(hand.ask(after, Operation::flush) == 0);
        CHECK(hand.open("vol") == after);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}
