#include "daemon/control/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "daemon/control/client.h"
#include "rtrs/base/error.h"

using namespace rnbd;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

std::string temporary_directory() {
    char name[] = "/tmp/rnbd-control-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    return name;
}

// A reactor with a control server on a thread of its own, so that tests may block as clients do.
class World {
  public:
    explicit World(ControlServerOptions options = {}) : directory_(temporary_directory()) {
        options.socket_path = path();
        reactor_ = std::move(rtrs::Reactor::create().value());
        server_ = std::move(ControlServer::create(*reactor_, options).value());
        server_->add_command(
            "echo", [](const json& arguments, ControlReply reply) { reply.succeed(arguments); });
        server_->add_command("refuse", [](const json&, ControlReply reply) {
            reply.fail(ControlError::not_found, "no such thing");
        });
        server_->add_command("forget", [](const json&, ControlReply) {});
        server_->add_command("later", [this](const json&, ControlReply reply) {
            kept_.push_back(std::move(reply));
            reactor_->post([this] {
                kept_.back().succeed({{"late", true}});
                kept_.pop_back();
            });
        });
        server_->add_command("keep", [this](const json&, ControlReply reply) {
            kept_.push_back(std::move(reply));
            kept_count_.fetch_add(1);
            kept_count_.notify_all();
        });
        server_->add_command("turns", [this](const json&, ControlReply reply) {
            reply.succeed({{"turns", reactor_->statistics().turns}});
        });
        server_->add_command("big", [](ControlReply reply) {
            reply.succeed({{"text", std::string(8u << 20, 'x')}});
        });
    }
    ~World() {
        start();
        reactor_->post([this] { server_->close([this] { reactor_->stop(); }); });
        thread_->join();
        kept_.clear();
        server_.reset();
        CHECK(::access(path().c_str(), F_OK) != 0);
        ::rmdir(directory_.c_str());
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    void start() {
        if (!thread_) thread_.emplace([this] { reactor_->run(); });
    }
    std::string path() const { return directory_ + "/d.ctl"; }
    rtrs::Reactor& reactor() { return *reactor_; }
    auto call(std::string_view command, const json& arguments = json::object()) {
        start();
        return control_call({.socket_path = path(), .timeout = 30s}, command, arguments);
    }
    int connect() const {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path().c_str());
        REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        return fd;
    }
    void answer_kept() {
        reactor_->post([this] {
            for (ControlReply& reply : kept_) reply.succeed({{"kept", true}});
            kept_.clear();
        });
    }
    std::atomic<int> kept_count_ = 0;

  private:
    std::string directory_;
    std::unique_ptr<rtrs::Reactor> reactor_;
    std::unique_ptr<ControlServer> server_;
    std::vector<ControlReply> kept_;
    std::optional<std::thread> thread_;
};

std::string read_to_end(int fd) {
    std::string all;
    char block[4096];
    for (;;) {
        const ssize_t bytes = ::recv(fd, block, sizeof block, 0);
        if (bytes <= 0) return all;
        all.append(block, static_cast<std::size_t>(bytes));
    }
}

std::string read_line(int fd) {
    std::string line;
    char c = 0;
    while (::recv(fd, &c, 1, 0) == 1 && c != '\n') line += c;
    return line;
}

void send_text(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t bytes = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
        if (bytes <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(bytes));
    }
}

}  // namespace

TEST_CASE("control server: commands are answered, at once, later, or with an error") {
    World world;
    CHECK(world.call("echo", {{"a", 1}}).value() == json{{"a", 1}});
    CHECK(world.call("later").value() == json{{"late", true}});
    CHECK(world.call("big", {{"a", 1}}).error().code == ControlError::bad_arguments);
    CHECK(world.call("big").value()["text"].get_ref<const std::string&>().size() == 8u << 20);
    const auto refused = world.call("refuse");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ControlError::not_found);
    CHECK(refused.error().message == "no such thing");
    CHECK(world.call("unknown").error().code == ControlError::unknown_command);
    CHECK(world.call("forget").error().code == ControlError::failed);
}

