// Connections over real sockets, with a volume in memory below.
#include "rnbd-client/nbd/connection.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/rnbd-client/nbd_world.h"

// allocation_counter.cpp
extern std::size_t allocations;

using namespace nbdtest;

TEST_CASE("connection: what is written is read, in any size, in both styles") {
    for (const Style style : {Style::simple, Style::structured}) {
        Server server(small_depth(64, 16384));
        Client client(server);
        client.greet(style);
        for (const std::uint32_t bytes : {512u, 4096u, 16384u, 16896u, 131072u, 1000u * 512}) {
            const auto data = pattern(bytes, bytes);
            CHECK(client.run(Command::write, 1024, bytes, 0, data).error == 0);
            CHECK(client.run(Command::read, 1024, bytes).data == data.bytes());
        }
        CHECK(client.run(Command::flush, 0, 0).error == 0);
        CHECK(client.run(Command::read, 0, 0).data.empty());
        CHECK(client.run(Command::write, 0, 0).error == 0);
        CHECK(client.run(Command::cache, 0, 65536).error == 0);
    }
}

TEST_CASE("connection: however the stream is cut, the answers are the same") {
    std::mt19937 random(99);
    for (int round = 0; round < 12; ++round) {
        ByteString stream = Client::hello(Style::simple);
        std::map<std::uint64_t, std::size_t> expected;
        std::size_t answers = 0;
        for (std::uint64_t cookie = 1; cookie <= 60; ++cookie) {
            // Each in its own place, since the order of execution is free.
            const std::uint64_t offset = cookie << 18;
            const std::uint32_t length = static_cast<std::uint32_t>(
                512 * (random() % 6 == 0 ? random() % 300 : random() % 12));
            Request request{0, Command::read, cookie, offset, length};
            switch (random() % 6) {
                case 0:
                    request.command = Command::flush;
                    break;  // with offset: EINVAL
                case 1:
                    request.length += 1;
                    break;  // EINVAL
                case 2:
                case 3:
                    request.command = Command::write;
                    break;
                case 4:
                    request.command = Command::write;
                    request.length += 7;
                    break;
                default:
                    break;
            }
            stream.add(Client::bytes_of(request));
            if (request.command == Command::write) stream.add(pattern(request.length, 1));
            const bool has_data = request.command == Command::read && request.length % 512 == 0;
            answers += simple_reply_bytes + (has_data ? request.length : 0);
            expected[cookie] = request.length;
        }
        stream.add(Client::bytes_of({0, Command::disconnect, 0, 0, 0}));
        Server server(small_depth(40, 8192));
        Client client(server);
        Bytes rest = stream;
        while (!rest.empty()) {
            const std::size_t most = random() % 3 == 0 ? 64 : 60000;
            const std::size_t now = std::min<std::size_t>(rest.size(), 1 + random() % most);
            client.push(rest.first(now));
            rest = rest.subspan(now);
        }
        const std::size_t all = Client::hello_answer_bytes(Style::simple) + answers;
        for (const std::string& line : server.notes.lines) UNSCOPED_INFO(line);
        CHECK(client.pull(all + 100).size() == all);
        CHECK(server.device->counters().of(Command::write).requests > 0);
    }
}

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

