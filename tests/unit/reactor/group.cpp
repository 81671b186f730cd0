// Reactors that share what their handlers work on. Worth most under TSan: nothing here is locked.
#include <sched.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "rtrs/reactor/baton.h"
#include "rtrs/reactor_group.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

// Three members; the first is the test's thread.
struct Group {
    explicit Group(std::uint32_t members = 3) {
        auto made = ReactorGroup::create(*first, {.members = members});
        REQUIRE(made);
        group = std::move(*made);
    }
    // Runs until stop() is called by a handler of any member.
    void run() {
        REQUIRE(!group->start());
        first->run();
        group->stop();
    }
    std::unique_ptr<Reactor> first = make_reactor();
    std::unique_ptr<ReactorGroup> group;
};

// One byte to and fro between two sockets that belong to different members.
struct PingPong {
    PingPong(Reactor& its_near, Reactor& its_far, int its_rounds, std::uint64_t& its_total)
        : rounds(its_rounds), total(its_total), near{its_near, *this}, far{its_far, *this} {
        auto [a, b] = unix_pair();
        near.fd = std::move(a);
        far.fd = std::move(b);
    }
    struct End : Operation {
        End(Reactor& its_reactor, PingPong& its_game)
            : Operation(&got), reactor(its_reactor), game(its_game) {}
        void wait() { reactor.recv_all(*this, fd, {&byte, 1}); }
        static void got(Operation& operation, const Result& result) {
            auto& self = static_cast<End&>(operation);
            RTRS_ASSERT(&self.reactor.here() == &self.reactor);
            if (self.game.is_over) return self.game.ended();  // cancelled
            RTRS_ASSERT(result.value == 1);
            ++self.game.total;
            if (self.game.rounds-- <= 0) return self.game.over();
            self.wait();
            RTRS_ASSERT(::send(self.fd, &self.byte, 1, 0) == 1);
        }
        Reactor& reactor;
        PingPong& game;
        Descriptor fd;
        std::byte byte{};
    };
    void over() {
        is_over = true;
        near.reactor.cancel(near);
        far.reactor.cancel(far);
    }
    int rounds;
    std::uint64_t& total;
    bool is_over = false;
    std::function<void()> ended;
    End near, far;
};

std::vector<unsigned> processors_of_this_thread() {
    cpu_set_t set;
    REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
    std::vector<unsigned> processors;
    for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(i, &set)) processors.push_back(i);
    }
    return processors;
}

void hold_this_thread_on(unsigned processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    RTRS_ASSERT(::sched_setaffinity(0, sizeof set, &set) == 0);
}

// Operations whose last one to complete ends the run.
struct Awaited : Recorded {
    Awaited(Group& its_group, int& its_left) : group(its_group), left(its_left) {
        completed = &got;
    }
    static void got(Operation& operation, const Result& result) {
        auto& self = static_cast<Awaited&>(operation);
        self.member = self.group.first->here().number();
        Recorded::done(operation, result);
        if (--self.left == 0) self.group.first->stop();
    }
    Group& group;
    int& left;
    std::uint32_t member = 0;  // on whose thread it completed
};

}  // namespace

TEST_CASE("reactor group: members know each other, and which of them is here") {
    auto alone = make_reactor();
    CHECK(alone->members() == 1);
    CHECK(&alone->member(0) == alone.get());
    CHECK(&alone->here() == alone.get());
    Group g;
    CHECK(g.first->members() == 3);
    CHECK(&g.first->here() == g.first.get());
    for (std::uint32_t i = 0; i < 3; ++i) {
        CHECK(g.first->member(i).number() == i);
        CHECK(&g.first->member(i).member(0) == g.first.get());
        CHECK(&g.first->member(i).here() == g.first.get());
    }
    CHECK(!ReactorGroup::create(*alone, {.members = 0}));
    CHECK(!ReactorGroup::create(*alone, {.members = ReactorGroup::members_max + 1}));
}

TEST_CASE("reactor group: a reactor that has left its group is one of its own again") {
    auto reactor = make_reactor();
    {
        auto group = ReactorGroup::create(*reactor, {.members = 2});
        REQUIRE(group);
        REQUIRE(!(*group)->start());
        reactor->post([&] { reactor->stop(); });
        reactor->run();
    }
    CHECK(reactor->members() == 1);
    bool ran = false;
    reactor->post([&] { ran = true; });
    run_until(*reactor, [&] { return ran; });
}

