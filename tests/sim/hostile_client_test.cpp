// Clients that break the rules: each costs its own path at most, and nobody else anything.
#include <catch2/catch.hpp>
#include <cstring>

#include "rtrs/core/server_path.h"
#include "tests/sim/raw_peer.h"
#include "tests/sim/session_world.h"

using namespace simtest;

namespace {

// A server with a good client, and a host for a bad one.
struct Town {
    explicit Town(SceneOptions options = quick_options(3))
        : scene(options), host(scene.world.add_host({"10.0.0.66"})) {
        scene.start_server();
        scene.start_client();
        REQUIRE(scene.ready());
        scene.client->run(2, 1u << 30);
    }
    std::unique_ptr<RawClient> raw() {
        return std::make_unique<RawClient>(scene.world, host, scene.address());
    }
    std::unique_ptr<RawClient> opened(std::uint16_t connections = 2) {
        auto client = raw();
        REQUIRE(client->open(connections, "bad", scene.options.server.queue_depth,
                             scene.options.server.chunk_bytes));
        return client;
    }
    // The good client never noticed; the bad one's session ends.
    void check_peace(std::unique_ptr<RawClient> client) {
        if (client) client->end();
        CHECK(scene.run_until([&] { return scene.server->server.sessions().size() == 1; }, 2s));
        CHECK(scene.client->links_down == 0);
        scene.client->pause();
        CHECK(scene.finish());
        CHECK(scene.close_client());
        CHECK(scene.close_server());
        for (const std::string& line : scene.findings.lines) FAIL_CHECK(line);
    }

    Scene scene;
    SimHost& host;
};

// Says that it lives whenever the server asks.
void keep_alive(RawClient& client) {
    client.connections[0]->on_receive = [&client](RawConnection& one, const Completion& told) {
        (void)one.endpoint->post_receive(
            told.context, {one.receives.data() + told.context * RawConnection::receive_bytes,
                           RawConnection::receive_bytes});
        if (told.opcode == CompletionOpcode::receive_immediate &&
            told.immediate == ImmediateCodec::heartbeat()) {
            client.write(0, {}, {}, ImmediateCodec::heartbeat_ack());
        }
    };
}

// A write of the server's protocol: data, IoRequest, WriteMessage.
std::vector<std::byte> write_request(std::uint64_t epoch, std::uint32_t data_bytes) {
    std::vector<std::byte> bytes(data_bytes + sizeof(IoRequest) + WriteMessage::wire_bytes);
    const IoRequest io{.epoch = epoch, .block = 0, .value = 0, .bytes = data_bytes};
    std::memcpy(bytes.data() + data_bytes, &io, sizeof io);
    WriteMessage{.user_bytes = sizeof io}.emit(MutableBytes(bytes).subspan(data_bytes + sizeof io));
    return bytes;
}

}  // namespace

TEST_CASE("connect requests that are not") {
    Town town;
    auto client = town.raw();
    std::byte good[ConnectRequestMessage::wire_bytes];
    client->request.connection_count = 2;
    client->request.emit(good);
    std::vector<std::vector<std::byte>> bad;
    bad.push_back({});
    // Not longer: the fabric may pad it with zeroes, which is then a good one.
    for (std::size_t bytes = 1; bytes <= 8; ++bytes) bad.push_back({good, good + bytes});
    for (const auto& [at, value] : std::vector<std::pair<std::size_t, int>>{
             {2, 0}, {5, 3}, {6, 2}, {6, 255}, {8, 0}, {9, 255}}) {
        bad.emplace_back(good, good + sizeof good);
        bad.back()[at] = static_cast<std::byte>(value);
    }
    Random random(4);
    for (int i = 0; i < 50; ++i) {
        bad.emplace_back(sizeof good);
        for (std::byte& byte : bad.back()) byte = static_cast<std::byte>(random.next());
    }
    for (const auto& bytes : bad) {
        RawConnection& one = client->dial_bytes(bytes);
        town.scene.world.run_for(1ms);
        CHECK(one.rejected == ECONNRESET);
        town.scene.world.run_for(1ms);
        client->connections.clear();
    }
    town.check_peace(std::move(client));
}

TEST_CASE("only an additional path of a session that is there") {
    Town town;
    auto client = town.raw();
    client->request.first_connection = FirstConnection::no;
    RawConnection& one = client->dial(0);
    town.scene.world.run_for(1ms);
    CHECK(one.rejected == ENXIO);
    town.check_peace(std::move(client));
}

