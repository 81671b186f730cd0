// A device is closed when nothing of it is in flight any more, however often that is asked for.
#include "tests/unit/rnbd-server/by_hand.h"

using namespace rnbd;
using namespace rnbd::told;

TEST_CASE("close: asked for twice, it is answered twice, and not before the last write has ended") {
    ServerConfig::Export slow =
        memory("vol", {{.session = "host-a", .access = AccessMode::read_write}});
    slow.storage.delay = DelayOptions{.write = std::chrono::milliseconds(200)};
    World world({slow});
    ByHand hand{.world = world, .answer = {}};
    const std::uint32_t vol = hand.open("vol");
    std::vector<std::string> answers;
    struct Sent {
        std::vector<std::string>& answers;
        std::string what;
    };
    Sent write{answers, "write"}, close{answers, "close"};
    const auto send = [&](rtrs::Bytes message, std::uint32_t bytes, Sent& sent) {
        auto permit = world.session->rtrs().try_take();
        REQUIRE(permit);
        world.session->rtrs().submit(
            std::move(*permit), {.direction = rtrs::Direction::write,
                                 .message = message,
                                 .payload_bytes = bytes,
                                 .responded =
                                     [](void* context, rtrs::Permit, std::error_code error) {
                                         const Sent& one = *static_cast<Sent*>(context);
                                         one.answers.push_back(one.what + (error ? " failed" : ""));
                                     },
                                 .context = &sent});
    };
    std::array<std::byte, IoMessage::wire_bytes> io{};
    IoMessage{.device_id = vol, .operation = Operation::write, .bytes = 4096}.emit(io);
    send(io, 4096, write);
    std::array<std::byte, CloseMessage::wire_bytes> message{};
    CloseMessage{.device_id = vol}.emit(message);
    for (int i = 0; i < 3; ++i) send(message, 0, close);
    world.run_until([&] { return answers.size() == 4; });
    CHECK(answers == std::vector<std::string>{"write", "close", "close", "close"});
    CHECK(world.target.find("vol")->opens().empty());
    // Of an id that is not there any more.
    send(message, 0, close);
    world.run_until([&] { return answers.size() == 5; });
    CHECK(answers.back() == "close");
}
