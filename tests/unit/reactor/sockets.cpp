// Sockets: accept, connect, send, receive, cancel, and the shared receive buffers' limits.
#include <sys/mman.h>
#include <sys/uio.h>

#include <algorithm>

#include "tests/skip.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

std::string take(Reactor& reactor, Recorded& received) {
    const Operation::Result& result = received.results.back();
    REQUIRE(result.value > 0);
    REQUIRE(result.buffer.has_value());
    std::string text =
        text_of(reactor.received(*result.buffer, static_cast<std::uint32_t>(result.value)));
    reactor.return_buffer(*result.buffer);
    return text;
}

}  // namespace

TEST_CASE("reactor: connect and accept over TCP, several times") {
    auto reactor = make_reactor();
    LoopbackListener listener;
    Recorded accepting;
    std::vector<Descriptor> clients;
    for (std::size_t i = 0; i < 3; ++i) {
        reactor->accept(accepting, listener.fd);
        clients.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        Recorded connecting;
        reactor->connect(connecting, clients.back(), listener.generic(), sizeof listener.address);
        REQUIRE(finish(*reactor, connecting) == 0);
        run_until(*reactor, [&] { return accepting.results.size() == i + 1; });
        clients.emplace_back(accepting.value());
        REQUIRE(clients.back() >= 0);
    }
    Recorded cancelled;
    reactor->accept(cancelled, listener.fd);
    reactor->cancel(cancelled);
    REQUIRE(finish(*reactor, cancelled) == -ECANCELED);
}

TEST_CASE("reactor: a refused connection reports itself") {
    auto reactor = make_reactor();
    LoopbackListener listener;
    listener.fd.close();
    Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Recorded connecting;
    reactor->connect(connecting, client, listener.generic(), sizeof listener.address);
    REQUIRE(finish(*reactor, connecting) == -ECONNREFUSED);
}

TEST_CASE("reactor: recv_provided respects its limit and tells that more is there") {
    auto reactor = make_reactor();
    LoopbackListener listener;
    Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client, listener.generic(), sizeof listener.address) == 0);
    Descriptor server(::accept(listener.fd, nullptr, nullptr));
    REQUIRE(::write(client, "hello world", 11) == 11);

    Recorded first;
    reactor->recv_provided(first, server, 5, Reactor::FirstTry::at_once);
    REQUIRE(finish(*reactor, first) == 5);
    REQUIRE(first.results.back().socket_nonempty);
    REQUIRE(take(*reactor, first) == "hello");

    Recorded rest;
    reactor->recv_provided(rest, server, 0, Reactor::FirstTry::after_poll);
    REQUIRE(finish(*reactor, rest) == 6);
    REQUIRE(!rest.results.back().socket_nonempty);
    REQUIRE(take(*reactor, rest) == " world");

    client.close();
    Recorded end;
    reactor->recv_provided(end, server, 0, Reactor::FirstTry::after_poll);
    REQUIRE(finish(*reactor, end) == 0);
    REQUIRE(!end.results.back().buffer.has_value());
}

TEST_CASE("reactor: it knows whether several sockets are busy, and forgets it") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    auto [near2, far2] = unix_pair();
    // The kernel is offered one buffer at first, and more when it has found none.
    const auto hear = [&](std::initializer_list<std::pair<int, int>> pairs) {
        std::vector<Recorded> receives(pairs.size());
        std::size_t i = 0;
        for (const auto& [from, to] : pairs) {
            REQUIRE(::write(from, "x", 1) == 1);
            reactor->recv_provided(receives[i++], to, 0, Reactor::FirstTry::at_once);
        }
        i = 0;
        for (const auto& [from, to] : pairs) {
            Recorded& receive = receives[i++];
            while (finish(*reactor, receive) == -ENOBUFS) {
                receive.results.clear();
                reactor->recv_provided(receive, to, 0, Reactor::FirstTry::at_once);
            }
            reactor->return_buffer(*receive.results.back().buffer);
        }
    };
    const int one = near, two = near2, to_one = far, to_two = far2;
    hear({{to_one, one}});
    CHECK(!reactor->serves_several_streams());
    for (int round = 0; round < 3; ++round) hear({{to_one, one}, {to_two, two}});
    CHECK(reactor->serves_several_streams());
    hear({{to_one, one}});  // the turn between two that hear both
    CHECK(reactor->serves_several_streams());
    for (int round = 0; round < 20; ++round) hear({{to_one, one}});
    CHECK(!reactor->serves_several_streams());
}