TEST_CASE("control server: requests in one packet, in pieces and between empty lines") {
    World world;
    world.start();
    const int fd = world.connect();
    send_text(fd, "\n\n{\"command\":\"echo\",\"arguments\":{\"n\":1}}\n{\"command\":\"la");
    CHECK(json::parse(read_line(fd))["result"] == json{{"n", 1}});
    send_text(fd, "ter\"}\n");
    CHECK(json::parse(read_line(fd))["result"] == json{{"late", true}});
    send_text(fd, "rubbish\n{\"command\":\"echo\"}\n");
    CHECK(json::parse(read_line(fd))["error"]["code"] == "bad_request");
    CHECK(json::parse(read_line(fd))["ok"] == true);
    ::close(fd);
}

TEST_CASE("control server: a megabyte of empty lines takes several turns, and few") {
    World world;
    const auto turns = [&] { return world.call("turns").value()["turns"].get<int>(); };
    const int before = turns();
    const int fd = world.connect();
    send_text(fd, std::string(control_request_bytes_max, '\n'));
    send_text(fd, "{\"command\":\"echo\"}\n");
    CHECK(json::parse(read_line(fd))["ok"] == true);
    const int took = turns() - before;
    CHECK(took >= 32);
    CHECK(took < 5000);
    ::close(fd);
}

TEST_CASE("control server: more requests than may wait are all answered, in order") {
    constexpr int count = 30000;
    World world;
    world.start();
    const int fd = world.connect();
    std::thread asking([&] {
        std::string all;
        for (int n = 0; n < count; ++n)
            all += "{\"command\":\"echo\",\"arguments\":{\"n\":" + std::to_string(n) + "}}\n\n";
        REQUIRE(all.size() > control_request_bytes_max);
        send_text(fd, all);
    });
    int answered = 0;
    while (answered < count && json::parse(read_line(fd))["result"]["n"] == answered) ++answered;
    CHECK(answered == count);
    ::shutdown(fd, SHUT_RDWR);
    asking.join();
    ::close(fd);
}

TEST_CASE("control server: too long a line costs that connection only") {
    World world;
    world.start();
    const int fd = world.connect();
    send_text(fd, std::string(control_request_bytes_max + 10, 'x'));
    ::shutdown(fd, SHUT_WR);
    const std::string answer = read_to_end(fd);
    // The answer may be lost in the reset, since unread bytes are left behind.
    if (!answer.empty()) CHECK(json::parse(answer)["error"]["code"] == "bad_request");
    ::close(fd);
    CHECK(world.call("echo"));
}

TEST_CASE("control server: a silent client is dropped, and so is one that does not read") {
    World world({.socket_path = {}, .idle_time = 2s});
    world.start();
    const int silent = world.connect();
    const int deaf = world.connect();
    send_text(deaf, "{\"command\":\"big\"}\n");
    CHECK(read_to_end(silent).empty());
    ::close(silent);
    CHECK(world.call("echo"));
    // Until the server has given it up.
    pollfd gone{deaf, 0, 0};
    CHECK(::poll(&gone, 1, -1) == 1);
    CHECK(read_to_end(deaf).size() < 8u << 20);
    ::close(deaf);
}