TEST_CASE("half an opening is dropped in time") {
    Town town;
    auto client = town.raw();
    client->request.connection_count = 3;
    SECTION("no connection 0") { client->dial(2); }
    SECTION("not all connections") { CHECK((client->dial(0), client->dial(1), true)); }
    SECTION("no info request") { CHECK(client->connect(3)); }
    town.scene.world.run_for(10ms);
    CHECK(client->alive());
    CHECK(town.scene.server->server.sessions().size() == 2);
    town.scene.world.run_for(1100ms);
    CHECK(!client->alive());
    CHECK(town.scene.server->server.sessions().size() == 1);
    town.check_peace(std::move(client));
}

TEST_CASE("an info exchange that breaks the rules") {
    Town town;
    auto client = town.raw();
    SECTION("before all connections are there") {
        client->request.connection_count = 3;
        client->dial(0);
        town.scene.world.run_for(1ms);
        client->send_info("bad");
    }
    SECTION("bad names") {
        CHECK(client->connect(2));
        client->send_info(GENERATE(std::string(""), "a/b", "a.b", std::string(255, 'x')));
    }
    SECTION("the name of another") {
        CHECK(client->connect(2));
        client->send_info("host-a");
    }
    SECTION("too short, too long, of another type") {
        CHECK(client->connect(2));
        std::vector<std::byte> bytes(GENERATE(0u, 4u, 271u, 273u, 2000u, 272u), std::byte{1});
        client->send(0, bytes);
    }
    SECTION("an immediate first") {
        CHECK(client->connect(2));
        client->write(0, {}, {}, ImmediateCodec::heartbeat());
        town.scene.world.run_for(1100ms);
    }
    SECTION("on another connection") {
        CHECK(client->connect(2));
        client->send(1, std::vector<std::byte>(272));
    }
    SECTION("the same connection twice") {
        client->request.connection_count = 2;
        client->dial(0);
        client->dial(0);
    }
    town.scene.world.run_for(10ms);
    CHECK(!client->alive());
    town.check_peace(std::move(client));
}

TEST_CASE("requests that break the rules") {
    SceneOptions options = quick_options(4);
    options.server.always_invalidate = GENERATE(true, false);
    Town town(options);
    auto client = town.opened();
    const std::uint32_t chunk_bytes = options.server.chunk_bytes;
    const auto post = [&](std::uint32_t permit, std::uint32_t at, std::uint32_t offset,
                          const std::vector<std::byte>& bytes) {
        client->write(1, client->chunk(permit, at), bytes, client->codec.request(permit, offset));
    };
    bool dropped = true;
    SECTION("the offset is outside of the chunk") { post(0, 0, chunk_bytes, write_request(0, 8)); }
    SECTION("the message would end outside of the chunk") {
        post(0, chunk_bytes - 3, chunk_bytes - 3, {std::byte{2}, std::byte{0}, std::byte{0}});
    }
    SECTION("an unknown type") { post(0, 0, 0, std::vector<std::byte>(64, std::byte{9})); }
    SECTION("a user message that begins before the chunk") {
        std::vector<std::byte> bytes(8);
        WriteMessage{.user_bytes = 500}.emit(bytes);
        post(0, 0, 0, bytes);
        dropped = false;
    }
    SECTION("a user message that is too long") {
        std::vector<std::byte> bytes(4096);
        WriteMessage{.user_bytes = 2000}.emit(MutableBytes(bytes).subspan(3000));
        post(0, 0, 3000, bytes);
        dropped = false;  // answered with an errno
    }
    SECTION("a read with many descriptors, or one that is too long") {
        std::vector<std::byte> bytes(64);
        ReadMessage{.destination = client->own(100000).bytes
                                       ? std::optional(BufferDescriptor{client->own(8).address,
                                                                        client->own(8).key, 100000})
                                       : std::nullopt}
            .emit(bytes);
        if (GENERATE(true, false)) bytes[6] = std::byte{7};
        post(0, 16, 16, bytes);
        dropped = false;
    }
    SECTION("a permit out of range") { client->write(1, {}, {}, 20u << 24); }
    SECTION("an answer, from the client") {
        client->write(1, {}, {}, client->codec.response(0, 0));
    }
    SECTION("an immediate of unknown type is ignored") {
        client->write(1, {}, {}, 7u << 28);
        dropped = false;
    }
    SECTION("a message without immediate") { client->send(1, std::vector<std::byte>(8)); }
    SECTION("a key of nobody's") {
        RemoteBuffer nobody = client->chunk(0);
        nobody.key ^= 0x5555;
        client->write(1, nobody, std::vector<std::byte>(8), client->codec.request(0, 0));
    }
    SECTION("beyond the end of the memory") {
        RemoteBuffer beyond = client->chunk(15, chunk_bytes - 4);
        client->write(1, beyond, std::vector<std::byte>(8), client->codec.request(15, 0));
    }
    SECTION("more requests than receives") {
        for (int i = 0; i < 40; ++i) client->write(1, {}, {}, 7u << 28);
        dropped = false;  // none is missing as long as the server reposts in time
    }
    SECTION("a heartbeat answer that nobody asked for") {
        client->write(0, {}, {}, ImmediateCodec::heartbeat_ack());
        dropped = false;
    }
    SECTION("an empty request") {
        // What lies in a fresh chunk is zero: no type.
        client->write(1, {}, {}, client->codec.request(3, 0));
    }
    town.scene.world.run_for(20ms);
    CHECK(client->alive() == !dropped);
    town.check_peace(std::move(client));
}

