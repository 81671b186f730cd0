// Messages with tags from a peer that is written by hand: what no peer of ours says, or so late.
#include "rtrs/wire/tag.h"
#include "tests/sim/messages_world.h"
#include "tests/sim/raw_peer.h"

using namespace simtest;

TEST_CASE("messages: what is not in order drops the path of its sender alone") {
    Street street(message_options(5));
    REQUIRE(street.up());
    RawClient raw(street.world, *street.client_host, "10.0.0.1:1235");
    raw.request.features = features_of(Feature::failover, Feature::messages);
    raw.request.reconnect_count = 1;
    REQUIRE(raw.open(2, "raw", 16, 8192));
    raw.request.connection_count = 1;
    raw.request.purpose = ConnectionPurpose::messages;
    raw.request.first_connection = FirstConnection::no;
    std::vector<std::byte> hello(16 + TagHello::wire_bytes);
    TagHeader{.user_data = 1}.emit(hello);
    TagHello{.window = 4, .eager_bytes = 256, .longest_bytes = 1024, .life = 5}.emit(
        MutableBytes(hello).subspan(16));
    const auto header = [](TagHeaderOperation operation, std::uint32_t number, std::size_t bytes) {
        std::vector<std::byte> message(16 + bytes);
        TagHeader{.operation = operation, .user_data = number, .tag = 1}.emit(message);
        return message;
    };
    const auto rendezvous = [&](std::uint32_t bytes) {
        auto message = header(TagHeaderOperation::rendezvous, 1, 16);
        RendezvousHeader{.address = 1, .key = 2, .bytes = bytes}.emit(
            MutableBytes(message).subspan(16));
        return message;
    };
    std::vector<std::byte> bad;
    bool greet = true;
    SECTION("no hello first") {
        greet = false;
        bad = header(TagHeaderOperation::eager, 1, 4);
    }
    SECTION("a second hello") { bad = hello; }
    SECTION("a bad hello") {
        greet = false;
        bad = hello;
        bad[16 + 3] = std::byte{0};
    }
    SECTION("an unknown operation") { bad.assign(16, std::byte{4}); }
    SECTION("too short") { bad.assign(15, std::byte{}); }
    SECTION("a message is missing") { bad = header(TagHeaderOperation::eager, 2, 4); }
    SECTION("an impossible number") { bad = header(TagHeaderOperation::eager, 0xffffffff, 4); }
    SECTION("what was never sent is finished") { bad = header(TagHeaderOperation::finished, 1, 0); }
    SECTION("an unknown notice") { bad = header(TagHeaderOperation::no_tag, 7, 0); }
    SECTION("a rendezvous of nothing") { bad = rendezvous(0); }
    SECTION("a rendezvous that is too long") { bad = rendezvous((1 << 16) + 1); }
    SECTION("a rendezvous without its header") {
        bad = header(TagHeaderOperation::rendezvous, 1, 15);
    }
    RawConnection& link = raw.dial(0);
    street.world.run_until([&] { return link.established || link.rejected; }, 1s);
    REQUIRE(link.established);
    if (greet) {
        raw.send(static_cast<std::uint16_t>(raw.connections.size() - 1), hello);
        street.world.run_for(5ms);
        CHECK(raw.alive());
    }
    raw.send(static_cast<std::uint16_t>(raw.connections.size() - 1), bad);
    street.world.run_for(20ms);
    CHECK(link.disconnected);
    CHECK_FALSE(raw.alive());
    // The other client's path has not noticed.
    CHECK(street.client->session.status().paths[0].reconnects == 0);
    CHECK(street.client->end->service.status().up);
    raw.end();
    street.report();
}

// The sender has lost a link, and says all again on another; its last words on the first come later
// than those, and then the receiver loses that link, too.
TEST_CASE("messages: a late header from a lost link orphans nothing") {
    SceneOptions options = message_options(6);
    options.addresses = 2;
    Street street(options);
    REQUIRE(street.up());
    RawClient late(street.world, *street.client_host, "10.0.0.1:1235");
    RawClient good(street.world, *street.client_host, "10.0.1.1:1235");
    good.request.session_uuid = late.request.session_uuid;
    std::vector<std::byte> hello(16 + TagHello::wire_bytes);
    TagHeader{.user_data = 1}.emit(hello);
    TagHello{.window = 4, .eager_bytes = 256, .longest_bytes = 1024, .life = 5}.emit(
        MutableBytes(hello).subspan(16));
    constexpr std::uint16_t messages = 2;  // its place among a path's connections
    for (RawClient* raw : {&late, &good}) {
        raw->request.features = features_of(Feature::failover, Feature::messages);
        if (raw == &good) raw->request.first_connection = FirstConnection::no;
        REQUIRE(raw->open(messages, "raw", 16, 8192));
        raw->request.connection_count = 1;
        raw->request.purpose = ConnectionPurpose::messages;
        raw->dial(0);
        REQUIRE(street.world.run_until([&] { return raw->alive(); }, 1s));
        raw->send(messages, hello);
        street.world.run_for(5ms);
    }
    const auto announce = [&](RawClient& raw) {
        std::vector<std::byte> message(16 + 16);
        TagHeader{.operation = TagHeaderOperation::rendezvous, .user_data = 1, .tag = 1}.emit(
            message);
        const RemoteBuffer content = raw.own(600);
        RendezvousHeader{.address = content.address, .key = content.key, .bytes = 600}.emit(
            MutableBytes(message).subspan(16));
        raw.send(messages, message);
        street.world.run_for(5ms);
    };
    const auto finishes = [&](RawClient& raw) {
        RawConnection& link = *raw.connections[messages];
        return std::ranges::count_if(link.received, [&](const Completion& completion) {
            const auto header = TagHeader::parse(link.content(completion));
            return header && header->operation == TagHeaderOperation::finished;
        });
    };
    MessageService& service = street.server->end->service;
    unsigned received = 0;
    const auto receive = [&] {
        const auto posted = service.receive(
            any, 1024,
            [](void* count, const ReceivedMessage& message) {
                if (!message.error && message.bytes == 600) ++*static_cast<unsigned*>(count);
            },
            &received);
        CHECK(posted.has_value());
        street.world.run_for(5ms);
    };
    announce(good);
    announce(late);
    SECTION("before it was read") {
        late.connections[messages]->endpoint->disconnect();
        street.world.run_for(5ms);
        receive();
    }
    SECTION("after") {
        receive();
        late.connections[messages]->endpoint->disconnect();
        street.world.run_for(5ms);
    }
    CHECK(received == 1);
    CHECK(good.alive());
    CHECK(finishes(good) == 1);
    late.end();
    good.end();
    street.report();
}
