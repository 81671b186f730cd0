#include "daemon/lifecycle.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>

#include "tests/skip.h"

using namespace rnbd;

namespace {

constexpr int skipped = 77;

// Runs `body` in a process of its own (signals are the process's) and returns its wait status.
template <typename Body>
int status_of(Body body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

bool was_skipped(int status) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != skipped) return false;
    rnbd::testing::skip("no io_uring here");
    return true;
}

}  // namespace

TEST_CASE("lifecycle: the first signal is an event, the second one ends the process") {
    const int status = status_of([] {
        prepare_process();
        auto reactor = rtrs::Reactor::create();
        if (!reactor) return skipped;
        int seen = 0;
        auto signals = Signals::create(
            **reactor,
            [&](int signal) {
                seen = signal;
                (*reactor)->stop();
            },
            [] { std::abort(); });
        ::kill(::getpid(), SIGTERM);
        (*reactor)->run();
        if (seen != SIGTERM) return 1;
        ::kill(::getpid(), SIGINT);
        for (;;) ::pause();
    });
    if (was_skipped(status)) return;
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGINT);
}

// What a library prints would go into whatever has the number by then, an exported file perhaps.
TEST_CASE("lifecycle: standard streams that were closed are not given to anything else") {
    const int status = status_of([] {
        for (int fd = 0; fd <= STDERR_FILENO; ++fd) ::close(fd);
        prepare_process();
        for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
            if (::fcntl(fd, F_GETFD) < 0) return 1;
        }
        return ::dup(0) > STDERR_FILENO ? 0 : 2;
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("lifecycle: signals that mean nothing to a daemon do not end it") {
    const int status = status_of([] {
        prepare_process();
        for (const int signal : {SIGPIPE, SIGUSR1, SIGUSR2}) ::raise(signal);
        return 0;
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("lifecycle: signals can be given up") {
    const int status = status_of([] {
        prepare_process();
        auto reactor = rtrs::Reactor::create();
        if (!reactor) return skipped;
        auto signals = Signals::create(**reactor, [](int) { std::abort(); }, [] { std::abort(); });
        (*signals)->close([&] { (*reactor)->stop(); });
        (*reactor)->run();
        return 0;
    });
    if (was_skipped(status)) return;
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("lifecycle: SIGHUP is an event each time, and none once it stops") {
    const int status = status_of([] {
        prepare_process();
        auto reactor = rtrs::Reactor::create();
        if (!reactor) return skipped;
        int reloads = 0;
        auto signals = Signals::create(
            **reactor, [&](int) { (*reactor)->stop(); },
            [&] { ::kill(::getpid(), ++reloads < 3 ? SIGHUP : SIGTERM); });
        ::kill(::getpid(), SIGHUP);
        (*reactor)->run();
        if (reloads != 3) return 1;
        ::kill(::getpid(), SIGHUP);
        return 0;
    });
    if (was_skipped(status)) return;
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