TEST_CASE("a client that says nothing again and again loses its path") {
    Town town;
    auto client = town.opened();
    keep_alive(*client);
    const std::uint32_t immediate =
        GENERATE(7u << 28, ImmediateCodec::heartbeat(), ImmediateCodec::heartbeat_ack());
    const auto say = [&](std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            client->write(0, {}, {}, immediate);
            if (i % 16 == 0) town.scene.world.run_for(500us);
        }
    };
    // As many as are taken in a second, twice.
    for (int second = 0; second < 2; ++second) {
        say(idle_messages_per_second - 50);
        CHECK(client->alive());
        town.scene.world.run_for(1s);
    }
    say(idle_messages_per_second + 50);
    town.scene.world.run_for(20ms);
    CHECK(!client->alive());
    town.check_peace(std::move(client));
}

TEST_CASE("a permit that is used twice at a time") {
    SceneOptions options = quick_options(5);
    options.server.always_invalidate = GENERATE(true, false);
    options.sim.revoke = GENERATE(SimOptions::Revoke::effective, SimOptions::Revoke::pending);
    Town town(options);
    town.scene.server->service_max = 1s;
    auto client = town.opened();
    // The bad client's epoch is not known to it: that finding is expected.
    const auto bytes = write_request(0, 0);
    for (int i = 0; i < 5; ++i) {
        client->write(1, client->chunk(2), bytes, client->codec.request(2, sizeof(IoRequest)));
        client->write(1, {}, {}, client->codec.request(2, sizeof(IoRequest)));
        town.scene.world.run_for(1ms);
    }
    town.scene.world.run_for(2s);
    std::erase(town.scene.findings.lines, "a request of another epoch");
    CHECK(!client->alive());
    town.check_peace(std::move(client));
}

TEST_CASE("a permit that comes back on another path while its chunk's key is being revoked") {
    SceneOptions options = quick_options(GENERATE(range(1u, 9u)));
    options.server.always_invalidate = true;
    options.addresses = 2;
    // Each arrives before the other's revoke has ended.
    options.sim.revoke = SimOptions::Revoke::pending;
    options.sim.delay_min = 50us;
    options.sim.delay_max = 99us;
    Town town(options);
    auto one = town.opened();
    auto other = town.raw();
    other->request.session_uuid = one->request.session_uuid;
    other->turn_to(town.scene.address(1));
    REQUIRE(other->open(2, "bad", options.server.queue_depth, options.server.chunk_bytes));
    // The bad client's epoch is not known: each request that is served is found so.
    const auto bytes = write_request(0, 0);
    for (RawClient* client : {one.get(), other.get()}) {
        client->write(1, client->chunk(2), bytes, client->codec.request(2, sizeof(IoRequest)));
    }
    town.scene.world.run_for(5ms);
    CHECK(std::ranges::count(town.scene.findings.lines, "a request of another epoch") == 1);
    std::erase(town.scene.findings.lines, "a request of another epoch");
    CHECK(one->alive() != other->alive());
    const auto& survivor = one->alive() ? one : other;
    CHECK(survivor->connections[1]->received.size() == 1);
    other->end();
    town.check_peace(std::move(one));
}

