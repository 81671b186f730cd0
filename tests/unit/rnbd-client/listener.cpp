// Listeners on real sockets.
#include "rnbd-client/nbd/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/unit/rnbd-client/nbd_world.h"

using namespace nbdtest;

TEST_CASE("listener: a path that another process is about to listen at is in use") {
    Server server;
    const std::string path = server.directory + "/taken";
    const int other =
        ::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, static_cast<mode_t>(0600));
    REQUIRE(::flock(other, LOCK_EX) == 0);
    NbdListener second({*server.reactor, server.notes}, *server.exports,
                       {.address = {NbdTransport::unix_socket, path}}, server);
    const auto refused = second.open();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().error == std::errc::address_in_use);
    CHECK_FALSE(std::filesystem::exists(path));
    ::close(other);
}

TEST_CASE("listener: a dead process's socket is replaced, a live one and other files are not") {
    Server server;
    const auto address = server.listener->options().address;
    NbdListener second({*server.reactor, server.notes}, *server.exports, {.address = address},
                       server);
    const auto live = second.open();
    REQUIRE_FALSE(live);
    CHECK(live.error().error == std::errc::address_in_use);
    CHECK(live.error().text.find("another process serves") != std::string::npos);
    CHECK(std::filesystem::exists(address.place));
    // The probe was a client that left.
    server.until_empty();

    const std::string dead = server.directory + "/dead";
    {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::memcpy(name.sun_path, dead.data(), dead.size());
        REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
        ::close(fd);
    }
    struct Closed final : NbdListener::Handler {
        bool closed = false;
        void on_address_free(NbdListener&) override {}
        void on_listener_closed(NbdListener&) override { closed = true; }
        void on_connection_gone(NbdListener&) override {}
    } handler;
    NbdListener third({*server.reactor, server.notes}, *server.exports,
                      {.address = {NbdTransport::unix_socket, dead}}, handler);
    REQUIRE(third.open());
    struct stat status{};
    REQUIRE(::stat(dead.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0660);
    third.close();
    server.until([&] { return handler.closed; });
    CHECK_FALSE(std::filesystem::exists(dead));

    const std::string file = server.directory + "/file";
    std::fclose(std::fopen(file.c_str(), "w"));
    NbdListener fourth({*server.reactor, server.notes}, *server.exports,
                       {.address = {NbdTransport::unix_socket, file}}, handler);
    CHECK(fourth.open().error().error == std::errc::not_a_socket);
    CHECK(std::filesystem::exists(file));
}

TEST_CASE("listener: clients over the cap are turned away until there is room") {
    Server server({}, {}, 2);
    auto one = std::make_unique<Client>(server);
    Client two(server);
    one->greet();
    two.greet();
    {
        Client three(server);
        CHECK(three.wait_for_end());
    }
    CHECK(server.listener->refused() == 1);
    one.reset();
    server.until([&] { return server.listener->connections().size() == 1; });
    Client four(server);
    four.greet();
}

TEST_CASE("listener: clients that choose nothing keep others out for no longer than a second") {
    Server server({}, {}, 3);
    Client serves(server);
    serves.greet();
    Client first(server), second(server);
    REQUIRE(first.pull(greeting_bytes).size() == greeting_bytes);
    REQUIRE(second.pull(greeting_bytes).size() == greeting_bytes);
    const rtrs::Instant before = server.reactor->now();
    server.until([&] { return server.reactor->now() > before + 1s; });
    {
        Client third(server);
        third.greet();
        CHECK(first.wait_for_end());
        CHECK(server.notes.has("makes room for another client: too many connections"));
        server.until([&] { return server.listener->connections().size() == 3; });
    }
    server.until([&] { return server.listener->connections().size() == 2; });
    CHECK(server.listener->refused() == 0);
    CHECK(serves.run(Command::flush, 0, 0).error == 0);
    // What one has that only listens is not taken while there is room.
    Client fourth(server);
    fourth.greet();
    second.push(Client::hello(Style::simple));
    const std::size_t rest = Client::hello_answer_bytes(Style::simple) - greeting_bytes;
    CHECK(second.pull(rest).size() == rest);
}

TEST_CASE("listener: of many newcomers at once a turn serves one, and others go between") {
    Server server;
    Client old(server);
    old.greet();
    std::vector<std::unique_ptr<Client>> crowd;
    for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<Client>(server));
    const std::uint64_t before = server.listener->accepted();
    CHECK(old.run(Command::flush, 0, 0).error == 0);
    CHECK(server.listener->accepted() - before < 50);
    while (server.listener->accepted() < before + 100) {
        const std::uint64_t so_far = server.listener->accepted();
        server.turn();
        REQUIRE(server.listener->accepted() <= so_far + 1);
    }
    for (const auto& client : crowd) client->greet();
}

