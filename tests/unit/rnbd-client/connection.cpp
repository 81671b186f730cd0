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
