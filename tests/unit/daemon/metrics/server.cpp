#include "daemon/metrics/server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "daemon/sockets/stream_server.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace std::chrono_literals;

namespace {

// With so many lines.
MetricsText document(int lines) {
    MetricsText text;
    if (lines == 0) return text;
    text.family({"a", "", MetricType::gauge, {"line"}, "A."});
    for (int i = 0; i < lines; ++i) text.sample({std::to_string(i)}, std::uint64_t{1});
    return text;
}

// A server in a folder of its own, its loop, and plain clients.
class Fixture {
  public:
    explicit Fixture(MetricsServerOptions options = {}, int lines = 0) {
        char folder[] = "/tmp/rnbd-metrics-XXXXXX";
        REQUIRE(::mkdtemp(folder) != nullptr);
        folder_ = folder;
        auto made = rtrs::Reactor::create();
        if (!made) return;
        reactor_ = std::move(*made);
        options.listen = "unix:" + path();
        auto server = MetricsServer::create(*reactor_, options, [this, lines] {
            ++documents;
            return document(lines);
        });
        REQUIRE(server);
        server_ = std::move(*server);
    }
    ~Fixture() {
        if (server_) close();
        std::filesystem::remove_all(folder_);
    }
    bool usable() const {
        if (!reactor_) rnbd::testing::skip("no io_uring here");
        return reactor_ != nullptr;
    }
    std::string path() const { return folder_ + "/m"; }

    int connect() {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path().c_str());
        REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        return fd;
    }
    static void say(int fd, const std::string& text) {
        REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(text.size()));
    }
    // Everything until the server closes.
    std::string answer(int fd) {
        std::string all;
        for (;;) {
            char block[65536];
            const ssize_t bytes = ::recv(fd, block, sizeof block, MSG_DONTWAIT);
            if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) break;
            if (bytes > 0)
                all.append(block, static_cast<std::size_t>(bytes));
            else
                reactor_->run_once(5ms);
        }
        ::close(fd);
        return all;
    }
    std::string ask(const std::string& request) {
        const int fd = connect();
        say(fd, request);
        return answer(fd);
    }
    void wait_until_readable(int fd) {
        char byte;
        while (::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0) reactor_->run_once(5ms);
    }
    void turns(int count) {
        for (int i = 0; i < count; ++i) reactor_->run_once(1ms);
    }
    std::uint64_t turns_so_far() const { return reactor_->statistics().turns; }
    int documents = 0;
    void close() {
        bool closed = false;
        server_->close([&] { closed = true; });
        while (!closed) reactor_->run_once(5ms);
        server_.reset();
    }

  private:
    std::string folder_;
    std::unique_ptr<rtrs::Reactor> reactor_;
    std::unique_ptr<MetricsServer> server_;
};

constexpr int many = 100000;
const std::string large = document(many).finish();
const std::string get = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

}  // namespace

