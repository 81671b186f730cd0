// Looking for news instead of sleeping: when it may, and that it changes no result.
#include "rtrs/reactor/busy_poll.h"

#include <poll.h>

#include <thread>
#include <utility>

#include "tests/skip.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

// How often a thread looks that sleeps 20 us after each look.
int looks_in_a_second(Duration window, bool finds, Duration look_takes) {
    Instant now{1s};
    BusyPoll poll(window, now);
    int looks = 0;
    for (const Instant end = now + 1s; now < end; now += 20us) {
        if (!poll.affords(now)) continue;
        CHECK(poll.begin(now) == window);
        now += look_takes;
        ++looks;
        finds ? poll.found(now) : poll.fruitless(now);
    }
    return looks;
}

}  // namespace

TEST_CASE("busy poll: looks that find nothing take a thousandth of the time") {
    const int looks = looks_in_a_second(50us, false, 50us);
    CHECK(looks <= 1s / 50us / BusyPoll::free_share + BusyPoll::savings_windows);
    CHECK(looks >= 1s / 50us / (BusyPoll::free_share + 2));
}

TEST_CASE("busy poll: looks that find something within the window are free") {
    CHECK(looks_in_a_second(50us, true, 50us) == 1s / 70us + 1);
    CHECK(looks_in_a_second(50us, true, 5us) == 1s / 25us);
}

TEST_CASE("busy poll: a find after the window is none, for somebody else had the processor") {
    CHECK(looks_in_a_second(50us, true, 500us) == looks_in_a_second(50us, false, 500us));
    CHECK(looks_in_a_second(50us, true, 500us) < 50);  // of 1900
}

TEST_CASE("busy poll: what early finds earn pays for as much that finds nothing") {
    constexpr Duration window = 50us;
    Instant now{1s};
    BusyPoll poll(window, now);
    int looks = 0;
    for (int i = 0; i < 1000; ++i) {
        if (!poll.affords(now)) continue;
        poll.begin(now);
        ++looks;
        // Two of three come after 10 us, and earn 40 each.
        now += i % 3 == 0 ? window : 10us;
        i % 3 == 0 ? poll.fruitless(now) : poll.found(now);
    }
    CHECK(looks == 1000);
}