TEST_CASE("what a client has sent before it ends its path does not run after that") {
    SceneOptions options = quick_options(6);
    options.server.always_invalidate = GENERATE(true, false);
    // The request is here, and is handed out when the server has heard of the end.
    options.sim.queue_time = 1ms;
    Town town(options);
    auto client = town.opened();
    const bool ends_another_connection = GENERATE(false, true);
    client->write(1, client->chunk(2), write_request(0, 0),
                  client->codec.request(2, sizeof(IoRequest)));
    client->connections[ends_another_connection ? 0 : 1]->endpoint->disconnect();
    town.scene.world.run_for(5ms);
    // The bad client's epoch is not known: a request that is served is found so.
    CHECK(std::ranges::count(town.scene.findings.lines, "a request of another epoch") == 0);
    town.scene.findings.lines.clear();
    CHECK(!client->alive());
    town.check_peace(std::move(client));
}

TEST_CASE(
    "a connection that the server cannot set up is rejected with the errno, and its path ends") {
    Town town;
    const std::uint16_t good = GENERATE(as<std::uint16_t>{}, 0, 1);
    auto client = town.raw();
    client->request.connection_count = 2;
    for (std::uint16_t id = 0; id < good; ++id) {
        RawConnection& one = client->dial(id);
        REQUIRE(town.scene.run_until([&] { return one.established; }, 1s));
    }
    town.scene.server->fabric.refuse_next().accepts = 1;
    RawConnection& refused = client->dial(good);
    CHECK(town.scene.run_until([&] { return refused.drained; }, 1s));
    CHECK(refused.rejected == ENOMEM);
    CHECK(
        town.scene.run_until([&] { return town.scene.server->server.sessions().size() == 1; }, 1s));
    client->end();
    // The next attempt finds nothing in its way.
    client->request.reconnect_count++;
    CHECK(client->open(2, "bad", town.scene.options.server.queue_depth,
                       town.scene.options.server.chunk_bytes));
    town.check_peace(std::move(client));
}

TEST_CASE("with always_invalidate a chunk's old key is dead") {
    Town town;
    auto client = town.opened();
    const auto bytes = write_request(0, 8);
    const RemoteBuffer old = client->chunk(1);
    client->write(1, old, bytes, client->codec.request(1, 8 + sizeof(IoRequest)));
    town.scene.world.run_for(5ms);
    CHECK(client->alive());
    REQUIRE(!client->connections[1]->received.empty());
    const Completion& answer = client->connections[1]->received.back();
    const auto key = KeyResponseMessage::parse(client->connections[1]->content(answer), 16);
    REQUIRE(key.has_value());
    CHECK(key->permit == 1);
    CHECK(key->key != old.key);
    std::erase(town.scene.findings.lines, "a request of another epoch");
    client->write(1, old, bytes, client->codec.request(1, 8 + sizeof(IoRequest)));
    town.scene.world.run_for(5ms);
    CHECK(!client->alive());
    town.check_peace(std::move(client));
}

TEST_CASE("a path is superseded by a later attempt of its own, never by an earlier one") {
    Town town;
    auto client = town.raw();
    client->request.reconnect_count = GENERATE(as<std::uint16_t>{}, 5, 65535, 0);
    REQUIRE(client->open(2, "bad", 16, 8192));
    auto again = town.raw();
    again->request = client->request;
    SECTION("earlier") {
        again->request.reconnect_count =
            static_cast<std::uint16_t>(client->request.reconnect_count - 1);
        CHECK(!again->connect(2));
        CHECK(again->connections[0]->rejected == ECONNRESET);
        town.scene.world.run_for(1ms);
        CHECK(client->alive());
    }
    SECTION("the same") {
        CHECK(!again->connect(2));
        town.scene.world.run_for(1ms);
        CHECK(client->alive());
    }
    SECTION("later") {
        again->request.reconnect_count =
            static_cast<std::uint16_t>(client->request.reconnect_count + 1);
        CHECK(!again->connect(2));  // not before the old one is gone
        town.scene.world.run_for(1ms);
        CHECK(!client->alive());
        again->end();
        CHECK(again->open(2, "bad", 16, 8192));
    }
    again->end();
    town.check_peace(std::move(client));
}

TEST_CASE("a second path over the same pair of addresses") {
    Town town;
    auto client = town.opened();
    auto second = town.raw();
    second->request.session_uuid = client->request.session_uuid;
    CHECK(!second->connect(2));
    CHECK(second->connections[0]->rejected == EEXIST);
    CHECK(client->alive());
    second->end();
    town.check_peace(std::move(client));
}

