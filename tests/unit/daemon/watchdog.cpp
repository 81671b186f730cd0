#include "daemon/watchdog.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "rtrs/reactor.h"
#include "rtrs/reactor_group.h"
#include "tests/skip.h"

using namespace rnbd;

namespace {

// What a service manager would be: an abstract socket, named in the environment.
class Manager {
  public:
    Manager() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        const std::string name = "rnbd-watchdog-test-" + std::to_string(::getpid());
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path + 1, name.data(), name.size());
        const auto bytes = offsetof(sockaddr_un, sun_path) + 1 + name.size();
        REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&address),
                       static_cast<socklen_t>(bytes)) == 0);
        ::setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
    }
    ~Manager() {
        ::unsetenv("NOTIFY_SOCKET");
        ::unsetenv("WATCHDOG_USEC");
        ::unsetenv("WATCHDOG_PID");
        ::close(fd_);
    }
    // Empty: nothing was said.
    std::string heard() const {
        std::array<char, 256> text;
        const ssize_t bytes = ::recv(fd_, text.data(), text.size(), 0);
        return {text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
    }

  private:
    int fd_;
};

}  // namespace

TEST_CASE("watchdog: keep-alives come from the loop's turns, one after another") {
    const Manager manager;
    ::setenv("WATCHDOG_USEC", "20000", 1);
    auto reactor = rtrs::Reactor::create();
    if (!reactor) {
        rnbd::testing::skip("no io_uring here");
        return;
    }
    Watchdog watchdog(**reactor);
    CHECK(manager.heard().empty());
    watchdog.start();
    CHECK(manager.heard() == "WATCHDOG=1");
    for (int more = 0; more < 3; ++more) {
        std::string heard = manager.heard();
        // Only a turn brings the next one.
        CHECK(heard.empty());
        while (heard.empty()) {
            (*reactor)->run_once(std::nullopt);
            heard = manager.heard();
        }
        CHECK(heard == "WATCHDOG=1");
    }
}

TEST_CASE("watchdog: a worker that does not turn keeps the next one from being sent") {
    const Manager manager;
    ::setenv("WATCHDOG_USEC", "20000", 1);
    auto reactor = rtrs::Reactor::create();
    auto group = reactor ? rtrs::ReactorGroup::create(**reactor, {.members = 3})
                         : std::unexpected(reactor.error());
    if (!group) {
        rnbd::testing::skip("no io_uring here");
        return;
    }
    Watchdog watchdog(**reactor);
    watchdog.start();
    CHECK(manager.heard() == "WATCHDOG=1");
    // The others have not begun; the first turns for many times the interval.
    const rtrs::Instant end = (*reactor)->now() + std::chrono::milliseconds(200);
    int more_heard = 0;
    while ((*reactor)->now() < end) {
        (*reactor)->run_once(std::chrono::milliseconds(5));
        if (!manager.heard().empty()) ++more_heard;
    }
    CHECK(more_heard == 0);
    REQUIRE(!(*group)->start());
    for (int more = 0; more < 3; ++more) {
        std::string heard;
        while (heard.empty()) {
            (*reactor)->run_once(std::chrono::milliseconds(5));
            heard = manager.heard();
        }
        CHECK(heard == "WATCHDOG=1");
    }
    (*group)->stop();
}

TEST_CASE("watchdog: silent when the manager asked for nothing, or asked another process") {
    const Manager manager;
    auto reactor = rtrs::Reactor::create();
    if (!reactor) {
        rnbd::testing::skip("no io_uring here");
        return;
    }
    Watchdog unasked(**reactor);
    unasked.start();
    ::setenv("WATCHDOG_USEC", "20000", 1);
    ::setenv("WATCHDOG_PID", "1", 1);
    Watchdog of_another(**reactor);
    of_another.start();
    CHECK(manager.heard().empty());
}
