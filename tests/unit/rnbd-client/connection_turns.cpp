// Connections that share permits and places: who waits, who goes before whom, who is dropped.
#include <catch2/catch.hpp>

#include "tests/unit/rnbd-client/nbd_world.h"

using namespace nbdtest;

namespace {

// Between what a slow client does: the server turns. How long one of them was, with all else that
// the machine did.
class Pauses {
  public:
    explicit Pauses(Server& server) : server_(server), since_(server.reactor->now()) {}
    void make(rtrs::Duration time) {
        const rtrs::Instant next = server_.reactor->now() + time;
        while (server_.reactor->now() < next) server_.turn(1ms);
        const rtrs::Instant now = server_.reactor->now();
        longest = std::max(longest, now - std::exchange(since_, now));
    }
    rtrs::Duration longest{0};

  private:
    Server& server_;
    rtrs::Instant since_;
};

}  // namespace

TEST_CASE("connection: requests beyond the permits wait and are all answered") {
    Server server(small_depth(4));
    Client client(server);
    client.greet();
    fake::settings().held = true;
    for (int i = 0; i < 50; ++i) client.ask(Command::read, 0, 512);
    // So few are not divided among clients.
    server.until([] { return fake::waiting() == 3; });
    fake::settings().held = false;
    fake::complete();
    for (int i = 0; i < 50; ++i) CHECK(client.next()->second.error == 0);
}

TEST_CASE("connection: what finds no permit fails while the session refuses what is new") {
    Server server(small_depth(4));
    Client first(server);
    first.greet();
    fake::settings().held = true;
    for (int i = 0; i < 4; ++i) first.ask(Command::read, 0, 512);
    server.until([] { return fake::waiting() == 3; });
    for (int i = 0; i < 10; ++i) server.turn();
    // The fourth has joined in time, and waits on.
    fake::settings().refuses_new = rtrs::Error::no_path;
    Client second(server);
    second.greet();
    CHECK(second.run(Command::read, 0, 512).error == static_cast<std::uint32_t>(NbdError::io));
    CHECK(second.run(Command::write, 0, 512, 0, pattern(512, 1)).error ==
          static_cast<std::uint32_t>(NbdError::io));
    fake::settings().held = false;
    fake::settings().refuses_new.clear();
    fake::complete();
    for (int i = 0; i < 4; ++i) CHECK(first.next()->second.error == 0);
    CHECK(second.run(Command::write, 0, 512, 0, pattern(512, 1)).error == 0);
}

TEST_CASE("connection: a device whose requests hang leaves permits to the session's others") {
    Server server;
    const Device other(server.world->volume(), server.shares, DeviceOptions{"other", ""});
    Client one(server), two(server);
    one.greet();
    two.greet();
    fake::settings().held = true;
    for (int i = 0; i < 60; ++i) {
        one.ask(Command::read, 0, 512);
        two.ask(Command::read, 0, 512);
    }
    server.until([] { return fake::waiting() == 31; });
    for (int i = 0; i < 10; ++i) server.turn();
    CHECK(fake::waiting() == 31);
    CHECK(fake::permits_free() == 32);
    fake::settings().held = false;
    fake::complete();
    for (int i = 0; i < 60; ++i) {
        CHECK(one.next()->second.error == 0);
        CHECK(two.next()->second.error == 0);
    }
}

TEST_CASE("connection: nobody waits for a server that has been silent since a device was mapped") {
    const bool for_long = GENERATE(false, true);
    Server server({}, {.settle_timeout = for_long ? rtrs::Duration(1h) : rtrs::Duration(20ms)});
    fake::settings().state = VolumeState::opening;
    fake::settings().since = server.reactor->now() - (for_long ? rtrs::Duration(1h) : 0ms);
    Client client(server);
    CHECK(client.pull(greeting_bytes).size() == greeting_bytes);
}

TEST_CASE("connection: who has hung up and takes no answers holds newcomers up for a while only") {
    Server server({}, {.payload_timeout = 30ms, .send_timeout = 30ms, .requests_max = 20});
    Client gone(server);
    gone.greet();
    for (int i = 0; i < 40; ++i) gone.ask(Command::read, 0, 131072);
    gone.half_close();
    Client next(server);
    next.greet();
    CHECK(next.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("has hung up, and is not at its end"));
}

TEST_CASE("connection: a newcomer waits no longer for one who hung up since others come and go") {
    Server server({}, {.payload_timeout = 100ms, .send_timeout = 10s, .requests_max = 20});
    Client gone(server);
    gone.greet();
    for (int i = 0; i < 40; ++i) gone.ask(Command::read, 0, 131072);
    gone.half_close();
    Client next(server);
    next.greet();
    next.ask(Command::read, 0, 512);
    const auto cut = [&] { return server.notes.has("has hung up, and is not at its end"); };
    for (int i = 0; i < 100 && !cut(); ++i) {
        Client other(server);
        other.greet();
        other.hang_up();
        for (int turns = 0; turns < 5; ++turns) server.turn(2ms);
    }
    CHECK(cut());
    CHECK(next.next()->second.error == 0);
}

