// What other threads may do: post, stop; and the helper thread. Worth most under TSan.
#include <atomic>
#include <latch>
#include <thread>

#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;

TEST_CASE("reactor: posts of many threads all run, each thread's in order") {
    auto reactor = make_reactor();
    constexpr int threads = 4;
    constexpr int posts = 2000;
    std::vector<int> next(threads);
    int total = 0;
    std::vector<std::jthread> posters;
    for (int t = 0; t < threads; ++t) {
        posters.emplace_back([&, t] {
            for (int i = 0; i < posts; ++i) {
                reactor->post([&, t, i] {
                    if (next[t]++ != i) total = -1'000'000;
                    if (++total == threads * posts) reactor->stop();
                });
            }
        });
    }
    reactor->run();
    REQUIRE(total == threads * posts);
}

TEST_CASE("reactor: created on one thread, run on another, stopped from a third") {
    auto reactor = make_reactor();
    Recorded received;
    auto [near, far] = unix_pair();
    std::byte target[3];
    std::latch running(1);
    std::jthread runner([&] {
        reactor->recv_all(received, near, target);
        reactor->post([&] { running.count_down(); });
        reactor->run();
        run_until(*reactor, [&] { return received.finished(); });
        reactor.reset();
    });
    running.wait();
    std::jthread stopper([&] { reactor->stop(); });
    stopper.join();
    REQUIRE(::write(far, "abc", 3) == 3);
    runner.join();
    REQUIRE(received.value() == 3);
}

TEST_CASE("reactor: its thread may end first, whatever is in flight") {
    Recorded received;
    auto [near, far] = unix_pair();
    std::byte target[3];
    auto reactor = make_reactor();
    std::jthread runner([&] {
        reactor->recv_all(received, near, target);
        reactor->run();
    });
    reactor->stop();
    runner.join();
    reactor.reset();
    REQUIRE(received.results.empty());
    REQUIRE(::write(far, "abc", 3) == 3);
    char text[3];
    REQUIRE(::read(near, text, sizeof text) == 3);
}

TEST_CASE("reactor: stop before run makes run return after one turn, and run can be called again") {
    auto reactor = make_reactor();
    reactor->stop();
    reactor->run();
    REQUIRE(reactor->statistics().turns == 1);
    bool ran = false;
    reactor->post([&] {
        ran = true;
        reactor->stop();
    });
    reactor->run();
    REQUIRE(ran);
}

TEST_CASE("reactor: what is posted from a posted function runs in a later turn") {
    auto reactor = make_reactor();
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    reactor->post([&] {
        first = reactor->statistics().turns;
        reactor->post([&] {
            second = reactor->statistics().turns;
            reactor->stop();
        });
    });
    reactor->run();
    REQUIRE(second > first);
}

TEST_CASE("reactor: offloaded work runs elsewhere, its end here, in order") {
    auto reactor = make_reactor();
    const std::thread::id here = std::this_thread::get_id();
    std::vector<int> ended;
    std::atomic<int> worked = 0;
    for (int i = 0; i < 50; ++i) {
        REQUIRE(reactor->offload(
            [&] {
                if (std::this_thread::get_id() != here) ++worked;
            },
            [&, i] {
                REQUIRE(std::this_thread::get_id() == here);
                ended.push_back(i);
                if (i == 49) reactor->stop();
            }));
    }
    reactor->run();
    REQUIRE(worked == 50);
    REQUIRE(ended.size() == 50);
    REQUIRE(std::is_sorted(ended.begin(), ended.end()));
}

TEST_CASE("reactor: destroyed while work is offloaded it waits for the running one only") {
    std::latch begun(1), go_on(1);
    std::atomic<bool> first_ended = false;
    std::atomic<int> others = 0;
    {
        auto reactor = make_reactor();
        REQUIRE(reactor->offload(
            [&] {
                begun.count_down();
                go_on.wait();
                first_ended = true;
            },
            [&] { ++others; }));
        begun.wait();
        REQUIRE(reactor->offload([] {}, [&] { ++others; }));
        go_on.count_down();
    }
    REQUIRE(first_ended);
    REQUIRE(others == 0);
}

TEST_CASE("reactor: several live side by side in one thread and across threads") {
    auto ours = make_reactor();
    ours->run_once(std::chrono::nanoseconds(0));
    for (int i = 0; i < 4; ++i) {
        auto theirs = make_reactor();
        std::jthread([&] {
            theirs->post([&] { theirs->stop(); });
            theirs->run();
        }).join();
        theirs.reset();  // must not disturb our ring
        ours->post([&] { ours->stop(); });
        ours->run();
    }
    REQUIRE(ours->statistics().turns >= 5);
}