TEST_CASE("reactor: recv_all and sendmsg carry more than a socket buffer holds") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    std::vector<std::byte> source(8u << 20);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 >> 3);
    std::vector<std::byte> target(source.size());
    const std::size_t half = source.size() / 2;
    iovec parts[] = {{source.data(), half}, {source.data() + half, source.size() - half}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    Recorded sent;
    Recorded received;
    reactor->sendmsg(sent, near, &message);
    reactor->recv_all(received, far, target);
    REQUIRE(finish(*reactor, sent) == static_cast<int>(source.size()));
    REQUIRE(finish(*reactor, received) == static_cast<int>(source.size()));
    REQUIRE(source == target);
}

TEST_CASE("reactor: recv_all is short at the end of the stream; sending to the dead is EPIPE") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    REQUIRE(::write(near, "abc", 3) == 3);
    std::byte target[8];
    Recorded received;
    reactor->recv_all(received, far, target);
    near.close();
    REQUIRE(finish(*reactor, received) == 3);

    iovec part{target, sizeof target};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    Recorded sent;
    reactor->sendmsg(sent, far, &message);
    REQUIRE(finish(*reactor, sent) == -EPIPE);
}

TEST_CASE("reactor: close_fd closes, after what was prepared before it") {
    auto reactor = make_reactor();
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    Descriptor far(fds[1]);
    char text[] = "bye";
    iovec part{text, 3};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    Recorded sent;
    reactor->sendmsg(sent, fds[0], &message);
    reactor->close_fd(fds[0]);
    std::byte target[8];
    Recorded received;
    reactor->recv_all(received, far, target);
    REQUIRE(finish(*reactor, received) == 3);
    REQUIRE(sent.value() == 3);
}

TEST_CASE("reactor: a cancelled operation completes once with ECANCELED") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    Recorded received;
    reactor->recv_provided(received, near, 0, Reactor::FirstTry::after_poll);
    SECTION("before it was submitted") {}
    SECTION("while it waits") { reactor->run_once(0ns); }
    reactor->cancel(received);
    REQUIRE(finish(*reactor, received) == -ECANCELED);
    reactor->cancel(received);  // no longer in flight: nothing
    reactor->run_once(0ns);
    REQUIRE(received.results.size() == 1);
}

TEST_CASE("reactor: a handler may prepare its own operation again") {
    struct Echo : Operation {
        Echo(Reactor& owner, int socket) : Operation(&done), reactor(owner), fd(socket) {}
        void start() { reactor.recv_provided(*this, fd, 1, Reactor::FirstTry::at_once); }
        static void done(Operation& operation, const Result& result) {
            auto& self = static_cast<Echo&>(operation);
            if (result.value <= 0) {
                self.ended = true;
                return;
            }
            self.text += text_of(self.reactor.received(*result.buffer, 1));
            self.reactor.return_buffer(*result.buffer);
            self.start();
        }
        Reactor& reactor;
        int fd;
        std::string text;
        bool ended = false;
    };
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    REQUIRE(::write(near, "abcdef", 6) == 6);
    near.close();
    Echo echo(*reactor, far);
    echo.start();
    run_until(*reactor, [&] { return echo.ended; });
    REQUIRE(echo.text == "abcdef");
}

