// Turns: timers, turn-end tasks, waiting, the descriptor for embedders, and the end.
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <set>
#include <string_view>
#include <thread>

#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

struct RecordedTimer {
    RecordedTimer(Reactor& owner, std::vector<int>& log, int id)
        : reactor(owner), order(log), name(id), timer(owner, this, &expired) {}
    static void expired(void* context) {
        auto& self = *static_cast<RecordedTimer*>(context);
        REQUIRE(self.reactor.now() >= self.due);
        self.order.push_back(self.name);
    }
    void arm_in(Duration delay) {
        due = reactor.now() + delay;
        timer.arm(due);
    }
    Reactor& reactor;
    std::vector<int>& order;
    int name;
    Instant due{};
    Timer timer;
};

struct Task : TurnTask {
    Task(Reactor& owner, std::vector<int>& log, int id)
        : TurnTask(&execute), reactor(owner), order(log), name(id) {}
    static void execute(TurnTask& task) {
        auto& self = static_cast<Task&>(task);
        self.order.push_back(self.name);
        if (self.next != nullptr) self.reactor.at_turn_end(*std::exchange(self.next, nullptr));
    }
    Reactor& reactor;
    std::vector<int>& order;
    int name;
    Task* next = nullptr;
};

}  // namespace

TEST_CASE("reactor: timers expire in order, not early, and can be disarmed") {
    auto reactor = make_reactor();
    std::vector<int> order;
    RecordedTimer late(*reactor, order, 2);
    RecordedTimer early(*reactor, order, 1);
    RecordedTimer never(*reactor, order, 3);
    const Instant now = reactor->now();  // of all three: between them a slow machine may pass 6 ms
    late.timer.arm(now + 8ms);
    never.timer.arm(now + 4ms);
    early.timer.arm(now + 2ms);
    never.timer.disarm();
    run_until(*reactor, [&] { return order.size() == 2; });
    REQUIRE(order == std::vector{1, 2});
    REQUIRE(!never.timer.armed());
}

TEST_CASE("reactor: a timer that is due does not wait") {
    auto reactor = make_reactor();
    std::vector<int> order;
    RecordedTimer timer(*reactor, order, 1);
    timer.arm_in(-1s);
    reactor->run_once(std::nullopt);
    REQUIRE(order == std::vector{1});
}

TEST_CASE("reactor: the clock stands still within a turn and moves between turns") {
    auto reactor = make_reactor();
    Instant first{};
    Instant second{};
    reactor->post([&] {
        first = reactor->now();
        std::this_thread::sleep_for(2ms);
        second = reactor->now();
    });
    run_until(*reactor, [&] { return second != Instant{}; });
    REQUIRE(first == second);
    REQUIRE(reactor->now() > first);
}

TEST_CASE("reactor: run_once returns after max_wait with nothing to do") {
    auto reactor = make_reactor();
    const Instant before = reactor->now();
    reactor->run_once(3ms);
    REQUIRE(reactor->now() - before >= 3ms);
    reactor->run_once(0ns);
    REQUIRE(reactor->statistics().turns == 2);
    REQUIRE(reactor->statistics().completions == 0);
}

TEST_CASE("reactor: timers of nearly the same deadline go off in one turn, none much later") {
    auto reactor = make_reactor();
    std::vector<int> order;
    // Up to 64 ms: rounded to half a millisecond at least, and at most to one.
    std::deque<RecordedTimer> timers;
    const Instant begin = reactor->now();
    for (int i = 0; i < 100; ++i) {
        timers.emplace_back(*reactor, order, i).arm_in(60ms + i * 1us);
        CHECK(timers.back().timer.deadline() >= timers.back().due);
        CHECK(timers.back().timer.deadline() - timers.back().due <= Duration(61ms) / 64);
    }
    std::set<Instant> deadlines;
    for (const RecordedTimer& timer : timers) deadlines.insert(timer.timer.deadline());
    CHECK(deadlines.size() <= static_cast<std::size_t>((reactor->now() - begin) / 500us) + 3);
    const auto turns = reactor->statistics().turns;
    run_until(*reactor, [&] { return order.size() == timers.size(); });
    CHECK(reactor->statistics().turns - turns <= 2 * deadlines.size() + 2);
}