TEST_CASE("listener: the memory of requests is there for who has chosen a device") {
    constexpr std::size_t crowd = 50;
    const auto mapped = [] {
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        return pages * 4096;
    };
    Server server;
    Client(server).greet();
    std::vector<std::unique_ptr<Client>> clients;
    for (std::size_t i = 0; i < crowd; ++i) clients.push_back(std::make_unique<Client>(server));
    const std::size_t before = mapped();
    server.until([&] { return server.listener->accepted() == crowd + 1; });
    for (const auto& client : clients) CHECK(client->pull(greeting_bytes).size() == greeting_bytes);
    CHECK(mapped() < before + (1u << 20));
}

TEST_CASE("listener: who knocks and leaves is no news, many that talk nonsense are one line") {
    Server server;
    const auto warnings = [&] {
        return std::ranges::count(server.notes.levels, rtrs::TraceLevel::warning);
    };
    for (int i = 0; i < 5; ++i) Client(server).hang_up();
    server.until([&] { return server.listener->accepted() == 5; });
    server.until_empty();
    CHECK(warnings() == 0);
    for (int i = 0; i < 5; ++i) {
        Client bad(server);
        bad.push(ByteString().u32(0xffffffff));
        bad.pull(greeting_bytes);
        CHECK(bad.wait_for_end());
    }
    server.until_empty();
    CHECK(warnings() == 1);
}

TEST_CASE("listener: having no descriptor left is told once, and clients are served later") {
    Server server;
    Client client(server);
    const int next = ::dup(STDIN_FILENO);
    REQUIRE(next >= 0);
    ::close(next);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(next);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const rtrs::Instant end = server.reactor->now() + 500ms;  // it tries again ten times a second
    while (server.reactor->now() < end) server.turn();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(std::ranges::count_if(server.notes.lines, [](const std::string& line) {
              return line.find("accept: ") != std::string::npos;
          }) == 1);
    client.greet();
    CHECK(client.run(Command::flush, 0, 0).error == 0);
}

TEST_CASE("listener: clients leave a quarter of the descriptors to what serves them") {
    Server server;
    const int next = ::dup(STDIN_FILENO);
    REQUIRE(next >= 0);
    ::close(next);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    constexpr int room = 40;  // and as many more are a quarter or less
    few.rlim_cur = static_cast<rlim_t>((next + room) / 3 * 4);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    std::vector<std::unique_ptr<Client>> clients;
    // Each has two descriptors here, its own one and the server's.
    while (server.listener->refused() == 0) {
        clients.push_back(std::make_unique<Client>(server));
        const std::size_t so_far = clients.size();
        server.until(
            [&] { return server.listener->accepted() + server.listener->refused() == so_far; });
    }
    CHECK(clients.size() > room / 4);
    CHECK(clients.size() <= room);
    std::vector<int> rest;
    for (int fd = ::dup(STDIN_FILENO); fd >= 0; fd = ::dup(STDIN_FILENO)) rest.push_back(fd);
    for (const int fd : rest) ::close(fd);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(rest.size() >= few.rlim_cur / 4 - 2);
    CHECK(std::ranges::count_if(server.notes.lines, [](const std::string& line) {
              return line.find("refusing clients: the limit of open files") != std::string::npos;
          }) == 1);
    clients.clear();
    server.until([&] { return server.listener->connections().empty(); });
    Client late(server);
    late.greet();
}

TEST_CASE("listener: closing lets requests in flight finish") {
    Server server;
    Client client(server);
    client.greet();
    fake::settings().held = true;
    client.ask(Command::read, 0, 4096);
    server.until([] { return fake::waiting() == 1; });
    server.listener->close();
    CHECK_FALSE(std::filesystem::exists(server.directory + "/s"));
    for (int i = 0; i < 5; ++i) server.turn();
    CHECK_FALSE(server.closed);
    fake::complete();
    CHECK(client.next()->second.data.size() == 4096);
    CHECK(client.wait_for_end());
    server.until([&] { return server.closed; });
}

TEST_CASE("listener: tcp serves too") {
    Server server;
    struct Closed final : NbdListener::Handler {
        bool closed = false;
        void on_address_free(NbdListener&) override {}
        void on_listener_closed(NbdListener&) override { closed = true; }
        void on_connection_gone(NbdListener&) override {}
    } handler;
    NbdListener tcp({*server.reactor, server.notes}, *server.exports,
                    {.address = {NbdTransport::tcp, "127.0.0.1:0"}}, handler);
    REQUIRE(tcp.open());
    CHECK(tcp.bound().place.starts_with("127.0.0.1:"));
    CHECK(tcp.bound().place != "127.0.0.1:0");
    tcp.close();
    server.until([&] { return handler.closed; });
}