TEST_CASE("reactor group: a processor leads to the only member that is held there") {
    const std::vector<unsigned> processors = processors_of_this_thread();
    if (processors.size() < 2) {
        return rnbd::testing::skip("this thread has one processor only");
    }
    // The first member runs anywhere, the next ones on the first processor and on the second, and
    // the last, if there is one, on the second, too.
    const auto found_with = [&](std::uint32_t members) {
        auto first = make_reactor();
        auto group =
            ReactorGroup::create(*first, {.members = members, .begin = [&](std::uint32_t number) {
                                              hold_this_thread_on(processors[number == 1 ? 0 : 1]);
                                          }});
        REQUIRE(group);
        std::uint32_t left = members - 1;
        for (std::uint32_t i = 1; i < members; ++i) {
            first->member(i).post([&] {
                if (--left == 0) first->stop();
            });
        }
        REQUIRE(!(*group)->start());
        first->run();
        (*group)->stop();
        return std::pair{first->member_held_on(processors[0]),
                         first->member_held_on(processors[1])};
    };
    using Found = std::optional<std::uint32_t>;
    CHECK(found_with(2) == std::pair{Found{1}, Found{}});
    CHECK(found_with(3) == std::pair{Found{1}, Found{2}});
    CHECK(found_with(4) == std::pair{Found{1}, Found{}});
    CHECK(!make_reactor()->member_held_on(processors[0]));
}

TEST_CASE("reactor group: handlers of all members share memory without locks") {
    Group g;
    constexpr int games = 6;
    constexpr int rounds = 3000;
    std::uint64_t total = 0;  // written by handlers of every member
    int over = 0;
    std::vector<std::unique_ptr<PingPong>> all;
    for (std::uint32_t i = 0; i < games; ++i) {
        all.push_back(std::make_unique<PingPong>(g.first->member(i % 3),
                                                 g.first->member((i + 1) % 3), rounds, total));
        all.back()->ended = [&] {
            if (++over == games) g.first->stop();
        };
        all.back()->near.wait();
        all.back()->far.wait();
        std::byte first{};
        REQUIRE(::send(all.back()->far.fd, &first, 1, 0) == 1);
    }
    g.run();
    CHECK(total == std::uint64_t{games} * (rounds + 1));
}

TEST_CASE("reactor group: a timer goes off on its own member's thread, whoever arms it") {
    Group g;
    struct Relay {
        explicit Relay(Group& its_group) : group(its_group) {
            for (std::uint32_t i = 0; i < 3; ++i) {
                timers.push_back(std::make_unique<Timer>(
                    group.first->member(i), this,
                    [](void* self) { static_cast<Relay*>(self)->passed(); }));
            }
        }
        void passed() {
            Reactor& here = group.first->here();
            RTRS_ASSERT(here.number() == wanted);
            if (++count == 600) return group.first->stop();
            wanted = (wanted + 1) % 3;
            // Now, and a little later: both wake a member that sleeps for ever.
            timers[wanted]->arm(here.now() + (count % 2 == 0 ? 0us : 50us));
        }
        Group& group;
        std::vector<std::unique_ptr<Timer>> timers;
        std::uint32_t wanted = 1;
        int count = 0;
    };
    Relay relay(g);
    relay.timers[1]->arm(g.first->now());
    g.run();
    CHECK(relay.count == 600);
}

TEST_CASE("reactor group: turn-end tasks run on their own member's thread, whoever asks") {
    Group g;
    struct Task : TurnTask {
        Task(Group& its_group, std::uint32_t its_member)
            : TurnTask(&done), group(its_group), member(its_member) {}
        static void done(TurnTask& task) {
            auto& self = static_cast<Task&>(task);
            RTRS_ASSERT(self.group.first->here().number() == self.member);
            if (--*self.left == 0) return self.group.first->stop();
            self.group.first->member(self.next->member).at_turn_end(*self.next);
        }
        Group& group;
        std::uint32_t member;
        Task* next = nullptr;
        int* left = nullptr;
    };
    Task a(g, 0);
    Task b(g, 1);
    Task c(g, 2);
    int left = 500;
    a.next = &b;
    b.next = &c;
    c.next = &a;
    a.left = b.left = c.left = &left;
    g.first->at_turn_end(a);
    g.run();
    CHECK(left == 0);
}

TEST_CASE("reactor group: what another member has begun can be cancelled from here") {
    Group g;
    auto [near, far] = unix_pair();
    std::byte byte{};
    int left = 1;
    Awaited read(g, left);
    g.first->member(2).recv_all(read, near, {&byte, 1});
    CHECK(read.in_flight);
    g.first->member(1).post([&] { g.first->member(2).cancel(read); });
    g.run();
    CHECK(read.value() == -ECANCELED);
    CHECK(read.member == 2);
}

TEST_CASE("reactor group: what was asked for and has not begun yet can be cancelled") {
    Group g;
    auto [near, far] = unix_pair();
    std::byte byte{};
    int left = 1;
    Awaited read(g, left);
    // In the same mailbox, the cancelling first.
    g.first->member(1).post([&] { g.first->member(1).cancel(read); });
    g.first->member(1).recv_all(read, near, {&byte, 1});
    g.run();
    CHECK(read.value() == -ECANCELED);
}