TEST_CASE("reactor: more than the submission queue holds is submitted on the way, none is lost") {
    auto reactor = make_reactor({.submission_entries = 8});
    std::vector<std::pair<Descriptor, Descriptor>> pairs;
    std::vector<std::unique_ptr<Recorded>> operations;
    constexpr int count = 300;  // beyond the completion queue of 32 as well
    for (int i = 0; i < count; ++i) {
        pairs.push_back(unix_pair());
        REQUIRE(::write(pairs.back().second, "x", 1) == 1);
        operations.push_back(std::make_unique<Recorded>());
        reactor->poll_readable(*operations.back(), pairs.back().first);
    }
    run_until(*reactor, [&] {
        return std::ranges::all_of(operations, [](auto& each) { return each->finished(); });
    });
    for (auto& operation : operations) {
        REQUIRE(operation->results.size() == 1);
        REQUIRE(operation->value() > 0);
    }
}

TEST_CASE("reactor: an overflowing completion queue loses nothing") {
    auto reactor = make_reactor({.submission_entries = 4});
    auto [near, far] = unix_pair();
    std::vector<std::unique_ptr<Recorded>> operations;
    constexpr std::size_t count = 200;
    for (std::size_t i = 0; i < count; ++i) {
        operations.push_back(std::make_unique<Recorded>());
        reactor->poll_readable(*operations.back(), near);
    }
    reactor->run_once(0ns);
    REQUIRE(::write(far, "x", 1) == 1);  // wakes all of them at once
    run_until(*reactor, [&] {
        return std::ranges::all_of(operations, [](auto& each) { return each->finished(); });
    });
    for (auto& operation : operations) REQUIRE(operation->results.size() == 1);
}

TEST_CASE("reactor: who gives a receive buffer back at once gets the same one again") {
    auto reactor = make_reactor({.receive_buffers = 16, .receive_buffer_bytes = 4096});
    auto [near, far] = unix_pair();
    std::vector<std::uint16_t> used;
    for (int i = 0; i < 40; ++i) {
        REQUIRE(::write(far, "again", 5) == 5);
        Recorded received;
        reactor->recv_provided(received, near, 0, Reactor::FirstTry::at_once);
        REQUIRE(finish(*reactor, received) == 5);
        used.push_back(*received.results.back().buffer);
        reactor->return_buffer(used.back());
    }
    // It is what stays in the cache.
    REQUIRE(std::ranges::count(used, used.front()) == 40);
}

TEST_CASE("reactor: a receive buffer keeps little memory when there is nothing to do") {
    auto reactor = make_reactor();
    auto [near, far] = unix_pair();
    const auto receive = [&](const std::string& sent) {
        REQUIRE(::write(far, sent.data(), sent.size()) == static_cast<ssize_t>(sent.size()));
        Recorded received;
        reactor->recv_provided(received, near, 0, Reactor::FirstTry::at_once);
        REQUIRE(finish(*reactor, received) == static_cast<int>(sent.size()));
        const auto buffer = *received.results.back().buffer;
        const MutableBytes memory =
            reactor->received(buffer, static_cast<std::uint32_t>(sent.size()));
        REQUIRE(text_of(memory) == sent);
        return std::pair(buffer, memory.data());
    };
    constexpr std::size_t large = 64u << 10;
    const auto [buffer, memory] = receive(std::string(large, 'a'));
    reactor->return_buffer(buffer);
    SECTION("of a process whose memory is not swapped out, neither") {
        if (::mlock2(memory, large, MLOCK_ONFAULT) != 0) {
            return rnbd::testing::skip("the limit of locked memory is too low");
        }
    }
    SECTION("of any other") {}
    const auto pages = [at = memory] {
        std::vector<unsigned char> in_core(large / 4096);
        const auto whole = (reinterpret_cast<std::uintptr_t>(at) + 4095) & ~std::uintptr_t{4095};
        REQUIRE(::mincore(reinterpret_cast<void*>(whole), (in_core.size() - 1) * 4096,
                          in_core.data()) == 0);
        return std::ranges::count_if(in_core, [](unsigned char page) { return (page & 1) != 0; });
    };
    REQUIRE(pages() > 10);

    // The kernel has it: it is made small when it comes back.
    const auto until = reactor->now() + 600ms;
    while (reactor->now() < until) reactor->run_once(600ms);
    for (int i = 0; i < 2; ++i) {
        const auto again = receive("heartbeat");
        REQUIRE(again.second == memory);
        reactor->return_buffer(again.first);
    }
    REQUIRE(pages() <= 2);

    const auto more = receive(std::string(large, 'b'));
    REQUIRE(pages() > 10);
    reactor->return_buffer(more.first);
}