// A path's memory goes when the path does, whatever the session's other paths are doing.
TEST_CASE("a path's keys open nothing over another path of its session") {
    SceneOptions options = quick_options(3);
    options.server.always_invalidate = GENERATE(true, false);
    Town town(options);
    auto client = town.opened();
    RawClient other(town.scene.world, town.scene.world.add_host({"10.0.0.67"}),
                    town.scene.address());
    other.request.session_uuid = client->request.session_uuid;
    REQUIRE(other.open(2, "bad", 16, 8192));
    const RemoteBuffer of_the_first = client->chunk(2);
    SECTION("used by the other") {
        const std::vector<std::byte> bytes(64, std::byte{1});
        other.write(1, of_the_first, bytes, ImmediateCodec::heartbeat());
        town.scene.world.run_for(5ms);
        CHECK(!other.alive());
        CHECK(client->alive());
    }
    SECTION("its own") {
        const std::vector<std::byte> bytes(64, std::byte{1});
        other.write(1, other.chunk(2), bytes, ImmediateCodec::heartbeat());
        town.scene.world.run_for(5ms);
        CHECK(other.alive());
    }
    other.end();
    town.check_peace(std::move(client));
}

// Registered memory is pinned where there is hardware.
TEST_CASE("chunks are registered for those alone who have said who they are") {
    SceneOptions options = quick_options(3);
    options.sim.keys_max = 80;
    Town town(options);
    std::vector<std::unique_ptr<RawClient>> strangers;
    for (int i = 0; i < 30; ++i) {  // one key each, for its info request
        strangers.push_back(town.raw());
        CHECK(strangers.back()->connect(1));
    }
    CHECK(town.scene.server->server.sessions().size() == 31);
    strangers.clear();
    town.scene.run_until([&] { return town.scene.server->server.sessions().size() == 1; }, 2s);
    town.check_peace(nullptr);
}

TEST_CASE("the oldest of those who do not say who they are makes room for others") {
    SceneOptions options = quick_options(3);
    options.server.half_open_timeout = 1h;
    options.server.sessions_max = 4;
    Town town(options);
    std::vector<std::unique_ptr<RawClient>> strangers;
    for (int i = 0; i < 10; ++i) {
        strangers.push_back(town.raw());
        CHECK(strangers.back()->connect(1));
        town.scene.world.run_for(1ms);
        CHECK(town.scene.server->server.sessions().size() <= 4);
    }
    CHECK(!strangers.at(6)->alive());
    CHECK(strangers.at(7)->alive());
    auto client = town.opened();
    CHECK(client->alive());
    CHECK(!strangers.at(7)->alive());
    strangers.clear();
    town.check_peace(std::move(client));
}

TEST_CASE("a session that returns finds a place though as many as allowed are there") {
    SceneOptions options = quick_options(3);
    options.server.sessions_max = 4;
    Town town(options);
    std::vector<std::unique_ptr<RawClient>> strangers;
    const auto another_comes = [&] {
        strangers.push_back(town.raw());
        REQUIRE(strangers.back()->open(1, "bad" + std::to_string(strangers.size()),
                                       options.server.queue_depth, options.server.chunk_bytes));
        keep_alive(*strangers.back());
    };
    for (int i = 0; i < 3; ++i) another_comes();
    const auto sessions = [&] { return town.scene.server->server.sessions().size(); };
    REQUIRE(sessions() == 4);
    auto late = town.raw();
    CHECK(!late->connect(1));
    CHECK(late->connections.at(0)->rejected == EUSERS);
    // The good client is away for a while, and its place is taken.
    town.scene.world.network().cut("10.0.0.1", "10.0.0.2");
    REQUIRE(town.scene.world.run_until([&] { return sessions() == 3; }, 2s));
    another_comes();
    REQUIRE(sessions() == 4);
    town.scene.world.network().heal("10.0.0.1", "10.0.0.2");
    CHECK(town.scene.run_until([&] { return town.scene.client->session.link_up(); }, 5s));
    CHECK(sessions() == 5);
    for (auto& stranger : strangers) stranger->end();
    CHECK(town.scene.run_until([&] { return sessions() == 1; }, 2s));
    town.scene.client->pause();
    CHECK(town.scene.finish());
    CHECK(town.scene.close_client());
    CHECK(town.scene.close_server());
    for (const std::string& line : town.scene.findings.lines) FAIL_CHECK(line);
}

