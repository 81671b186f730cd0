// Looking for news instead of sleeping: when it may, and that it changes no result.
#include <poll.h>

#include <thread>

#include "rtrs/reactor/busy_poll.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

TEST_CASE("busy poll: fruitless looks take at most a tenth of the time") {
    constexpr Duration window = 50us;
    Instant now{1s};
    BusyPoll poll(window, now);
    Duration looked{};
    const Instant begin = now;
    while (now < begin + 1s) {
        const Duration look = poll.begin(now);
        now += look;
        looked += look;
        if (look > 0us) poll.fruitless(now);
        now += 20us;  // asleep
    }
    CHECK(looked <= (now - begin) / BusyPoll::fruitless_share + window * BusyPoll::savings_windows);
    // Looking itself saves up nothing.
    CHECK(looked >= (now - begin) / (BusyPoll::fruitless_share + 2));
}

TEST_CASE("busy poll: looks that find something are free") {
    Instant now{1s};
    BusyPoll poll(50us, now);
    for (int i = 0; i < 1000; ++i) {
        REQUIRE(poll.begin(now) == 50us);
        now += 30us;
    }
}

TEST_CASE("busy poll: a long silence saves up no more than a few looks") {
    Instant now{1s};
    BusyPoll poll(50us, now);
    now += 1h;
    int looks = 0;
    while (poll.begin(now) > 0us) {
        now += 50us;
        poll.fruitless(now);
        ++looks;
    }
    CHECK(looks >= BusyPoll::savings_windows);
    CHECK(looks <= BusyPoll::savings_windows + 1);
}

TEST_CASE("busy poll: without a window there is no look") {
    Instant now{1s};
    BusyPoll poll(0us, now);
    // The reactor does not even make one; the rule holds by itself.
    REQUIRE(poll.begin(now + 1s) == 0us);
}

TEST_CASE("reactor: with busy polling everything comes as without") {
    auto reactor = make_reactor();
    reactor->set_busy_poll(200us);
    auto [one, other] = unix_pair();
    const int sender = other;
    for (int round = 0; round < 50; ++round) {
        Recorded readable;
        reactor->poll_readable(readable, one);
        std::thread writer([&] {
            if (round % 2 == 0) std::this_thread::sleep_for(100us);
            RTRS_ASSERT(::write(sender, "x", 1) == 1);
        });
        REQUIRE((finish(*reactor, readable) & POLLIN) != 0);
        writer.join();
        char byte;
        REQUIRE(::read(one, &byte, 1) == 1);
    }
    // Timers and posts end a look and a sleep alike.
    bool posted = false;
    std::thread poster([&] { reactor->post([&] { posted = true; }); });
    run_until(*reactor, [&] { return posted; });
    poster.join();
    bool expired = false;
    Timer timer(*reactor, &expired, [](void* flag) { *static_cast<bool*>(flag) = true; });
    timer.arm(reactor->now() + 300us);
    run_until(*reactor, [&] { return expired; });
    reactor->set_busy_poll(Duration::zero());
    const auto looks = reactor->statistics().looks_found + reactor->statistics().looks_fruitless;
    reactor->run_once(1ms);
    REQUIRE(reactor->statistics().looks_found + reactor->statistics().looks_fruitless == looks);
}