TEST_CASE("reactor: sockets that are readable in one turn have buffers soon") {
    constexpr std::size_t count = 16;
    auto reactor = make_reactor({.receive_buffers = count, .receive_buffer_bytes = 4096});
    std::vector<std::pair<Descriptor, Descriptor>> pairs;
    for (std::size_t i = 0; i < count; ++i) pairs.push_back(unix_pair());
    int refused = 0;
    for (int round = 0; round < 20; ++round) {
        refused = 0;
        std::vector<Recorded> receives(count);
        for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(::write(pairs[i].second, "all", 3) == 3);
            reactor->recv_provided(receives[i], pairs[i].first, 0, Reactor::FirstTry::at_once);
        }
        for (std::size_t i = 0; i < count; ++i) {
            while (finish(*reactor, receives[i]) == -ENOBUFS) {
                ++refused;
                receives[i].results.clear();
                reactor->recv_provided(receives[i], pairs[i].first, 0, Reactor::FirstTry::at_once);
            }
            REQUIRE(receives[i].results.back().value == 3);
            reactor->return_buffer(*receives[i].results.back().buffer);
        }
    }
    REQUIRE(refused == 0);  // as many are offered as are taken in a turn
}

TEST_CASE("reactor: without receive buffers left the answer is ENOBUFS, and it recovers") {
    constexpr std::uint32_t count = 16;
    auto reactor = make_reactor({.receive_buffers = count, .receive_buffer_bytes = 4096});
    std::vector<std::pair<Descriptor, Descriptor>> pairs;
    std::vector<std::uint16_t> held;
    // Fewer are offered to the kernel at first than there are: a retry or two is allowed.
    auto receive = [&](int fd) {
        for (int attempt = 0; attempt < 3; ++attempt) {
            Recorded received;
            reactor->recv_provided(received, fd, 0, Reactor::FirstTry::at_once);
            const int value = finish(*reactor, received);
            if (value > 0) held.push_back(*received.results.back().buffer);
            if (value != -ENOBUFS) return value;
        }
        return -ENOBUFS;
    };
    for (std::uint32_t i = 0; i <= count; ++i) {
        pairs.push_back(unix_pair());
        REQUIRE(::write(pairs.back().second, "abc", 3) == 3);
    }
    for (std::uint32_t i = 0; i < count; ++i) REQUIRE(receive(pairs[i].first) == 3);
    std::vector<std::uint16_t> distinct = held;
    std::ranges::sort(distinct);
    REQUIRE(std::ranges::adjacent_find(distinct) == distinct.end());
    REQUIRE(receive(pairs[count].first) == -ENOBUFS);

    reactor->return_buffer(held.back());
    held.pop_back();
    REQUIRE(receive(pairs[count].first) == 3);
    REQUIRE(text_of(reactor->received(held.back(), 3)) == "abc");
    for (const std::uint16_t buffer : held) reactor->return_buffer(buffer);

    held.clear();
    for (auto& [near, far] : pairs) {  // all of them go round and round
        for (int i = 0; i < 5; ++i) {
            REQUIRE(::write(far, "again", 5) == 5);
            REQUIRE(receive(near) == 5);
            REQUIRE(text_of(reactor->received(held.back(), 5)) == "again");
            reactor->return_buffer(held.back());
        }
    }
}
