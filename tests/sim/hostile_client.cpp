// Clients that are in and break the rules: each costs its own path at most, and nobody else
// anything.
#include <catch2/catch.hpp>
#include <cstring>

#include "rtrs/core/server_path.h"
#include "tests/sim/hostile_town.h"

using namespace simtest;

namespace {

// A write of the server's protocol: data, IoRequest, WriteMessage.
std::vector<std::byte> write_request(std::uint64_t epoch, std::uint32_t data_bytes) {
    std::vector<std::byte> bytes(data_bytes + sizeof(IoRequest) + WriteMessage::wire_bytes);
    const IoRequest io{.epoch = epoch, .block = 0, .value = 0, .bytes = data_bytes};
    std::memcpy(bytes.data() + data_bytes, &io, sizeof io);
    WriteMessage{.user_bytes = sizeof io}.emit(MutableBytes(bytes).subspan(data_bytes + sizeof io));
    return bytes;
}

}  // namespace

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

TEST_CASE(
    "a client that falls silent is given up after its timeout, a kernel's after a longer one") {
    SceneOptions options = quick_options(3);
    options.server.kernel_heartbeat_timeout = 3s;
    Town town(options);
    const bool kernel = GENERATE(true, false);
    CAPTURE(kernel);
    auto client = town.raw();
    if (!kernel) client->request.features = features_of(Feature::failover);
    REQUIRE(client->open(2, "bad", options.server.queue_depth, options.server.chunk_bytes));
    town.scene.world.run_for(kernel ? 2900ms : 400ms);
    CHECK(client->alive());
    town.scene.world.run_for(300ms);
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
    KeyResponseMessage key;
    REQUIRE(!KeyResponseMessage::parse(client->connections[1]->content(answer), 16, key));
    CHECK(key.permit == 1);
    CHECK(key.key != old.key);
    std::erase(town.scene.findings.lines, "a request of another epoch");
    client->write(1, old, bytes, client->codec.request(1, 8 + sizeof(IoRequest)));
    town.scene.world.run_for(5ms);
    CHECK(!client->alive());
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
