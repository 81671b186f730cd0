// How connections end: what is in flight then, what comes after, who is told of what was lost.
#include <catch2/catch.hpp>

#include "tests/unit/rnbd-client/nbd_world.h"

using namespace nbdtest;

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

TEST_CASE("connection: answers over TCP arrive, though the client asks on while we shut down") {
    const bool client_ends = GENERATE(true, false);
    Server server;
    struct Closed final : NbdListener::Handler {
        void on_address_free(NbdListener&) override {}
        void on_listener_closed(NbdListener&) override { closed = true; }
        void on_connection_gone(NbdListener&) override {}
        bool closed = false;
    } handler;
    NbdListener tcp({*server.reactor, server.notes}, *server.exports,
                    {.address = {NbdTransport::tcp, "127.0.0.1:0"}}, handler);
    REQUIRE(tcp.open());
    Client client(server, tcp.bound());
    client.greet();
    for (int i = 0; i < 4; ++i) client.ask(Command::read, 0, 65536);
    server.until([&] { return server.device->counters().of(Command::read).requests == 4; });
    server.until([&] { return tcp.connections().front()->requests_in_flight() == 0; });
    tcp.close();
    for (int i = 0; i < 5; ++i) {
        server.turn(0ms);
        CHECK(client.put(Client::bytes_of({0, Command::read, 99, 0, 4096}).bytes()) > 0);
    }
    for (int i = 0; i < 4; ++i) {
        const auto reply = client.next();
        REQUIRE(reply);
        CHECK(reply->second.data.size() == 65536);
    }
    CHECK(client.wait_for_end());
    if (client_ends) client.hang_up();
    server.until([&] { return handler.closed; });
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
    CHECK(server.notes.has("leaves 1 change in progress behind"));
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