TEST_CASE("connection: two clients with requests of all permits do not wait for each other") {
    Server server(small_depth(5));
    Client one(server), two(server);
    one.greet();
    two.greet();
    const std::uint32_t most = 4 * 4096;
    for (int i = 0; i < 20; ++i) {
        one.ask(Command::write, 0, most, 0, pattern(most, 3));
        two.ask(Command::read, 1 << 20, most);
        one.ask(Command::read, 0, 4096);
        two.ask(Command::write, 1 << 20, 8192, 0, pattern(8192, 5));
    }
    for (int i = 0; i < 40; ++i) {
        CHECK(one.next()->second.error == 0);
        CHECK(two.next()->second.error == 0);
    }
}

TEST_CASE("connection: more requests than places wait for one") {
    Server server({}, {.requests_max = 3});
    Client client(server);
    client.greet();
    fake::settings().held = true;
    for (int i = 0; i < 30; ++i) client.ask(Command::read, 0, 512);
    server.until([] { return fake::waiting() == 3; });
    CHECK(server.listener->connections()[0]->requests_in_flight() == 3);
    fake::settings().held = false;
    fake::complete();
    for (int i = 0; i < 30; ++i) CHECK(client.next()->second.error == 0);
}

TEST_CASE("connection: a slow handshake is dropped, an idle client is not") {
    Server server({}, {.handshake_timeout = 2s});
    Client idle(server);
    idle.greet();
    {
        Client client(server);
        client.push(ByteString().u32(3));
        server.until([&] { return server.notes.has("handshake took too long"); });
    }
    server.until([&] { return server.listener->connections().size() == 1; });
    CHECK(idle.run(Command::read, 0, 512).error == 0);
}

// As programs do that are stopped, by a debugger or a terminal.
TEST_CASE("connection: who stands still is dropped only when permits run short") {
    Server server({}, {.payload_timeout = 30ms, .send_timeout = 30ms});
    const std::uint32_t all = server.permits * 131072;
    const auto stand_still = [&] {
        const rtrs::Instant end = server.reactor->now() + 200ms;
        while (server.reactor->now() < end) server.turn();
    };
    Client other(server);
    other.greet();
    for (const std::uint32_t sent : {1000u, 100000u}) {
        server.notes.lines.clear();
        Client client(server);
        client.greet();
        const ByteString data = pattern(131072, 1);
        client.ask(Command::write, 0, 131072, 0, pattern(sent, 1));
        stand_still();
        CHECK(other.run(Command::read, 0, 512).error == 0);
        client.push(Bytes(data).subspan(sent));
        CHECK(client.next()->second.error == 0);

        client.ask(Command::write, 0, all, 0, pattern(sent, 1));
        CHECK(other.run(Command::read, 0, 512).error == 0);
        CHECK(server.notes.has("did not arrive in time"));
    }
    Client client(server);
    client.greet();
    const int reads = 30;
    for (int i = 0; i < reads; ++i) client.ask(Command::read, 0, 131072);
    stand_still();
    for (int i = 0; i < reads; ++i) CHECK(client.next()->second.data.size() == 131072);

    client.ask(Command::read, 0, all);
    CHECK(other.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("not taken in time"));
    server.until([&] { return server.listener->connections().size() == 1; });
    CHECK(fake::permits_free() == server.permits);
}

TEST_CASE("connection: who keeps others waiting must show some life") {
    Server server({}, {.stall_timeout = 50ms});
    const std::uint32_t all = server.permits * 131072;
    Client other(server);
    other.greet();
    // However many: those that had time to send while they waited get no more of it.
    std::vector<std::unique_ptr<Client>> still;
    for (int i = 0; i < 4; ++i) {
        still.push_back(std::make_unique<Client>(server));
        still.back()->greet().ask(Command::write, 0, all, 0, pattern(100, 1));
    }
    CHECK(other.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("a request does not arrive, and others wait"));
    server.until([&] { return server.listener->connections().size() == 1; });

    still.resize(1);
    still.front() = std::make_unique<Client>(server);
    still.front()->greet().ask(Command::read, 0, all);
    CHECK(other.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("answers are not taken, and others wait"));
    server.until([&] { return server.listener->connections().size() == 1; });

    // Nobody waits for what it has: it may stay.
    Client stopped(server);
    stopped.greet();
    for (int i = 0; i < 20; ++i) stopped.ask(Command::read, 0, 131072);
    stopped.ask(Command::write, 0, 131072, 0, pattern(100, 1));
    const rtrs::Instant end = server.reactor->now() + 300ms;
    while (server.reactor->now() < end) CHECK(other.run(Command::read, 0, 512).error == 0);
    CHECK(server.listener->connections().size() == 2);
    CHECK(fake::permits_free() >= server.permits / 3);
}