TEST_CASE("busy poll: a long silence saves up no more than a few looks") {
    Instant now{1s};
    BusyPoll poll(50us, now);
    now += 1h;
    int looks = 0;
    while (poll.affords(now)) {
        poll.begin(now);
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
    REQUIRE_FALSE(poll.affords(now + 1s));
}

TEST_CASE("busy poll: a time of a little earlier neither earns nor costs") {
    Instant now{1s};
    BusyPoll poll(50us, now);
    for (int looks = 0; looks < BusyPoll::savings_windows; ++looks) {
        REQUIRE(poll.affords(now - 20us));
        poll.begin(now);
        now += 50us;
        poll.fruitless(now);
    }
    CHECK_FALSE(poll.affords(now - 20us));
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

TEST_CASE("reactor: it looks while as many requests are in flight as it is to look for") {
    auto reactor = make_reactor();
    reactor->set_busy_poll(200us, {.min = 1, .max = 2});
    std::uint64_t looks = 0;
    const auto looked = [&] {
        reactor->run_once(1ms);
        const Reactor::Statistics& did = reactor->statistics();
        const std::uint64_t before = std::exchange(looks, did.looks_found + did.looks_fruitless);
        return looks != before;
    };
    CHECK_FALSE(looked());
    reactor->begin_request();
    CHECK(looked() == reactor->polls_busily());
    reactor->begin_request();
    CHECK(looked() == reactor->polls_busily());
    reactor->begin_request();
    CHECK_FALSE(looked());
    reactor->end_request();
    CHECK(looked() == reactor->polls_busily());
    reactor->end_request();
    reactor->end_request();
    CHECK_FALSE(looked());
}

TEST_CASE("reactor: among large payloads there is no busy polling") {
    auto reactor = make_reactor();
    reactor->set_busy_poll(200us);
    auto [one, other] = unix_pair();
    std::vector<std::byte> payload(64u << 10);
    const auto looks = [&] {
        return reactor->statistics().looks_found + reactor->statistics().looks_fruitless;
    };
    const auto none_within = [&](Instant since) {
        reactor->run_once(1us);
        // A machine that is busy may have let the moment pass.
        if (reactor->now() - since < 1ms) CHECK(looks() == 0);
    };
    const auto some_after = [&] {
        const auto before = looks();
        std::this_thread::sleep_for(2ms);
        reactor->run_once(1us);
        CHECK(looks() == before + (reactor->polls_busily() ? 1 : 0));
    };
    Recorded large;
    Instant since = reactor->now();
    reactor->run_once(Duration::zero());
    reactor->recv_all(large, one, payload);
    none_within(since);
    some_after();  // who stalls in its middle is no reason for ever

    since = reactor->now();
    const auto before = looks();
    REQUIRE(::write(other, payload.data(), payload.size()) == static_cast<ssize_t>(payload.size()));
    REQUIRE(finish(*reactor, large) == static_cast<int>(payload.size()));
    const auto until_it_came = looks();
    CHECK(until_it_came <= before + 1);
    reactor->run_once(1us);
    if (reactor->now() - since < 1ms) CHECK(looks() == until_it_came);
    some_after();

    Recorded small;
    reactor->recv_all(small, one, MutableBytes(payload).first(100));
    some_after();
    REQUIRE(::write(other, payload.data(), 100) == 100);
    REQUIRE(finish(*reactor, small) == 100);
}

namespace {

// A device: what it has shows in memory, and rings a bell only if it was told to.
struct Device final : Lookout {
    explicit Device(Reactor& its_reactor)
        : reactor(its_reactor), handled_timer(reactor, this, [](void* self) {
              auto& device = *static_cast<Device*>(self);
              device.handled += std::exchange(device.found, 0);
          }) {
        reactor.add_lookout(*this);
    }
    ~Device() { Reactor::remove_lookout(*this); }
    bool look() noexcept override {
        ++looks;
        if (looks == has_news_at_look) found = 1;
        if (found > 0) handled_timer.arm(reactor.now());
        return found > 0;
    }
    bool before_sleep() noexcept override {
        ++sleeps;
        if (sleeps == has_news_at_sleep) found = 1;
        if (found > 0) handled_timer.arm(reactor.now());
        return found > 0;
    }
    Reactor& reactor;
    Timer handled_timer;
    int looks = 0, sleeps = 0, found = 0, handled = 0;
    int has_news_at_look = 0, has_news_at_sleep = 0;
};

}  // namespace

TEST_CASE("reactor: what a lookout sees is handled in the turn that follows, without a sleep") {
    auto reactor = make_reactor();
    Device device(*reactor);
    device.has_news_at_look = 1;
    reactor->run_once(std::nullopt);  // would wait for ever
    CHECK(device.handled == 1);
    CHECK(device.sleeps == 0);
}

TEST_CASE("reactor: a lookout hears of a sleep, and what came just before it is not slept on") {
    auto reactor = make_reactor();
    Device device(*reactor);
    device.has_news_at_sleep = 1;
    reactor->run_once(std::nullopt);
    CHECK(device.handled == 1);
    CHECK(device.sleeps == 1);
    // A turn that does not wait is no sleep.
    reactor->run_once(Duration::zero());
    CHECK(device.sleeps == 1);
}

TEST_CASE("reactor: a lookout is looked at again and again while it polls busily") {
    auto reactor = make_reactor();
    reactor->set_busy_poll(1ms);
    const bool polls = reactor->polls_busily();
    if (!polls) rnbd::testing::skip_part("this kernel's ring does not tell its news");
    Device device(*reactor);
    device.has_news_at_look = 5;
    for (int turns = 0; device.handled == 0 && turns < 1000; ++turns) reactor->run_once(1ms);
    CHECK(device.handled == 1);
    if (polls) CHECK(device.sleeps == 0);
}

TEST_CASE("reactor: who waits on fd() hears of what a lookout saw last") {
    auto reactor = make_reactor();
    Device device(*reactor);
    pollfd waits{.fd = reactor->fd(), .events = POLLIN, .revents = 0};
    device.has_news_at_sleep = 1;  // at the end of the turn, when the program is about to wait
    reactor->run_once(Duration::zero());
    CHECK(device.sleeps == 1);
    CHECK(device.handled == 0);
    REQUIRE(::poll(&waits, 1, 10000) == 1);
    reactor->run_once(Duration::zero());
    CHECK(device.handled == 1);
}
