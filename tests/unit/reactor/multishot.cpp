// recv_multishot(): one receive that stays, over TCP, as the fabric uses it.
#include <string>

#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;

namespace {

struct Stream {
    explicit Stream(Reactor& its_reactor)
        : reactor(its_reactor), client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        REQUIRE(::connect(client, listener.generic(), sizeof listener.address) == 0);
        server = Descriptor(::accept(listener.fd, nullptr, nullptr));
    }
    void say(const std::string& text) const {
        REQUIRE(::write(client, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    // All of it, from the results that have come since.
    std::string hear(std::size_t bytes) {
        std::string heard;
        run_until(reactor, [&] {
            for (; taken < received.results.size(); ++taken) {
                const Operation::Result& result = received.results[taken];
                REQUIRE(result.value > 0);
                REQUIRE(result.buffer.has_value());
                heard += text_of(
                    reactor.received(*result.buffer, static_cast<std::uint32_t>(result.value)));
                reactor.return_buffer(*result.buffer);
            }
            return heard.size() >= bytes;
        });
        return heard;
    }
    Reactor& reactor;
    LoopbackListener listener;
    Descriptor client;
    Descriptor server;
    Recorded received;
    std::size_t taken = 0;
};

}  // namespace

TEST_CASE("reactor: recv_multishot brings what comes, each time, until it is cancelled") {
    auto reactor = make_reactor();
    if (!reactor->keeps_receives()) return rnbd::testing::skip("needs Linux 6.6");
    Stream stream(*reactor);
    reactor->recv_multishot(stream.received, stream.server);
    for (int round = 0; round < 50; ++round) {
        const std::string text = "word " + std::to_string(round);
        stream.say(text);
        REQUIRE(stream.hear(text.size()) == text);
        REQUIRE(stream.received.in_flight);
    }
    REQUIRE(reactor->statistics().submissions < 10);  // the bell's and its own
    reactor->cancel(stream.received);
    REQUIRE(finish(*reactor, stream.received) == -ECANCELED);
    REQUIRE(!stream.received.results.back().buffer.has_value());
    // What comes from then on is for whoever receives next.
    stream.say("later");
    Recorded next;
    reactor->recv_provided(next, stream.server, 0, Reactor::FirstTry::at_once);
    REQUIRE(finish(*reactor, next) == 5);
    reactor->return_buffer(*next.results.back().buffer);
}

TEST_CASE("reactor: recv_multishot ends with the stream") {
    auto reactor = make_reactor();
    if (!reactor->keeps_receives()) return rnbd::testing::skip("needs Linux 6.6");
    Stream stream(*reactor);
    reactor->recv_multishot(stream.received, stream.server);
    stream.say("last words");
    REQUIRE(stream.hear(10) == "last words");
    stream.client.close();
    REQUIRE(finish(*reactor, stream.received) == 0);
    REQUIRE(!stream.received.results.back().buffer.has_value());
}

TEST_CASE("reactor: recv_multishot ends when the buffers are taken, and no byte is lost") {
    auto reactor = make_reactor({.receive_buffers = 2, .receive_buffer_bytes = 4096});
    Stream stream(*reactor);
    std::string text;
    for (int i = 0; text.size() < 40000; ++i) text += std::to_string(i) + ' ';
    stream.say(text);
    std::string heard;
    int ended = 0;
    while (heard.size() < text.size()) {
        if (!stream.received.in_flight) {
            reactor->recv_multishot(stream.received, stream.server);
        }
        reactor->run_once(std::nullopt);
        for (; stream.taken < stream.received.results.size(); ++stream.taken) {
            const Operation::Result& result = stream.received.results[stream.taken];
            if (!result.more) ++ended;
            if (result.value == -ENOBUFS) continue;
            REQUIRE(result.value > 0);
            heard += text_of(
                reactor->received(*result.buffer, static_cast<std::uint32_t>(result.value)));
            reactor->return_buffer(*result.buffer);
        }
    }
    CHECK(ended > 0);
    CHECK(heard == text);
    if (stream.received.in_flight) {
        reactor->cancel(stream.received);
        finish(*reactor, stream.received);
    }
}
