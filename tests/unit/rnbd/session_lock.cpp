// A name that is taken: whom a lock waits for, and whom it does not.
#include "rnbd/identity/session_lock.h"

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "rtrs/base/error.h"
#include "tests/skip.h"

using namespace std::chrono_literals;
using rnbd::SessionLock;

namespace {

const std::error_code taken = rtrs::from_errno(EADDRINUSE);

// Of this run alone.
std::string session_name() {
    static const std::string name = "unit-session-lock-" + std::to_string(::getpid());
    return name;
}
std::error_code take(SessionLock& lock, const std::string& destination) {
    return lock.take(session_name(), destination);
}

std::atomic<bool> children_are_late = false;

// Before that of the locks: what they do in a child comes behind it.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, [] {
    if (children_are_late) ::poll(nullptr, 0, 200);
});

// A child that does nothing until it is told to end.
class Child {
  public:
    template <typename Work>
    explicit Child(Work work) {
        REQUIRE(::pipe(end_.data()) == 0);
        pid_ = ::fork();
        if (pid_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(end_[1]);
        work();
        char none = 0;
        (void)!::read(end_[0], &none, 1);
        ::_exit(0);
    }
    ~Child() { end(); }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    void end() {
        if (pid_ < 0) return;
        ::close(end_[0]);
        ::close(end_[1]);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }

  private:
    std::array<int, 2> end_{};
    pid_t pid_ = -1;
};

void fork_and_wait() {
    Child child([] {});
    child.end();
}

// So often is tried what a machine that stalls for a moment spoils.
constexpr int rounds = 20;

// A lock that waited would have the name when it was given up.
template <typename GiveUp>
std::error_code take_before_it_is_given_up(SessionLock& lock, const std::string& destination,
                                           GiveUp give_up) {
    std::atomic<bool> begins = false;
    std::thread later([&] {
        while (!begins) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(400ms);
        give_up();
    });
    begins = true;
    const std::error_code error = take(lock, destination);
    later.join();
    return error;
}

}  // namespace

TEST_CASE("a name that this process has is not waited for after a fork") {
    bool not_waited_for = false;
    for (int round = 0; round < rounds && !not_waited_for; ++round) {
        SessionLock one;
        SessionLock two;
        REQUIRE(!take(one, "server"));
        fork_and_wait();
        not_waited_for =
            take_before_it_is_given_up(two, "server", [&] { one.release_all(); }) == taken;
        if (not_waited_for) CHECK(!take(two, "server"));
    }
    CHECK(not_waited_for);
}

TEST_CASE("a name that is given up and taken again is not waited for after a fork") {
    bool not_waited_for = false;
    for (int round = 0; round < rounds && !not_waited_for; ++round) {
        SessionLock one;
        SessionLock two;
        REQUIRE(!take(one, "server"));
        fork_and_wait();
        one.release(session_name(), "server");
        REQUIRE(!take(one, "server"));
        not_waited_for =
            take_before_it_is_given_up(two, "server", [&] { one.release_all(); }) == taken;
    }
    CHECK(not_waited_for);
}

TEST_CASE("a name that another process has is not waited for after a fork") {
    bool not_waited_for = false;
    for (int round = 0; round < rounds && !not_waited_for; ++round) {
        std::array<int, 2> said{};
        REQUIRE(::pipe(said.data()) == 0);
        Child other([&] {
            auto* lock = new SessionLock;
            const char answer = take(*lock, "others") ? 'n' : 'y';
            (void)!::write(said[1], &answer, 1);
        });
        char answer = 0;
        REQUIRE(::read(said[0], &answer, 1) == 1);
        REQUIRE(answer == 'y');
        fork_and_wait();
        SessionLock lock;
        not_waited_for = take_before_it_is_given_up(lock, "others", [&] { other.end(); }) == taken;
        if (not_waited_for) CHECK(!take(lock, "others"));
        ::close(said[0]);
        ::close(said[1]);
    }
    CHECK(not_waited_for);
}

TEST_CASE("a name that a child has which has not run yet is waited for") {
    bool had_them = false;
    for (int round = 0; round < rounds && !had_them; ++round) {
        SessionLock lock;
        REQUIRE(!take(lock, "server"));
        REQUIRE(!take(lock, "another"));
        children_are_late = true;
        Child child([] {});
        children_are_late = false;
        lock.release(session_name(), "server");
        had_them = !take(lock, "server");
        lock.release_all();
        SessionLock next;
        had_them = !take(next, "another") && had_them;
    }
    CHECK(had_them);
}

// Nobody is told of such a child. It has copies of all descriptors until it is another program.
TEST_CASE("a name that a child of vfork has is waited for") {
#ifdef __SANITIZE_THREAD__
    rnbd::testing::skip("ThreadSanitizer takes the child, which has its memory, for the parent");
    return;
#endif
    SessionLock lock;
    bool had_it = false;
    for (int round = 0; round < rounds && !had_it; ++round) {
        if (take(lock, "server")) continue;
        std::atomic<bool> runs = false;
        std::thread forks([&] {
            const pid_t child = ::vfork();
            if (child == 0) {
                runs = true;
                ::poll(nullptr, 0, 20);
                ::_exit(0);
            }
            ::waitpid(child, nullptr, 0);
        });
        while (!runs) std::this_thread::sleep_for(1ms);
        lock.release(session_name(), "server");
        had_it = !take(lock, "server");
        forks.join();
    }
    CHECK(had_it);
}