TEST_CASE("reactor group: a cancellation does not overtake what is asked for after another one") {
    Group g;
    auto [near_a, far_a] = unix_pair();
    auto [near_b, far_b] = unix_pair();
    std::byte bytes[2];
    int left = 2;
    Awaited a(g, left);
    Awaited b(g, left);
    Reactor& other = g.first->member(1);
    other.recv_all(a, near_a, {&bytes[0], 1});
    other.cancel(a);
    other.recv_all(b, near_b, {&bytes[1], 1});
    other.cancel(b);
    // One that was forgotten would wait for ever: it gets what it waits for.
    Timer late(*g.first, &far_b, [](void* fd) {
        std::byte byte{};
        RTRS_ASSERT(::send(*static_cast<Descriptor*>(fd), &byte, 1, 0) == 1);
    });
    late.arm(g.first->now() + 2s);
    g.run();
    CHECK(a.value() == -ECANCELED);
    CHECK(b.value() == -ECANCELED);
}

TEST_CASE(
    "reactor group: files and buffers are registered where they are used, and let go anywhere") {
    if (!files_are_registered_here()) return;
    Group g;
    auto [near, far] = unix_pair();
    g.first->member(1).post([&] {
        Reactor& here = g.first->here();
        const auto slot = here.register_file(near);
        RTRS_ASSERT(slot.has_value());
        g.first->post([&, slot = *slot] {
            g.first->member(1).unregister_file(slot);
            g.first->member(1).post([&] { g.first->stop(); });
        });
    });
    g.run();
}

namespace {

// Whether the other end has been closed: nobody keeps it open.
bool is_closed_at_the_other_end(int fd) {
    std::byte byte{};
    return ::recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

}  // namespace

TEST_CASE("reactor group: a file is let go when all members have unregistered it") {
    if (!files_are_registered_here()) return;
    Group g;
    auto [near, far] = unix_pair();
    bool closed = false;
    g.first->member(1).post([&] {
        const auto slot = g.first->here().register_file(near);
        RTRS_ASSERT(slot.has_value());
        g.first->post([&, slot = *slot] {
            near = Descriptor();
            g.first->member(1).unregister_file(slot);
            RTRS_ASSERT(!is_closed_at_the_other_end(far));
            g.first->when_unregistered([&] {
                RTRS_ASSERT(&g.first->here() == g.first.get());
                closed = is_closed_at_the_other_end(far);
                g.first->stop();
            });
        });
    });
    g.run();
    CHECK(closed);
}

TEST_CASE("reactor group: what is registered is let go when the group stops") {
    if (!files_are_registered_here()) return;
    Group g;
    auto [near, far] = unix_pair();
    std::optional<Reactor::FixedFile> slot;
    g.first->member(1).post([&] {
        if (const auto made = g.first->here().register_file(near)) slot = *made;
        g.first->stop();
    });
    g.run();
    REQUIRE(slot);
    near = Descriptor();
    CHECK(is_closed_at_the_other_end(far));
    g.first->member(1).unregister_file(*slot);
}

TEST_CASE("reactor group: members that poll busily share all the same") {
    Group g(2);
    for (std::uint32_t i = 0; i < 2; ++i) g.first->member(i).set_busy_poll(200us);
    std::uint64_t total = 0;
    PingPong game(g.first->member(0), g.first->member(1), 2000, total);
    game.ended = [&] { g.first->stop(); };
    game.near.wait();
    game.far.wait();
    std::byte first{};
    REQUIRE(::send(game.far.fd, &first, 1, 0) == 1);
    g.run();
    CHECK(total == 2001);
}

TEST_CASE("reactor group: who waits for the baton gets it, however often others come by") {
    constexpr auto turn = 100us;
    constexpr int rounds = 30;
    // A turn is a tenth of what the others may have before one that waits. The rest is for a
    // machine that lets it stand before it has begun to wait.
    constexpr int turns_max = rounds * 100;
    Baton baton;
    std::atomic<bool> asking = false;
    std::atomic<bool> done = false;
    int turns_before = 0;
    std::thread greedy([&] {
        while (!done) {
            baton.take();
            const auto end = std::chrono::steady_clock::now() + turn;
            while (std::chrono::steady_clock::now() < end) {
            }
            if (asking && ++turns_before > turns_max) done = true;
            baton.give();
        }
    });
    for (int i = 0; i < rounds && !done; ++i) {
        asking = true;
        baton.take();
        asking = false;
        baton.give();
        std::this_thread::sleep_for(1ms);
    }
    done = true;
    greedy.join();
    CHECK(turns_before <= turns_max);
}

TEST_CASE("reactor group: the baton is one thread's at a time") {
    Baton baton;
    constexpr int threads = 4;
    constexpr int takes = 20000;
    int sum = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
        all.emplace_back([&] {
            for (int left = takes; left > 0; --left) {
                baton.take();
                ++sum;
                baton.give();
                if (left % 1000 == 0) std::this_thread::sleep_for(50us);
            }
        });
    }
    for (std::thread& thread : all) thread.join();
    CHECK(sum == threads * takes);
}