TEST_CASE("control server: a client that goes while its command is under way frees its place") {
    World world({.socket_path = {}, .connections_max = 1});
    world.start();
    const int fd = world.connect();
    send_text(fd, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(0);
    ::close(fd);
    bool answered = false;
    for (int tries = 0; !answered && tries < 3000; ++tries) {
        answered = world.call("echo").has_value();
        if (!answered) std::this_thread::sleep_for(10ms);
    }
    CHECK(answered);
}

TEST_CASE("control server: a client that asks nothing more is answered all the same") {
    World world;
    world.start();
    const int fd = world.connect();
    send_text(fd, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(0);
    ::shutdown(fd, SHUT_WR);
    // A turn of the server, in which it sees that.
    CHECK(world.call("echo"));
    world.answer_kept();
    CHECK(json::parse(read_to_end(fd))["result"]["kept"] == true);
    ::close(fd);
}

TEST_CASE("control server: requests that come while one is under way wait for their turn") {
    World world;
    world.start();
    const int fd = world.connect();
    send_text(fd, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(0);
    send_text(fd, "\n\n{\"command\":\"echo\",\"arguments\":{\"n\":1}}\n\n");
    send_text(fd, "{\"command\":\"later\"}\n{\"command\":\"echo\",\"arguments\":{\"n\":2}}\n");
    CHECK(world.call("echo"));
    world.answer_kept();
    CHECK(json::parse(read_line(fd))["result"]["kept"] == true);
    CHECK(json::parse(read_line(fd))["result"]["n"] == 1);
    CHECK(json::parse(read_line(fd))["result"]["late"] == true);
    CHECK(json::parse(read_line(fd))["result"]["n"] == 2);
    ::close(fd);
}

TEST_CASE("control server: beyond the bound the oldest idle connection goes, else the new one") {
    World world({.socket_path = {}, .connections_max = 2});
    world.start();
    const int one = world.connect();
    send_text(one, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(0);
    const int two = world.connect();
    send_text(two, "{\"command\":\"echo\"}\n");
    CHECK_FALSE(read_line(two).empty());
    const int three = world.connect();
    CHECK(read_to_end(two).empty());
    send_text(three, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(1);
    const int four = world.connect();
    CHECK(read_to_end(four).empty());
    world.answer_kept();
    CHECK_FALSE(read_line(three).empty());
    for (const int fd : {one, two, three, four}) ::close(fd);
}

TEST_CASE(
    "control server: a client that leaves before the answer, and a reply that outlives the "
    "server") {
    World world;
    world.start();
    const int fd = world.connect();
    send_text(fd, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(0);
    ::close(fd);
    const int other = world.connect();
    send_text(other, "{\"command\":\"keep\"}\n");
    world.kept_count_.wait(1);
    ::close(other);
}

TEST_CASE(
    "control server: the socket is private, a stale one replaced, a live one and a file left "
    "alone") {
    World world;
    world.start();
    struct stat found{};
    REQUIRE(::stat(world.path().c_str(), &found) == 0);
    CHECK((found.st_mode & 07777) == 0600);

    auto reactor = std::move(rtrs::Reactor::create().value());
    const auto second =
        ControlServer::create(*reactor, {.socket_path = world.path(), .in_use_timeout = 50ms});
    REQUIRE_FALSE(second);
    CHECK(second.error() == rtrs::from_errno(EADDRINUSE));
    CHECK(world.call("echo"));

    const std::string directory = temporary_directory();
    const std::string path = directory + "/made/x.ctl";
    ::mkdir((directory + "/made").c_str(), 0700);
    std::ofstream(path) << "precious";
    CHECK(ControlServer::create(*reactor, {.socket_path = path}).error() ==
          rtrs::from_errno(EEXIST));
    ::unlink(path.c_str());
    // A socket file whose process is gone.
    const int stale = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    REQUIRE(::bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::close(stale);
    auto third = ControlServer::create(*reactor, {.socket_path = path});
    REQUIRE(third);
    bool closed = false;
    (*third)->close([&] { closed = true; });
    while (!closed) reactor->run_once(std::nullopt);
    third->reset();
    ::rmdir((directory + "/made").c_str());
    CHECK(::rmdir(directory.c_str()) == 0);
    CHECK(ControlServer::create(*reactor, {.socket_path = std::string(200, 'a')}).error() ==
          rtrs::from_errno(ENAMETOOLONG));
}

// As after kill -9: the kernel keeps the socket for a moment after the process is gone.
TEST_CASE("control server: a socket that is heard for a moment more is waited for") {
    const std::string directory = temporary_directory();
    const std::string path = directory + "/x.ctl";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    const int dying = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(dying, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(dying, 8) == 0);
    // Goes when it was seen: a probe has come in.
    std::thread end([&] {
        ::close(::accept(dying, nullptr, nullptr));
        ::close(dying);
    });
    auto reactor = std::move(rtrs::Reactor::create().value());
    auto server = ControlServer::create(*reactor, {.socket_path = path, .in_use_timeout = 5min});
    end.join();
    REQUIRE(server);
    bool closed = false;
    (*server)->close([&] { closed = true; });
    while (!closed) reactor->run_once(std::nullopt);
    server->reset();
    CHECK(::rmdir(directory.c_str()) == 0);
}

TEST_CASE("control client: a daemon that lets in nobody for a while is waited for") {
    const std::string directory = temporary_directory();
    const std::string path = directory + "/x.ctl";
    const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listening, 1) == 0);
    std::vector<int> queue;
    for (int result = 0; result == 0;) {
        queue.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
        result = ::connect(queue.back(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
    REQUIRE(errno == EAGAIN);
    using Kind = ControlCallFailure::Kind;
    const auto shut = control_call({.socket_path = path, .timeout = 30ms}, "a", json::object());
    CHECK(shut.error().kind == Kind::timed_out);

    std::thread server([&] {
        for (std::size_t i = 1; i < queue.size(); ++i)
            ::close(::accept(listening, nullptr, nullptr));
        const int fd = ::accept(listening, nullptr, nullptr);
        static_cast<void>(read_line(fd));
        send_text(fd, emit_control_result({{"heard", true}}) + "\n");
        ::close(fd);
    });
    const auto heard = control_call({.socket_path = path, .timeout = 30s}, "a", json::object());
    server.join();
    CHECK(heard.has_value());
    for (const int fd : queue) ::close(fd);
    ::close(listening);
    ::unlink(path.c_str());
    ::rmdir(directory.c_str());
}

TEST_CASE("control client: nobody there, nonsense, other versions") {
    const std::string directory = temporary_directory();
    const std::string path = directory + "/x.ctl";
    const ControlCallOptions options{.socket_path = path, .timeout = 30s};
    using Kind = ControlCallFailure::Kind;
    CHECK(control_call(options, "a", json::object()).error().kind == Kind::absent);
    const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    CHECK(control_call(options, "a", json::object()).error().kind == Kind::away);
    REQUIRE(::listen(listening, 5) == 0);
    CHECK(control_call({.socket_path = path, .timeout = 20ms}, "a", json::object()).error().kind ==
          Kind::timed_out);
    ::close(::accept(listening, nullptr, nullptr));

    const auto answered_with = [&](std::string answer) {
        std::thread server([&] {
            const int fd = ::accept(listening, nullptr, nullptr);
            static_cast<void>(read_line(fd));
            send_text(fd, answer);
            ::close(fd);
        });
        auto result = control_call(options, "a", json::object());
        server.join();
        return result;
    };
    CHECK(answered_with("hello\n").error().kind == Kind::nonsense);
    CHECK(answered_with("[1]\n").error().kind == Kind::nonsense);
    // Its greeting, before and without a line's end.
    const auto nbd_server = answered_with("NBDMAGICIHAVEOPT");
    CHECK(nbd_server.error().kind == Kind::nonsense);
    CHECK(nbd_server.error().message.find("found an NBD server") != std::string::npos);
    CHECK(answered_with("{\"schema\":\"rnbd-control\",\"version\":2}\n").error().kind ==
          Kind::nonsense);
    CHECK(answered_with("").error().kind == Kind::away);
    const auto odd = answered_with(
        "{\"schema\":\"rnbd-control\",\"version\":1,\"ok\":false,\"error\":{\"code\":\"new\"}}\n");
    CHECK(odd.error().kind == Kind::refused);
    CHECK_FALSE(odd.error().code);
    ::close(listening);
    ::unlink(path.c_str());
    ::rmdir(directory.c_str());
}
