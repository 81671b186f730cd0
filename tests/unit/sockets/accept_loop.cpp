#include "rtrs/sockets/accept_loop.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <system_error>
#include <vector>

#include "rtrs/sockets/address.h"
#include "rtrs/sockets/listening_socket.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace std::chrono_literals;

namespace {

// What an AcceptLoop tells.
struct Listener final : AcceptLoop::Handler {
    Listener() { loop.start(socket()); }
    ~Listener() {
        if (loop.running()) stop();
        testing::run_until(*reactor, [&] { return loop.idle(); });
    }
    void on_accepted(int fd) override { accepted.emplace_back(fd); }
    void on_cannot_accept(std::error_code error) override { short_of.push_back(error); }
    void on_accept_stopped() override {
        ++stopped;
        CHECK(accepted.size() == accepted_at_stop);
    }
    static rtrs::Descriptor socket() {
        auto made = listen_on_tcp(*parse_address("127.0.0.1:0"), 16);
        REQUIRE(made);
        return std::move(*made);
    }
    void stop() {
        accepted_at_stop = accepted.size();
        loop.stop();
    }
    void wait(Duration time) {
        const Instant end = reactor->now() + time;
        while (reactor->now() < end) reactor->run_once(end - reactor->now());
    }
    void comes(std::size_t count) {
        testing::run_until(*reactor, [&] { return accepted.size() == count; });
    }

    std::unique_ptr<Reactor> reactor = testing::make_reactor();
    std::vector<testing::Descriptor> accepted;
    std::vector<std::error_code> short_of;
    std::size_t accepted_at_stop = 0;
    int stopped = 0;
    AcceptLoop loop{*reactor, *this};
};

sockaddr_in address_of(int listening) {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    REQUIRE(::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    return address;
}

testing::Descriptor unconnected() {
    testing::Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(fd >= 0);
    return fd;
}

bool connects(int fd, const sockaddr_in& to) {
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

// No descriptor is free while this exists.
class NoDescriptors {
  public:
    NoDescriptors() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        const testing::Descriptor next(::fcntl(0, F_DUPFD_CLOEXEC, 0));
        const rlimit tight{static_cast<rlim_t>(static_cast<int>(next)), before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
    }
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;

  private:
    rlimit before_{};
};

}  // namespace

TEST_CASE("accept loop: goes on with another socket, and frees the former one's address") {
    Listener listener;
    const sockaddr_in former = address_of(listener.loop.fd());
    const auto before = unconnected();
    REQUIRE(connects(before, former));
    listener.comes(1);

    listener.loop.replace(Listener::socket());
    const auto after = unconnected();
    REQUIRE(connects(after, address_of(listener.loop.fd())));
    listener.comes(2);
    const auto late = unconnected();
    CHECK_FALSE(connects(late, former));
    CHECK(listener.short_of.empty());
}

TEST_CASE("accept loop: while descriptors are short it says so once, and can be changed") {
    Listener listener;
    const auto first = unconnected();
    const auto second = unconnected();
    rtrs::Descriptor other = Listener::socket();
    REQUIRE(connects(first, address_of(listener.loop.fd())));
    {
        const NoDescriptors here;
        testing::run_until(*listener.reactor, [&] { return !listener.short_of.empty(); });
        CHECK(listener.short_of[0] == std::errc::too_many_files_open);
        SECTION("nothing") {
            // Two more attempts, at least.
            listener.wait(250ms);
            CHECK(listener.short_of.size() == 1);
        }
        SECTION("another socket") {
            listener.loop.replace(std::move(other));
            REQUIRE(connects(second, address_of(listener.loop.fd())));
        }
        SECTION("its end") {
            listener.stop();
            testing::run_until(*listener.reactor, [&] { return listener.stopped > 0; });
            CHECK(listener.loop.idle());
        }
        CHECK(listener.accepted.empty());
    }
    if (listener.loop.running()) {
        listener.comes(1);
        return;
    }
    listener.wait(250ms);
    CHECK(listener.accepted.empty());
    CHECK(listener.stopped == 1);
}

TEST_CASE("accept loop: who comes in the turn in which it ends is hung up on") {
    Listener listener;
    const sockaddr_in address = address_of(listener.loop.fd());
    const auto peer = unconnected();
    REQUIRE(connects(peer, address));
    listener.stop();
    testing::run_until(*listener.reactor, [&] { return listener.stopped > 0; });
    CHECK(listener.accepted.empty());
    char byte = 0;
    CHECK(::recv(peer, &byte, 1, 0) <= 0);
    const auto late = unconnected();
    CHECK_FALSE(connects(late, address));
}