TEST_CASE("connection: who has hung up and takes no answers holds newcomers up for a while only") {
    Server server({}, {.payload_timeout = 30ms, .send_timeout = 30ms, .requests_max = 20});
    Client gone(server);
    gone.greet();
    for (int i = 0; i < 40; ++i) gone.ask(Command::read, 0, 131072);
    gone.half_close();
    Client next(server);
    next.greet();
    CHECK(next.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("has hung up and does not take its answers"));
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

TEST_CASE("connection: DISC answers what is in flight, then closes") {
    Server server;
    Client client(server);
    client.greet();
    fake::settings().held = true;
    client.ask(Command::read, 0, 4096);
    client.ask(Command::disconnect, 0, 0);
    server.until([&] { return server.notes.has("disconnected"); });
    CHECK(server.listener->connections().size() == 1);
    fake::complete();
    CHECK(client.next()->second.data.size() == 4096);
    CHECK(client.wait_for_end());
    server.until_empty();
}

TEST_CASE("connection: a client that vanishes costs its own requests, and the permits come home") {
    Server server;
    Client client(server);
    client.greet();
    fake::settings().held = true;
    for (int i = 0; i < 5; ++i) client.ask(Command::read, 0, 131072);
    client.ask(Command::write, 0, 65536, 0, pattern(1000, 1));
    server.until([] { return fake::waiting() == 5; });
    client.hang_up();
    server.until([&] { return server.notes.has("in the middle of a request"); });
    CHECK(server.listener->connections().size() == 1);
    fake::complete();
    server.until_empty();
    CHECK(fake::permits_free() == server.permits);
}

TEST_CASE("connection: a TRIM that waited goes by the limits that the volume has come back with") {
    Server server;
    fake::settings().held = true;
    Client gone(server);
    gone.greet();
    gone.ask(Command::write, 0, 4096, 0, pattern(4096, 1));
    server.until([] { return fake::waiting() == 1; });
    gone.hang_up();
    Client back(server);
    back.greet();
    back.ask(Command::trim, 0, 8u << 20);  // eight rounds
    server.until([&] { return server.device->left_behind().waiting == 1; });
    fake::settings().geometry.discard_bytes_max = 4u << 20;
    fake::log().clear();
    fake::complete();
    CHECK(fake::log().size() == 2);
    for (const auto& operation : fake::log()) CHECK(operation.io.bytes == 4u << 20);
    fake::complete();
    CHECK(back.next()->second.error == 0);
}

// qemu's reconnect-delay and the kernel's driver send again what a broken connection had in flight,
// and go on: the first attempt must not land after what is written then.
TEST_CASE("connection: what a client that has gone left in flight ends before what overlaps it") {
    Server server;
    fake::settings().held = true;
    Client live(server);
    live.greet();
    Client gone(server);
    gone.greet();
    gone.ask(Command::write, 4096, 8192, 0, pattern(8192, 1));
    gone.ask(Command::read, 65536, 4096);
    server.until([] { return fake::waiting() == 2; });
    gone.hang_up();
    Client back(server);
    back.greet();
    back.ask(Command::write, 8192, 4096, 0, pattern(4096, 2));
    back.ask(Command::read, 8192, 4096);
    server.until([&] { return server.device->left_behind().waiting == 2; });
    live.ask(Command::write_zeroes, 0, 65536);
    server.until([&] { return server.device->left_behind().waiting == 3; });
    CHECK(server.notes.has("leaves 1 changes in progress behind"));
    CHECK(server.device->left_behind().requests == 1);
    // What does not overlap goes on: elsewhere, over what was only read, and a flush.
    const auto elsewhere = back.ask(Command::write, 1u << 20, 4096, 0, pattern(4096, 3));
    live.ask(Command::write, 65536, 4096, 0, pattern(4096, 3));
    live.ask(Command::flush, 0, 0);
    server.until([] { return fake::waiting() == 5; });
    CHECK(server.device->left_behind().waiting == 3);
    fake::complete();
    CHECK(back.next()->first == elsewhere);
    CHECK(server.device->left_behind().requests == 0);
    CHECK(server.device->left_behind().waiting == 0);
    CHECK(fake::waiting() == 3);
    // In the order in which they came.
    CHECK(fake::log()[5].io.operation == VolumeOperation::write);
    CHECK(fake::log()[6].io.operation == VolumeOperation::read);
    CHECK(fake::log()[7].io.operation == VolumeOperation::write_zeroes);
    fake::complete();
    CHECK(back.next()->second.error == 0);
    CHECK(back.next()->second.data == pattern(4096, 2).bytes());
}

TEST_CASE("connection: a client that comes back waits until its broken connection is read") {
    // Three permits: most of what is sent stays in the socket.
    Server server(small_depth(4));
    fake::settings().held = true;
    Client gone(server);
    gone.greet();
    for (int i = 0; i < 20; ++i) gone.ask(Command::write, 0, 4096, 0, pattern(4096, 1));
    server.until([] { return fake::waiting() == 3; });
    gone.hang_up();
    Client back(server);
    back.greet();
    back.ask(Command::write, 0, 4096, 0, pattern(4096, 2));
    back.ask(Command::read, 0, 4096);
    // Some are never started: their client takes no answers.
    server.until([] {
        fake::complete();
        return fake::log().back().io.operation == VolumeOperation::read && fake::waiting() == 0;
    });
    CHECK(back.next()->second.error == 0);
    CHECK(back.next()->second.data == pattern(4096, 2).bytes());
    CHECK(server.listener->connections().size() == 1);
}

TEST_CASE("connection: two that break in waiting for each other's ends do not stand still") {
    Server server(small_depth(4));
    fake::settings().held = true;
    Client first(server), second(server), third(server);
    first.greet();
    second.greet();
    third.greet();
    first.ask(Command::write, 0, 4096, 0, pattern(4096, 1));
    second.ask(Command::write, 0, 4096, 0, pattern(4096, 2));
    first.hang_up();
    second.hang_up();
    third.ask(Command::read, 0, 4096);
    server.until([] {
        fake::complete();
        return fake::log().size() == 3 && fake::waiting() == 0;
    });
    CHECK(third.next()->second.error == 0);
}

TEST_CASE("connection: each client is told of a loss once, whoever flushed first") {
    Server server;
    Client first(server), second(server);
    first.greet();
    second.greet();
    CHECK(first.run(Command::flush, 0, 0).error == 0);
    fake::settings().losses = {.caches = 1, .writes = 1, .news = 1};
    CHECK(first.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(first.run(Command::flush, 0, 0).error == 0);
    CHECK_FALSE(server.device->has_untold_losses());
    // Who comes later had nothing there to lose.
    Client late(server);
    late.greet();
    CHECK(late.run(Command::flush, 0, 0).error == 0);
    CHECK(second.run(Command::write, 0, 512, 0, pattern(512, 1)).error == 0);
    CHECK(second.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(second.run(Command::flush, 0, 0).error == 0);
    // The flush behind a FUA write of a volume that has no FUA: it answers for that write alone.
    fake::settings().losses = {.caches = 2, .writes = 2, .news = 2};
    fake::settings().geometry.force_unit_access = false;
    const auto data = pattern(512, 2);
    CHECK(late.run(Command::write, 0, 512, command_flag::fua, data).error == 0);
    CHECK(server.device->has_untold_losses());
    CHECK(late.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(late.run(Command::flush, 0, 0).error == 0);
}

TEST_CASE("connection: a loss that was told to a client that had gone is told to the next one") {
    Server server;
    Client gone(server);
    gone.greet();
    fake::settings().held = true;
    gone.ask(Command::flush, 0, 0);
    server.until([] { return fake::waiting() == 1; });
    // The volume fails one flush, and takes that for having told it.
    fake::settings().losses = {.caches = 1, .writes = 1, .news = 1};
    fake::settings().fails = [](const VolumeIo&) { return rtrs::from_errno(EIO); };
    SECTION("seen as gone") {
        gone.hang_up();
        server.until([&] { return server.notes.has("closed by the client"); });
        fake::complete();
    }
    SECTION("not seen yet") {
        fake::complete();
        gone.hang_up();
    }
    server.until_empty();
    fake::settings().fails = nullptr;
    fake::settings().held = false;
    CHECK(server.device->has_untold_losses());
    Client next(server);
    next.greet();
    CHECK(next.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(next.run(Command::flush, 0, 0).error == 0);
    CHECK_FALSE(server.device->has_untold_losses());
}

TEST_CASE("connection: a slow handshake is dropped, an idle client is not") {
    Server server({}, {.handshake_timeout = 30ms});
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
    Server server({}, {.stall_timeout = 50ms});
    const std::uint32_t all = server.permits * 131072;
    Client slow(server);
    slow.greet().ask(Command::write, 0, all);
    Client other(server);
    other.greet().ask(Command::read, 0, 512);  // waits for one of its permits
    // A piece that takes four times as long as who stands still may.
    const ByteString some = pattern(131072 / 40, 1);
    for (int i = 0; i < 40; ++i) {
        slow.push(some);
        const rtrs::Instant next = server.reactor->now() + 5ms;
        while (server.reactor->now() < next) server.turn(1ms);
    }
    CHECK(!server.notes.has("a request does not arrive"));
    CHECK(server.listener->connections().size() == 2);
    // And now it does.
    server.until([&] { return server.notes.has("a request does not arrive, and others wait"); });
    CHECK(other.pull(16 + 512).size() == 16 + 512);
}

TEST_CASE("connection: a refused WRITE is read to its end before it is answered") {
    Server server;
    Client client(server);
    client.greet();
    const std::uint32_t most = 20u << 20;
    CHECK(client.run(Command::write, 0, most, 0, ByteString().zeroes(most)).error ==
          number(NbdError::inval));
    CHECK(client.run(Command::write, 64u << 20, 512, 0, ByteString().zeroes(512)).error ==
          number(NbdError::nospc));
    CHECK(client.run(Command::read, 0, 512).error == 0);
    client.ask(Command::write, 0, 100u << 20);
    CHECK(client.wait_for_end());
    CHECK(server.notes.has("absurd length"));
}

TEST_CASE("connection: that requests are too long for the session is told once") {
    Server server(small_depth(2, 4096));
    for (int clients = 1; clients <= 2; ++clients) {
        Client client(server);
        client.greet();
        CHECK(client.run(Command::read, 0, 512).error == 0);
        CHECK(client.run(Command::read, 64u << 20, 512).error == number(NbdError::inval));
        CHECK(std::ranges::count(server.notes.levels, rtrs::TraceLevel::warning) == clients - 1);
        CHECK(client.run(Command::read, 0, 256u << 10).error == number(NbdError::inval));
        CHECK(client.run(Command::write, 0, 16384, 0, ByteString().zeroes(16384)).error ==
              number(NbdError::inval));
        CHECK(std::ranges::count(server.notes.levels, rtrs::TraceLevel::warning) == clients);
    }
    CHECK(server.notes.has("request of 262144 bytes: its maximum block size is 4096"));
}

TEST_CASE("connection: garbage closes it, and only it") {
    Server server;
    Client good(server), bad(server), mute(server);
    good.greet();
    bad.greet().push(ByteString().zeroes(28));
    CHECK(bad.wait_for_end());
    mute.push(ByteString().u32(0xffffffff));
    mute.pull(18);
    CHECK(mute.wait_for_end());
    CHECK(good.run(static_cast<Command>(99), 0, 0).error == number(NbdError::inval));
    CHECK(good.run(Command::read, 0, 512).error == 0);
}

TEST_CASE("connection: requests allocate nothing") {
    Server server(small_depth(64, 16384));
    Client client(server);
    client.greet();
    const auto round = [&](int times) {
        ByteString stream;
        for (int i = 0; i < 20; ++i) {
            stream.add(Client::bytes_of({0, Command::write, 1, 0, 40960})).zeroes(40960);
            stream.add(Client::bytes_of({0, Command::read, 1, 0, 4096}));
        }
        const std::size_t before = allocations;
        for (int i = 0; i < times; ++i) {
            client.push(stream);
            client.skip(20 * (16 + 16 + 4096));
        }
        return allocations - before;
    };
    round(3);
    CHECK(round(50) == 0);
}
