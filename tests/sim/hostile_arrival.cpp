// Clients that break the rules as they come in: each costs its own path at most, and nobody else
// anything.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "tests/sim/hostile_town.h"

using namespace simtest;

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

TEST_CASE("a client that takes its time for each connection has that time for each") {
    Town town;
    auto client = town.raw();
    client->request.connection_count = 3;
    const auto waits = [&](Duration time) { town.scene.world.run_for(time); };
    for (std::uint16_t id = 0; id < 3; ++id) {
        RawConnection& one = client->dial(id);
        waits(800ms);  // of a second
        REQUIRE(one.established);
        REQUIRE(client->alive());
    }
    client->send_info("bad");
    waits(1100ms);
    CHECK(client->alive());
    CHECK(client->connections[0]->received.size() > 0);
    town.check_peace(std::move(client));
}

TEST_CASE("a session that announces much takes no place of one that comes back") {
    SceneOptions options = quick_options(3);
    options.server.half_open_timeout = 1h;
    Town town(options);
    town.scene.server->fabric.set_descriptors({.to_new = 24, .to_known = 32});
    auto client = town.raw();
    client->request.connection_count = 100;
    std::uint16_t next = 0;
    const auto takes_what_it_can = [&] {
        for (;;) {
            RawConnection& one = client->dial(next);
            town.scene.run_until([&] { return one.established || one.rejected; }, 1s);
            if (!one.established) {
                CHECK(one.rejected == EMFILE);
                REQUIRE(town.scene.run_until([&] { return one.drained; }, 1s));
                client->connections.pop_back();
                return;
            }
            ++next;
        }
    };
    takes_what_it_can();
    CHECK(next == 21);  // all but the three of the good one
    // What the good one loses is taken at once.
    town.scene.world.network().reset(town.scene.client_host.address(),
                                     town.scene.server_host.address(), SimNetwork::Seen::by_both);
    takes_what_it_can();
    CHECK(town.scene.run_until([&] { return town.scene.client->links_down == 1; }, 1s));
    for (int i = 0; i < 10; ++i) takes_what_it_can();
    CHECK(town.scene.run_until([&] { return town.scene.client->session.link_up(); }, 1s));
    CHECK(town.scene.client->session.status().paths[0].state == PathState::connected);
    town.end(std::move(client));
}

TEST_CASE(
    "a session that comes back has as many places as it had, and a redial ends what it gave up") {
    SceneOptions options = quick_options(3);
    options.server.half_open_timeout = options.server.heartbeat_timeout = 1h;
    options.server.kernel_heartbeat_timeout = 1h;
    Town town(options);
    const std::uint16_t many = 24;
    auto client = town.opened(many);
    SECTION("lost and forgotten") {
        client->end();
        REQUIRE(town.scene.run_until(
            [&] { return town.scene.server->server.sessions().size() == 1; }, 2s));
        // None is left to newcomers.
        town.scene.server->fabric.set_descriptors({.to_new = 3, .to_known = 30});
        client->request.reconnect_count++;
        CHECK(client->connect(many));
    }
    SECTION("lost, but not for the server") {
        town.scene.server->fabric.set_descriptors({.to_new = 27, .to_known = 30});
        auto again = town.raw();
        again->request = client->request;
        again->request.reconnect_count++;
        CHECK_FALSE(again->connect(many));
        CHECK(again->connections[0]->rejected == ECONNRESET);
        CHECK(town.scene.run_until([&] { return !client->alive(); }, 1s));
        client->end();
        again->end();
        CHECK(again->connect(many));
        again->end();
    }
    town.check_peace(std::move(client));
}

TEST_CASE("sessions that announce much and stay away keep no newcomer out") {
    SceneOptions options = quick_options(3);
    options.server.half_open_timeout = 1h;
    Town town(options);
    town.scene.server->fabric.set_descriptors({.to_new = 80, .to_known = 88});
    std::vector<std::unique_ptr<RawClient>> away;
    for (;;) {
        auto client = town.raw();
        client->request.connection_count = 100;
        const RawConnection& one = client->dial(0);
        town.scene.run_until([&] { return one.established || one.rejected; }, 1s);
        if (!one.established) break;
        away.push_back(std::move(client));
    }
    REQUIRE(away.size() >= 3);
    const auto comes_in = [&] {
        auto client = town.raw();
        const bool in = client->connect(16);
        client->end();
        return in;
    };
    // As long as they may just be slow they have their places.
    CHECK_FALSE(comes_in());
    CHECK_FALSE(comes_in());
    town.scene.world.run_for(1s);
    CHECK_FALSE(comes_in());
    town.scene.world.run_for(10ms);
    CHECK(comes_in());
    std::size_t ended = 0;
    for (auto& client : away) {
        ended += client->alive() ? 0u : 1u;
        client->end();
    }
    CHECK(ended == 1);
    town.check_peace(nullptr);
}

TEST_CASE("the end of a path touches no memory that no request has used") {
    SceneOptions options = quick_options(3);
    options.server.queue_depth = 16384;
    Town town(options);
    auto client = town.raw();
    REQUIRE(client->connect(2));
    rusage before{}, after{};
    REQUIRE(::getrusage(RUSAGE_THREAD, &before) == 0);
    client->end();
    CHECK(
        town.scene.run_until([&] { return town.scene.server->server.sessions().size() == 1; }, 2s));
    REQUIRE(::getrusage(RUSAGE_THREAD, &after) == 0);
    // A request's slot has hundreds of bytes: all together have more than 1,000 pages. A
    // sanitizer's own memory has some, too.
    CHECK(after.ru_minflt - before.ru_minflt < 600);
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
