// Messages with tags over whole sessions: both ways, within bounded memory, and what is refused.
#include <malloc.h>

#include "tests/sim/messages_world.h"

using namespace simtest;

TEST_CASE("messages: eager and rendezvous arrive in both directions") {
    Street street(message_options(1));
    REQUIRE(street.up());
    for (int i = 0; i < 300; ++i) {
        for (End* end : {street.client->end.get(), street.server->end.get()}) {
            end->send();
            end->post(any);
        }
        street.world.run_for(1ms);
    }
    cover(street, *street.client->end);
    cover(street, *street.server->end);
    CHECK(street.all_arrived());
    CHECK(street.client->end->service.status().rendezvous > 50);
    CHECK(street.client->end->service.status().registrations == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: a flood that nobody waits for costs bounded memory") {
    Street street(message_options(2));
    REQUIRE(street.up());
    End& client = *street.client->end;
    for (int i = 0; i < 500; ++i) CHECK(client.send());
    street.world.run_for(2s);
    const MessageOptions& options = *street.options.server.messages;
    const MessageStatus status = street.server->end->service.status();
    CHECK(status.unexpected == options.window);
    CHECK(status.unexpected_bytes <= options.window * options.eager_bytes);
    CHECK(client.service.status().sending > 400);
    // Its memory is registered for what is announced alone.
    CHECK(client.service.status().registrations <= options.window);
    cover(street, *street.server->end);
    CHECK(street.server->end->delivered == 500);
    CHECK(street.client->session.status().paths[0].reconnects == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: what a flood of the longest eager messages takes, measured") {
    SceneOptions options = quick_options(2);
    options.client.messages = options.server.messages = MessageOptions{};
    Street street(options);
    REQUIRE(street.up());
    const MessageOptions& limits = *options.server.messages;
    for (std::uint32_t i = 0; i < limits.sends_max; ++i) {
        MessageBuffer content(limits.eager_bytes);
        std::ranges::fill(content.bytes(), std::byte{1});
        REQUIRE(!street.client->end->service.send(1, std::move(content), nullptr, nullptr));
    }
    // From here on the sender has what it needs.
    const std::size_t before = ::mallinfo2().uordblks;
    street.world.run_for(2s);
    const std::size_t after = ::mallinfo2().uordblks;
    const MessageStatus status = street.server->end->service.status();
    CHECK(status.unexpected == limits.window);
    CHECK(status.unexpected_bytes == limits.window * limits.eager_bytes);
    const std::size_t grown = after > before ? after - before : 0;
    fmt::print("{} messages of {} bytes: {} wait, the heap grew by {} bytes\n", limits.sends_max,
               limits.eager_bytes, status.unexpected, grown);
    // What is kept beside each one's content, and the growth of lists.
    CHECK(grown <= limits.window * (limits.eager_bytes + 512) + 16384);
    street.world.run_for(10s);
    CHECK(street.server->end->service.status().unexpected == limits.window);
    CHECK(::mallinfo2().uordblks <= after + 16384);
    street.report();
}

TEST_CASE("messages: too long for the receive, for us, for the peer") {
    SceneOptions options = message_options(3);
    options.server.messages->longest_bytes = 2048;
    Street street(options);
    REQUIRE(street.up());
    MessageService& client = *street.client->session.messages();
    MessageService& server = street.server->end->service;
    std::vector<std::pair<std::uint64_t, std::error_code>> got;
    std::vector<std::error_code> sent;
    const auto receive = [](void* list, const ReceivedMessage& message) {
        static_cast<decltype(got)*>(list)->emplace_back(message.bytes, message.error);
    };
    const auto note = [](void* list, std::error_code error) {
        static_cast<decltype(sent)*>(list)->push_back(error);
    };
    for (int i = 0; i < 3; ++i) REQUIRE(server.receive(any, 100, receive, &got));
    CHECK(client.send(1, MessageBuffer(1 << 17), note, &sent) == std::errc::message_size);
    for (const std::size_t bytes : {2049, 101, 1000, 100}) {
        CHECK(!client.send(1, MessageBuffer(bytes), note, &sent));
    }
    street.world.run_for(100ms);
    const auto too_long = std::make_error_code(std::errc::message_size);
    REQUIRE(got.size() == 3);
    CHECK(got[0] == std::pair<std::uint64_t, std::error_code>(101, too_long));
    CHECK(got[1] == std::pair<std::uint64_t, std::error_code>(1000, too_long));
    CHECK(got[2] == std::pair<std::uint64_t, std::error_code>(100, {}));
    REQUIRE(sent.size() == 4);
    CHECK(sent[0] == too_long);
    CHECK(client.status().registrations == 0);
    CHECK(client.status().sending == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: what cannot be registered fails in time, and the next ones go on") {
    Street street(message_options(5));
    REQUIRE(street.up());
    MessageService& client = *street.client->session.messages();
    MessageService& server = street.server->end->service;
    std::vector<std::pair<std::uint64_t, std::error_code>> got;
    std::vector<std::error_code> sent;
    const auto receive = [](void* list, const ReceivedMessage& message) {
        static_cast<decltype(got)*>(list)->emplace_back(message.bytes, message.error);
    };
    const auto note = [](void* list, std::error_code error) {
        static_cast<decltype(sent)*>(list)->push_back(error);
    };
    constexpr std::uint32_t for_ever = 1'000'000;
    const auto no_memory = std::make_error_code(std::errc::not_enough_memory);
    for (int i = 0; i < 4; ++i) REQUIRE(server.receive(any, 1 << 16, receive, &got));
    const auto send_two = [&] {
        CHECK(!client.send(1, MessageBuffer(5000), note, &sent));
        CHECK(!client.send(1, MessageBuffer(100), note, &sent));
        street.world.run_for(900ms);
    };

    SECTION("at the sender") {
        street.client->fabric.refuse_next().registrations = for_ever;
        send_two();
        CHECK(sent.empty());
        street.world.run_for(200ms);
        REQUIRE(sent.size() == 2);
        CHECK(sent[0] == no_memory);
        CHECK(!sent[1]);
        REQUIRE(got.size() == 1);
        CHECK(got[0] == std::pair<std::uint64_t, std::error_code>(100, {}));
    }
    SECTION("at the receiver") {
        street.server->fabric.refuse_next().registrations = for_ever;
        send_two();
        CHECK(got.empty());
        street.world.run_for(200ms);
        REQUIRE(got.size() == 2);
        CHECK(got[0] == std::pair<std::uint64_t, std::error_code>(5000, no_memory));
        CHECK(got[1] == std::pair<std::uint64_t, std::error_code>(100, {}));
        CHECK(sent.size() == 2);
    }
    street.client->fabric.refuse_next().registrations = 0;
    street.server->fabric.refuse_next().registrations = 0;
    got.clear();
    sent.clear();
    send_two();
    CHECK(got.size() == 2);
    CHECK(sent == std::vector<std::error_code>(2));
    CHECK(client.status().sending == 0);
    CHECK(client.status().registrations == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: a peer without them sees nothing of them") {
    SceneOptions options = message_options(4);
    SECTION("the server") { options.server.messages.reset(); }
    SECTION("the client") { options.client.messages.reset(); }
    Street street(options);
    CHECK(street.world.run_until([&] { return street.client->links_up == 1; }, 5s));
    street.world.run_for(2s);
    CHECK_FALSE(street.client->session.peer_has_messages());
    CHECK(street.server->end == nullptr);
    // Of the path, and none besides.
    CHECK(street.world.network().connections() == 3);
    if (street.client->end) {
        street.client->end->send();
        street.world.run_for(1s);
        CHECK(street.client->end->service.status().sending == 1);
        CHECK_FALSE(street.client->end->service.status().up);
    }
    street.client->session.close();
    CHECK(street.world.run_until([&] { return street.client->closed; }, 20s));
    if (street.client->end) CHECK(street.client->end->failed == 1);
    street.report();
}

TEST_CASE("messages: a receive of before the other end was made anew cancels no later one") {
    Street street(message_options(8));
    REQUIRE(street.up());
    MessageService& client = *street.client->session.messages();
    std::vector<std::error_code> got;
    const auto receive = [](void* list, const ReceivedMessage& message) {
        static_cast<decltype(got)*>(list)->push_back(message.error);
    };
    const auto before = client.receive(any, 100, receive, &got);
    REQUIRE(before);
    street.crash_server(SimHost::CrashSeen::by_reset);
    street.start_server();
    REQUIRE(street.world.run_until([&] { return street.client->resets == 1; }, 20s));
    REQUIRE(street.up());
    CHECK(got == std::vector{make_error_code(Error::path_lost)});
    got.clear();
    const auto after = client.receive(any, 100, receive, &got);
    REQUIRE(after);
    CHECK(*after != *before);
    CHECK_FALSE(client.cancel(*before));
    REQUIRE(!street.server->end->service.send(1, MessageBuffer(50), nullptr, nullptr));
    CHECK(street.world.run_until([&] { return got.size() == 1; }, 1s));
    CHECK(got == std::vector<std::error_code>(1));
    CHECK_FALSE(client.cancel(*after));
    const auto unwanted = client.receive(any, 100, receive, &got);
    REQUIRE(unwanted);
    CHECK(client.cancel(*unwanted));
    street.report();
}

TEST_CASE("messages: a path that is lost with their connection says what the system said of it") {
    Street street(message_options(7));
    REQUIRE(street.up());
    // The next that posts is the connection of messages.
    street.client->fabric.options().lose_connection_per_million = 1'000'000;
    street.client->end->send();
    CHECK(street.world.run_until([&] { return !street.client->session.link_up(); }, 50ms));
    street.client->fabric.options().lose_connection_per_million = 0;
    CHECK(street.client->down_for == std::errc::connection_reset);
    REQUIRE(street.up());
    cover(street, *street.client->end);
    street.close();
    street.report();
}
