// Sends that leave by a system call of their own: sendmsg() with SendBy::call.
#include <sys/uio.h>

#include <functional>

#include "rtrs/reactor_group.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

// Runs a function at the end of a turn.
struct AtTurnEnd : TurnTask {
    explicit AtTurnEnd(std::function<void()> what) : TurnTask(&go), what_(std::move(what)) {}
    static void go(TurnTask& task) { static_cast<AtTurnEnd&>(task).what_(); }
    std::function<void()> what_;
};

struct Text {
    explicit Text(std::string its_text) : text(std::move(its_text)) {
        piece = {text.data(), text.size()};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
    }
    std::string text;
    iovec piece{};
    msghdr message{};
};

std::string readable(int fd) {
    std::string text(1u << 20, 0);
    const ssize_t bytes = ::recv(fd, text.data(), text.size(), MSG_DONTWAIT);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return text;
}

void fill(int fd) {
    const std::string some(1u << 16, 'f');
    while (::send(fd, some.data(), some.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
}

}  // namespace

TEST_CASE("reactor: the first send of a turn leaves at once and is done when the turn ends") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    auto [other_near, other_far] = unix_pair();
    Text hello("hello"), world("world");
    Recorded first, second;
    bool inside = false;
    AtTurnEnd sends([&] {
        reactor->sendmsg(first, near, &hello.message, Reactor::SendBy::call);
        CHECK(readable(far) == "hello");
        CHECK(first.results.empty());  // its handler is not called in here
        CHECK(first.in_flight);
        reactor->sendmsg(second, other_near, &world.message, Reactor::SendBy::call);
        CHECK(readable(other_far).empty());  // the second of the turn: by the ring
        inside = true;
    });
    reactor->at_turn_end(sends);
    const auto turns = reactor->statistics().turns;
    reactor->run_once(0ms);
    REQUIRE(inside);
    REQUIRE(first.results.size() == 1);
    CHECK(first.value() == 5);
    CHECK(!first.in_flight);
    REQUIRE(finish(*reactor, second) == 5);
    CHECK(readable(other_far) == "world");
    CHECK(reactor->statistics().calls == 1);
    CHECK(reactor->statistics().turns > turns);
}

TEST_CASE("reactor: what a called send brings about is still of its turn, one call in each") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    Text ping("ping");
    // Each send that is done asks for the next one, as an endpoint does that has more to say.
    struct Sender {
        Reactor& reactor;
        int fd;
        Text& text;
        int left = 50;
        int done = 0;
        struct Sent : Operation {
            explicit Sent(Sender& its) : Operation(&completed_one), sender(its) {}
            static void completed_one(Operation& operation, const Result& result) {
                Sender& sender = static_cast<Sent&>(operation).sender;
                REQUIRE(result.value == 4);
                ++sender.done;
                if (--sender.left > 0) sender.reactor.at_turn_end(sender.again);
            }
            Sender& sender;
        } sent{*this};
        AtTurnEnd again{
            [this] { reactor.sendmsg(sent, fd, &text.message, Reactor::SendBy::call); }};
    } sender{*reactor, near, ping};
    reactor->at_turn_end(sender.again);
    run_until(*reactor, [&] { return sender.left == 0; });
    CHECK(sender.done == 50);
    CHECK(!sender.sent.in_flight);
    std::string all;
    for (int i = 0; i < 50; ++i) all += "ping";
    CHECK(readable(far) == all);
    // By turns: one by a call, and what that brought about by the ring.
    CHECK(reactor->statistics().calls >= 20);
    CHECK(reactor->statistics().calls <= reactor->statistics().turns + 1);
}

TEST_CASE("reactor: to cancel a send that was called harms neither it nor what comes after it") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    Text hello("hello");
    struct Sent : Operation {
        Sent(Reactor& its, int its_fd, Text& its_text)
            : Operation(&completed_one), reactor(its), fd(its_fd), text(its_text) {}
        static void completed_one(Operation& operation, const Result& result) {
            Sent& self = static_cast<Sent&>(operation);
            self.values.push_back(result.value);
            // By the ring, behind the cancellation, under the same address.
            if (self.values.size() == 1) self.reactor.sendmsg(self, self.fd, &self.text.message);
        }
        Reactor& reactor;
        int fd;
        Text& text;
        std::vector<std::int32_t> values{};
    } sent{*reactor, near, hello};
    AtTurnEnd sends([&] {
        reactor->sendmsg(sent, near, &hello.message, Reactor::SendBy::call);
        reactor->cancel(sent);
        CHECK(sent.values.empty());
    });
    reactor->at_turn_end(sends);
    run_until(*reactor, [&] { return sent.values.size() == 2; });
    CHECK(sent.values == std::vector<std::int32_t>{5, 5});
    CHECK(reactor->statistics().calls == 1);
    CHECK(readable(far) == "hellohello");
}

TEST_CASE("reactor: a send that finds no room goes by the ring and is whole in the end") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    fill(near);
    Text late("late");
    Recorded sent;
    AtTurnEnd sends([&] { reactor->sendmsg(sent, near, &late.message, Reactor::SendBy::call); });
    reactor->at_turn_end(sends);
    for (int i = 0; i < 3; ++i) reactor->run_once(0ms);
    CHECK(sent.results.empty());
    CHECK(reactor->statistics().calls == 0);
    std::string all;
    run_until(*reactor, [&] {
        all += readable(far);
        return !sent.results.empty();
    });
    CHECK(sent.value() == 4);
    all += readable(far);
    CHECK(all.ends_with("ffflate"));
}

TEST_CASE("reactor: a called send may be cut short, and tells an error once") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    Text large(std::string(8u << 20, 'x'));
    Recorded sent;
    AtTurnEnd sends([&] { reactor->sendmsg(sent, near, &large.message, Reactor::SendBy::call); });
    reactor->at_turn_end(sends);
    reactor->run_once(0ms);
    REQUIRE(sent.results.size() == 1);
    CHECK(sent.value() > 0);
    CHECK(sent.value() < 8 << 20);
    CHECK(readable(far).front() == 'x');

    far.close();
    Recorded broken;
    AtTurnEnd again([&] { reactor->sendmsg(broken, near, &large.message, Reactor::SendBy::call); });
    reactor->at_turn_end(again);
    reactor->run_once(0ms);
    REQUIRE(broken.results.size() == 1);
    CHECK(broken.value() == -EPIPE);
}

TEST_CASE("reactor: outside of a turn, switched off, and in a group, sends go by the ring") {
    auto reactor = make_reactor();
    std::unique_ptr<ReactorGroup> group;
    auto [near, far] = unix_pair();
    Text hello("hello");
    Recorded sent;
    SECTION("outside") {
        reactor->sendmsg(sent, near, &hello.message, Reactor::SendBy::call);
        CHECK(readable(far).empty());
    }
    SECTION("off") {
        reactor->set_prompt_sends(false);
        AtTurnEnd sends(
            [&] { reactor->sendmsg(sent, near, &hello.message, Reactor::SendBy::call); });
        reactor->at_turn_end(sends);
        reactor->run_once(0ms);
    }
    SECTION("in a group, whose others would wait for it") {
        auto made = ReactorGroup::create(*reactor, {.members = 2});
        REQUIRE(made);
        group = std::move(*made);
        AtTurnEnd sends(
            [&] { reactor->sendmsg(sent, near, &hello.message, Reactor::SendBy::call); });
        reactor->at_turn_end(sends);
        reactor->run_once(0ms);
    }
    REQUIRE(finish(*reactor, sent) == 5);
    CHECK(readable(far) == "hello");
    CHECK(reactor->statistics().calls == 0);
}