TEST_CASE("reactor: a timer of a short delay is not rounded away") {
    auto reactor = make_reactor();
    std::vector<int> order;
    RecordedTimer now(*reactor, order, 1);
    RecordedTimer past(*reactor, order, 2);
    now.arm_in(0ns);
    past.arm_in(-1s);
    CHECK(now.timer.deadline() == now.due);
    CHECK(past.timer.deadline() == past.due);
    run_until(*reactor, [&] { return order.size() == 2; });
}

TEST_CASE("reactor: turn-end tasks run once each, and those they add in the same turn") {
    auto reactor = make_reactor();
    std::vector<int> order;
    Task first(*reactor, order, 10);
    Task second(*reactor, order, 11);
    Task added(*reactor, order, 12);
    Task cancelled(*reactor, order, 13);
    first.next = &added;
    RecordedTimer timer(*reactor, order, 1);
    timer.arm_in(-1ns);
    reactor->at_turn_end(first);
    reactor->at_turn_end(second);
    reactor->at_turn_end(cancelled);
    reactor->at_turn_end(first);
    Reactor::cancel_turn_end(cancelled);
    Reactor::cancel_turn_end(cancelled);
    reactor->run_once(std::nullopt);  // does not wait: there is something to do
    REQUIRE(order == std::vector{10, 11, 12, 1});
}

TEST_CASE("reactor: turn-end tasks of a turn run after its timers") {
    auto reactor = make_reactor();
    std::vector<int> order;
    Task task(*reactor, order, 10);
    RecordedTimer timer(*reactor, order, 1);
    reactor->post([&] {
        reactor->at_turn_end(task);
        timer.arm_in(-1ns);
    });
    run_until(*reactor, [&] { return order.size() == 2; });
    REQUIRE(order == std::vector{1, 10});
}