TEST_CASE("metrics server: one request, one answer") {
    Fixture server;
    if (!server.usable()) return;
    const std::string answer = server.ask(get);
    CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
    CHECK(answer.find("\r\nContent-Type: application/openmetrics-text; version=1.0.0; "
                      "charset=utf-8\r\n") != std::string::npos);
    CHECK(answer.find("\r\nContent-Length: 6\r\n") != std::string::npos);
    CHECK(answer.ends_with("\r\n\r\n# EOF\n"));
    CHECK(server.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 404 "));
    CHECK(server.ask("PUT /metrics HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 405 "));
    CHECK(server.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    CHECK(server.ask(std::string(9000, 'a')).starts_with("HTTP/1.1 431 "));
}

TEST_CASE("metrics server: who says nothing is cut") {
    Fixture server({.request_time = 20ms});
    if (!server.usable()) return;
    CHECK(server.answer(server.connect()).empty());
    const int half = server.connect();
    Fixture::say(half, "GET /met");
    CHECK(server.answer(half).empty());
}

TEST_CASE("metrics server: who does not read is cut") {
    Fixture server({.answer_time = 300ms}, many);
    if (!server.usable()) return;
    const int slow = server.connect();
    Fixture::say(slow, get);
    server.wait_until_readable(slow);
    // Longer than the answer may take; the turn after that cuts it.
    std::this_thread::sleep_for(400ms);
    server.turns(5);
    CHECK(server.answer(slow).size() < large.size());
}

TEST_CASE("metrics server: nobody waits for who does not read") {
    Fixture server({}, many);
    if (!server.usable()) return;
    const int slow = server.connect();
    Fixture::say(slow, get);
    server.wait_until_readable(slow);
    CHECK(server.ask(get).ends_with(large));
    CHECK(server.answer(slow).ends_with(large));
}

TEST_CASE("metrics server: a long document takes many turns, and is made for all who wait") {
    Fixture server({}, many);
    if (!server.usable()) return;
    const std::uint64_t before = server.turns_so_far();
    std::vector<int> readers;
    for (int i = 0; i < 8; ++i) {
        readers.push_back(server.connect());
        Fixture::say(readers.back(), get);
    }
    server.wait_until_readable(readers.front());
    CHECK(server.turns_so_far() - before > large.size() / (128u << 10));
    for (const int fd : readers) CHECK(server.answer(fd).ends_with("\r\n\r\n" + large));
    // That of the first, and one for those who came while it was made.
    CHECK(server.documents == 2);
}

TEST_CASE("metrics server: readers that go while their document is made, and an end meanwhile") {
    Fixture server({}, many);
    if (!server.usable()) return;
    const int gone = server.connect();
    Fixture::say(gone, get);
    server.turns(10);
    ::close(gone);
    CHECK(server.ask(get).ends_with(large));
    const int open = server.connect();
    Fixture::say(open, get);
    server.turns(10);
    server.close();
    ::close(open);
}

TEST_CASE("metrics server: so many at a time, the oldest that asks nothing goes for the next") {
    Fixture server({.connections_max = 2}, many);
    if (!server.usable()) return;
    const int first = server.connect();
    const int second = server.connect();
    server.turns(5);
    const int third = server.connect();
    server.turns(5);
    CHECK(server.answer(first).empty());
    // Those that are being answered stay, while they have not stood still for long: which they do
    // on a machine that is busy with something else, too.
    for (const int fd : {second, third}) Fixture::say(fd, get);
    const auto begun = std::chrono::steady_clock::now();
    server.wait_until_readable(second);
    server.wait_until_readable(third);
    const bool turned_away = server.answer(server.connect()).empty();
    const bool in_time = std::chrono::steady_clock::now() - begun < StreamServer::stuck_time;
    for (const int fd : {second, third}) {
        const bool whole = server.answer(fd).size() > large.size();
        if (in_time) CHECK(whole);
    }
    if (in_time) CHECK(turned_away);
}

TEST_CASE("metrics server: who asks and does not read keeps no other one out for long") {
    Fixture server({.connections_max = 2}, many);
    if (!server.usable()) return;
    const int first = server.connect();
    Fixture::say(first, get);
    server.wait_until_readable(first);
    const int second = server.connect();
    Fixture::say(second, get);
    server.wait_until_readable(second);
    std::this_thread::sleep_for(StreamServer::stuck_time / 2);
    // One that takes something meanwhile, even if it is not all, is no such one.
    std::string taken(large.size() / 2, '\0');
    for (std::size_t bytes = 0; bytes < taken.size();) {
        const ssize_t some =
            ::recv(second, taken.data() + bytes, taken.size() - bytes, MSG_DONTWAIT);
        if (some > 0) bytes += static_cast<std::size_t>(some);
        server.turns(1);
    }
    std::this_thread::sleep_for(StreamServer::stuck_time / 2 + 100ms);
    CHECK(server.ask(get).ends_with(large));
    CHECK(server.answer(first).size() < large.size());
    CHECK(server.answer(second).ends_with(large.substr(large.size() - 10000)));
}

TEST_CASE("metrics server: an end with connections that wait; the socket goes") {
    Fixture server;
    if (!server.usable()) return;
    const int open = server.connect();
    server.turns(5);
    server.close();
    CHECK_FALSE(std::filesystem::exists(server.path()));
    ::close(open);
}