TEST_CASE("connection: newcomers that stand still keep nobody who was served waiting") {
    Server server;
    Client other(server);
    other.greet();
    CHECK(other.run(Command::read, 0, 512).error == 0);
    std::vector<std::unique_ptr<Client>> still;
    for (std::uint32_t i = 0; i < 2 * server.permits; ++i) {
        still.push_back(std::make_unique<Client>(server));
        still.back()->greet().ask(Command::write, 0, 131072, 0, pattern(100, 1));
    }
    for (int i = 0; i < 20; ++i) CHECK(other.run(Command::read, 0, 512).error == 0);
    CHECK(server.listener->connections().size() == 1 + still.size());
    CHECK_FALSE(server.notes.has("others wait"));
}

TEST_CASE("connection: who sends slowly does not stand still") {
    // A machine that is busy may make a pause of its own that is as long as who stands still may
    // make; then once more, with longer ones.
    for (rtrs::Duration stall = 50ms;; stall *= 2) {
        Server server({}, {.stall_timeout = stall});
        const std::uint32_t all = server.permits * 131072;
        Client slow(server);
        slow.greet().ask(Command::write, 0, all);
        Pauses pauses(server);
        Client other(server);
        other.greet().ask(Command::read, 0, 512);  // waits for one of its permits
        // A piece that takes four times as long as who stands still may.
        const ByteString some = pattern(131072 / 40, 1);
        for (int i = 0; i < 40; ++i) {
            slow.push(some);
            pauses.make(stall / 10);
        }
        if (pauses.longest >= stall / 2) continue;
        CHECK(!server.notes.has("a request does not arrive"));
        CHECK(server.listener->connections().size() == 2);
        // And now it does.
        server.until(
            [&] { return server.notes.has("a request does not arrive, and others wait"); });
        CHECK(other.pull(16 + 512).size() == 16 + 512);
        break;
    }
}

TEST_CASE("connection: who takes answers slowly does not stand still") {
    for (rtrs::Duration stall = 100ms;; stall *= 2) {
        Server server({}, {.stall_timeout = stall});
        const std::uint32_t all = server.permits * 131072;
        Client slow(server);
        slow.greet().ask(Command::read, 0, all);
        Pauses pauses(server);
        Client other(server);
        other.greet().ask(Command::read, 0, 512);  // waits for one of its permits
        // For three times as long as who stands still may.
        for (int i = 0; i < 60; ++i) {
            slow.drop(65536);
            pauses.make(stall / 20);
        }
        // The socket tells of room when three quarters of it are free: three of them are one step.
        if (pauses.longest >= stall / 8) continue;
        CHECK(!server.notes.has("answers are not taken"));
        CHECK(server.listener->connections().size() == 2);
        // And now it does.
        server.until([&] { return server.notes.has("answers are not taken, and others wait"); });
        CHECK(other.pull(16 + 512).size() == 16 + 512);
        break;
    }
}

TEST_CASE("connection: a request that arrives as it is looked at saves no answers from a look") {
    Server server({}, {.stall_timeout = 100ms});
    const std::uint32_t all = server.permits * 131072;
    const ByteString data = pattern(131072, 1);
    Client still(server);
    still.greet();
    for (int i = 0; i < 20; ++i) still.ask(Command::read, 0, 131072);
    still.ask(Command::write, 0, 131072, 0, pattern(100000, 1));
    server.until([&] {
        return std::ranges::any_of(server.device->stalls(), [](const DeviceStall& stall) {
            return stall.stage == DeviceStall::Stage::payload;
        });
    });
    Client other(server);
    other.greet().ask(Command::read, 0, all);  // waits for its permits
    ::usleep(250'000);
    // Before its deadline is looked at, and with so much else to do that it ends in this turn.
    struct LastBytes {
        Server& server;
        Client& client;
        Bytes bytes;
    } last{server, still, Bytes(data).subspan(100000)};
    rtrs::Timer timer(*server.reactor, &last, [](void* context) {
        const auto& [at, client, bytes] = *static_cast<LastBytes*>(context);
        CHECK(client.put(bytes) == bytes.size());
        for (int i = 0; i < 10000; ++i) at.reactor->close_fd(-1);
    });
    timer.arm(server.reactor->now() - 1h);
    server.turn(0ms);
    server.until([&] { return server.notes.has("answers are not taken, and others wait"); });
    CHECK(!server.notes.has("a request does not arrive"));
    CHECK(other.pull(16 + all).size() == 16 + all);
}