TEST_CASE("who takes nothing on one connection does not hold the server's end up") {
    SceneOptions options = quick_options(3);
    options.addresses = 2;
    options.sim.transport_timeout = 1h;
    Town town(options);
    auto client = town.raw();
    client->request.connection_count = 2;
    client->dial(0);
    client->turn_to(town.scene.address(1));
    client->dial(1);
    REQUIRE(town.scene.run_until([&] { return client->alive(); }, 1s));
    keep_alive(*client);
    client->send_info("bad");
    REQUIRE(town.scene.run_until([&] { return !client->connections[0]->received.empty(); }, 1s));
    town.scene.client->pause();
    CHECK(town.scene.finish());
    CHECK(town.scene.close_client());
    town.scene.world.network().cut("10.0.1.1", "10.0.0.66");
    town.scene.world.run_for(5s);
    CHECK(client->alive());
    CHECK(town.scene.close_server());
    for (const std::string& line : town.scene.findings.lines) FAIL_CHECK(line);
}

// Its memory is registered with that one alone.
TEST_CASE("a path's connections all come over one fabric") {
    SceneOptions options = quick_options(3);
    options.server.messages = MessageOptions{};
    Town town(options);
    // Behind the first portal the same, but for a decorator of its own kind.
    REQUIRE(
        town.scene.server->server.listen(town.scene.server_host.fabric(), "0.0.0.0:1236", {.id = 1})
            .has_value());
    auto client = town.raw();
    client->request.features = features_of(Feature::failover, Feature::messages);
    const auto dial = [&](const std::string& address, std::uint16_t id) -> RawConnection& {
        client->turn_to(address);
        RawConnection& one = client->dial(id);
        town.scene.run_until([&] { return one.established || one.rejected; }, 1s);
        return one;
    };
    const std::string first = town.scene.address();
    const std::string second = first.substr(0, first.rfind(':')) + ":1236";
    SECTION("another connection of the path") {
        client->request.connection_count = 2;
        CHECK(dial(first, 0).established);
        CHECK(dial(second, 1).rejected == ECONNRESET);
        CHECK(dial(first, 1).established);
    }
    SECTION("the connection of messages") {
        REQUIRE(client->open(2, "bad", 16, 8192));
        client->request.connection_count = 1;
        client->request.purpose = ConnectionPurpose::messages;
        CHECK(dial(second, 0).rejected == ECONNRESET);
        CHECK(dial(first, 0).established);
    }
    town.check_peace(std::move(client));
}

TEST_CASE("a connection of messages without a hello ends in time, alone") {
    SceneOptions options = quick_options(3);
    options.server.messages = MessageOptions{.silence_max = 2s};
    Town town(options);
    auto client = town.raw();
    client->request.features = features_of(Feature::failover, Feature::messages);
    REQUIRE(client->open(2, "bad", 16, 8192));
    keep_alive(*client);
    client->request.connection_count = 1;
    client->request.purpose = ConnectionPurpose::messages;
    RawConnection& messages = client->dial(0);
    town.scene.world.run_for(1s);
    CHECK(client->alive());
    CHECK(town.scene.run_until([&] { return messages.disconnected; }, 2s));
    CHECK(!client->connections[0]->disconnected);
    town.check_peace(std::move(client));
}

TEST_CASE("random requests") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        SceneOptions options = quick_options(seed);
        options.server.always_invalidate = seed % 2 == 0;
        Town town(options);
        town.scene.server->service_max = 1ms;
        Random random(seed);
        auto client = town.opened();
        for (int i = 0; i < 30 && client->alive(); ++i) {
            std::vector<std::byte> bytes(random.below(600));
            for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(6));
            const auto permit = static_cast<std::uint32_t>(random.below(16));
            const auto at = static_cast<std::uint32_t>(random.below(8192 - bytes.size()));
            client->write(
                static_cast<std::uint16_t>(random.below(2)), client->chunk(permit, at), bytes,
                client->codec.request(permit, static_cast<std::uint32_t>(
                                                  random.chance(1, 2) ? at : random.below(8200))));
            town.scene.world.run_for(Duration(random.below(300'000)));
        }
        std::erase(town.scene.findings.lines, "a request of another epoch");
        town.check_peace(std::move(client));
    }
}