TEST_CASE("reactor: what a task from between two turns prepares is submitted by the next turn") {
    auto reactor = make_reactor();
    Descriptor file(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    Recorded read;
    std::byte target[1]{std::byte{1}};
    struct Reading : TurnTask {
        Reading() : TurnTask([](TurnTask& task) { static_cast<Reading&>(task).act(); }) {}
        std::function<void()> act;
    } reading;
    reading.act = [&] { reactor->read(read, {file}, target, 0); };
    reactor->at_turn_end(reading);
    reactor->run_once(std::nullopt);
    REQUIRE(read.finished());
    REQUIRE(target[0] == std::byte{0});
}

TEST_CASE("reactor: tasks from between two turns can be run before the next one, which may wait") {
    auto reactor = make_reactor();
    std::vector<int> order;
    Task task(*reactor, order, 10);
    RecordedTimer timer(*reactor, order, 1);
    timer.arm_in(2ms);
    reactor->at_turn_end(task);
    const std::uint64_t turns = reactor->statistics().turns;
    reactor->run_turn_end();
    REQUIRE(order == std::vector{10});
    REQUIRE(reactor->statistics().turns == turns);
    reactor->run_once(std::nullopt);
    REQUIRE(order == std::vector{10, 1});
}

TEST_CASE("reactor: a task scheduled by a completion runs in that completion's turn") {
    auto reactor = make_reactor();
    std::vector<int> order;
    Task task(*reactor, order, 1);
    std::uint64_t turn = 0;
    reactor->post([&] {
        reactor->at_turn_end(task);
        turn = reactor->statistics().turns;
    });
    run_until(*reactor, [&] { return !order.empty(); });
    REQUIRE(reactor->statistics().turns == turn);
}

TEST_CASE("reactor: its descriptor becomes readable for completions, posts and timers") {
    auto reactor = make_reactor();
    const int fd = reactor->fd();
    auto readable = [&](int timeout_ms) {
        pollfd waiting{fd, POLLIN, 0};
        return ::poll(&waiting, 1, timeout_ms) == 1;
    };
    reactor->run_once(0ns);
    REQUIRE(!readable(0));

    bool ran = false;
    std::thread other([&] { reactor->post([&] { ran = true; }); });
    REQUIRE(readable(-1));
    other.join();
    while (!ran) reactor->run_once(0ns);

    std::vector<int> order;
    RecordedTimer timer(*reactor, order, 1);
    RecordedTimer sooner(*reactor, order, 0);
    const auto expire = [&](std::size_t count) {
        while (order.size() < count) {
            REQUIRE(readable(-1));
            reactor->run_once(0ns);
        }
    };
    timer.arm_in(1h);
    reactor->run_once(0ns);
    sooner.arm_in(5ms);
    reactor->run_once(0ns);
    expire(1);
    REQUIRE(order == std::vector{0});
    timer.arm_in(5ms);
    reactor->run_once(0ns);
    expire(2);
    REQUIRE(order == std::vector{0, 1});

    auto [near, far] = unix_pair();
    Recorded received;
    reactor->recv_provided(received, near, 0, Reactor::FirstTry::at_once);
    reactor->run_once(0ns);
    REQUIRE(::write(far, "x", 1) == 1);
    while (!received.finished()) {
        REQUIRE(readable(-1));
        reactor->run_once(0ns);
    }
    REQUIRE(received.value() == 1);
    reactor->return_buffer(*received.results.back().buffer);
}

TEST_CASE("reactor: its descriptor becomes readable each time, whoever rings") {
    auto reactor = make_reactor();
    const int fd = reactor->fd();
    auto turn_when_readable = [&] {
        pollfd waiting{fd, POLLIN, 0};
        REQUIRE(::poll(&waiting, 1, -1) == 1);
        reactor->run_once(0ns);
    };
    auto [near, far] = unix_pair();
    constexpr int rounds = 200;
    std::atomic<int> heard = 0;  // posts and bytes in turn
    std::thread other([&, bell = static_cast<int>(far)] {
        for (int i = 0; i < 2 * rounds; ++i) {
            while (heard < i) std::this_thread::yield();
            std::this_thread::sleep_for(50us);  // it waits by now, mostly
            if (i % 2 == 0) {
                reactor->post([&] { ++heard; });
            } else if (::write(bell, "x", 1) != 1) {
                std::abort();
            }
        }
    });
    for (int i = 0; i < rounds; ++i) {
        while (heard == 2 * i) turn_when_readable();
        Recorded byte;
        reactor->recv_provided(byte, near, 0, Reactor::FirstTry::at_once);
        reactor->run_once(0ns);
        while (!byte.finished()) turn_when_readable();
        REQUIRE(byte.value() == 1);
        reactor->return_buffer(*byte.results.back().buffer);
        ++heard;
    }
    other.join();
}

TEST_CASE("reactor: what comes while its descriptor is read is told") {
    auto reactor = make_reactor();
    const int fd = reactor->fd();
    auto [near_first, far_first] = unix_pair();
    auto [near_second, far_second] = unix_pair();
    constexpr int rounds = 1000;
    std::atomic<int> round = -1;
    std::thread other(
        [&, first = static_cast<int>(far_first), second = static_cast<int>(far_second)] {
            for (int i = 0; i < rounds; ++i) {
                while (round < i) std::this_thread::yield();
                std::this_thread::sleep_for(20us);  // it waits by now, mostly
                bool written = ::write(first, "x", 1) == 1;
                // Sooner or later, so that some come in between.
                for (int spin = 0; spin < i % 1000 * 40; ++spin)
                    std::atomic_signal_fence(std::memory_order_seq_cst);
                written = written && ::write(second, "x", 1) == 1;
                if (!written) std::abort();
            }
        });
    reactor->run_once(0ns);
    for (int i = 0; i < rounds; ++i) {
        Recorded one;
        Recorded two;
        std::array<std::byte, 2> bytes;
        reactor->recv_all(one, near_first, std::span(bytes).first(1));
        reactor->recv_all(two, near_second, std::span(bytes).last(1));
        reactor->run_once(0ns);
        round = i;
        while (!one.finished() || !two.finished()) {
            pollfd waiting{fd, POLLIN, 0};
            REQUIRE(::poll(&waiting, 1, -1) == 1);
            reactor->run_once(0ns);
        }
    }
    other.join();
}

TEST_CASE("reactor: its descriptor tells of work that the kernel puts off") {
    // Of what waits it does some 20 at a time, and half a payload completes nothing.
    for (const int whole : {0, 1, 25}) {
        constexpr std::size_t sockets = 200;
        INFO(whole);
        auto reactor = make_reactor();
        const int fd = reactor->fd();
        std::vector<std::pair<Descriptor, Descriptor>> pairs;
        std::deque<Recorded> received(sockets);
        std::array<std::array<std::byte, 2>, sockets> bytes;
        for (std::size_t i = 0; i < sockets; ++i) {
            pairs.push_back(unix_pair());
            reactor->recv_all(received[i], pairs[i].first, bytes[i]);
            reactor->run_once(0ns);
        }
        const auto send = [&](std::size_t i, std::string_view text) {
            REQUIRE(::write(pairs[i].second, text.data(), text.size()) == std::ssize(text));
        };
        for (int i = 0; i < static_cast<int>(sockets) - 1; ++i) send(i, i < whole ? "xy" : "x");
        send(sockets - 1, "xy");
        while (!received.back().finished()) {
            pollfd waiting{fd, POLLIN, 0};
            REQUIRE(::poll(&waiting, 1, -1) == 1);
            reactor->run_once(0ns);
        }
        for (std::size_t i = whole; i < sockets - 1; ++i) send(i, "y");
        while (!std::ranges::all_of(received, &Recorded::finished)) reactor->run_once(0ns);
        // Then there is nothing, and it says so.
        int turns = 0;
        const auto readable = [fd] {
            pollfd waiting{fd, POLLIN, 0};
            return ::poll(&waiting, 1, 50) == 1;
        };
        for (; turns < 1000 && readable(); ++turns) reactor->run_once(0ns);
        REQUIRE(turns < 1000);
    }
}

TEST_CASE("reactor: its descriptor falls silent behind a burst") {
    constexpr std::size_t sockets = 100;
    auto reactor = make_reactor();
    const int fd = reactor->fd();
    std::vector<std::pair<Descriptor, Descriptor>> pairs;
    for (std::size_t i = 0; i < sockets; ++i) pairs.push_back(unix_pair());
    std::array<std::array<std::byte, 2>, sockets> bytes;
    for (int round = 0; round < 50; ++round) {
        std::deque<Recorded> received(sockets);
        for (std::size_t i = 0; i < sockets; ++i)
            reactor->recv_all(received[i], pairs[i].first, bytes[i]);
        reactor->run_once(0ns);
        std::thread other([&] {
            for (const char* half : {"x", "y"}) {
                for (const auto& pair : pairs) {
                    if (::write(pair.second, half, 1) != 1) std::abort();
                }
            }
        });
        int turns = 0;
        const auto turn_if_readable = [&](int timeout_ms) {
            pollfd waiting{fd, POLLIN, 0};
            if (::poll(&waiting, 1, timeout_ms) != 1) return false;
            reactor->run_once(0ns);
            return ++turns < 10000;
        };
        while (!std::ranges::all_of(received, &Recorded::finished) && turn_if_readable(-1))
            continue;
        other.join();
        while (turn_if_readable(2)) continue;
        REQUIRE(turns < 10000);
    }
}

TEST_CASE("reactor: its descriptor goes on telling behind run()") {
    auto reactor = make_reactor();
    const int fd = reactor->fd();
    int ran = 0;
    std::thread other([&] {
        reactor->post([&] { ++ran; });
        std::this_thread::sleep_for(100ms);  // until the kernel has told what it put off
        reactor->stop();
    });
    reactor->run();
    other.join();
    std::thread later([&] {
        std::this_thread::sleep_for(100ms);
        reactor->post([&] { ++ran; });
    });
    while (ran < 2) {
        pollfd waiting{fd, POLLIN, 0};
        REQUIRE(::poll(&waiting, 1, -1) == 1);
        reactor->run_once(0ns);
    }
    later.join();
}

TEST_CASE("reactor: destroyed with operations in flight it cancels them without calling handlers") {
    auto [near, far] = unix_pair();
    Recorded received;
    Recorded polled;
    Recorded accepting;
    std::byte target[16];
    LoopbackListener listener;
    {
        auto reactor = make_reactor();
        reactor->recv_all(received, near, target);
        reactor->poll_readable(polled, near);
        reactor->accept(accepting, listener.fd);
        reactor->run_once(0ns);
    }
    REQUIRE(received.results.empty());
    REQUIRE(polled.results.empty());
    REQUIRE(accepting.results.empty());
    REQUIRE(::write(far, "late", 4) == 4);
    char text[4];
    REQUIRE(::read(near, text, sizeof text) == 4);  // nobody took it
}

TEST_CASE("reactor: one that never ran can be destroyed") {
    Recorded received;
    auto [near, far] = unix_pair();
    std::byte target[16];
    auto reactor = make_reactor();
    reactor->recv_all(received, near, target);
}

TEST_CASE("reactor: options out of range are refused") {
    REQUIRE(!Reactor::create({.receive_buffers = 3}));
    REQUIRE(!Reactor::create({.receive_buffer_bytes = 0}));
    REQUIRE(!Reactor::create({.fixed_buffers = 16385}));
    REQUIRE(!Reactor::create({.submission_entries = 0}));
}
