// Requests that no volume of ours makes: by ids, and in directions that do not fit.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "tests/unit/rnbd-server/told_world.h"

namespace rnbd::told {

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
        return ask(device, operation,
                   sent_as_read(operation) ? rtrs::Direction::read : rtrs::Direction::write);
    }
    int ask(std::uint32_t device, Operation operation, rtrs::Direction direction) {
        return ask(device, operation, direction, carries_data(operation) ? 4096 : 0);
    }
    int ask(std::uint32_t device, Operation operation, rtrs::Direction direction,
            std::uint32_t bytes, IoFlag flags = IoFlag::none) {
        auto permit = world.session->rtrs().try_take();
        REQUIRE(permit);
        std::array<std::byte, IoMessage::wire_bytes> message{};
        IoMessage{.device_id = device, .operation = operation, .flags = flags, .bytes = bytes}.emit(
            message);
        answer.reset();
        world.session->rtrs().submit(std::move(*permit),
                                     {.direction = direction,
                                      .message = message,
                                      .payload_bytes = carries_data(operation) ? bytes : 0,
                                      .responded =
                                          [](void* context, rtrs::Permit, std::error_code error) {
                                              static_cast<ByHand*>(context)->answer = error.value();
                                          },
                                      .context = this});
        world.run_until([&] { return answer.has_value(); });
        return *answer;
    }
};

}  // namespace rnbd::told
