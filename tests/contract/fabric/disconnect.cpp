// P1 and P4: how connections end.
#include <catch2/catch.hpp>

#include "tests/contract/fabric/pair.h"
#include "tests/skip.h"

using namespace rtrs;
using namespace rtrs::contract;

namespace {

void post_messages(Peer& peer, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        REQUIRE(!peer.post({.opcode = WorkOpcode::write_immediate,
                            .signal = i % 2 == 0 ? Signal::completion : Signal::none,
                            .context = 1000 + i}));
    }
}

}  // namespace

TEST_CASE("P4: disconnect() ends both sides; receives are flushed once each, on_drained is last") {
    Pair pair;
    pair.connect();
    Peer& who = GENERATE(0, 1) == 0 ? pair.client : pair.server;
    Peer& peer = &who == &pair.client ? pair.server : pair.client;
    who.disconnect();
    who.disconnect();
    pair.pump_drained();
    CHECK(!who.reason);
    CHECK(peer.reason);
    CHECK(pair.client.count(CompletionStatus::flushed) == pair.options.client_receives);
    CHECK(pair.server.count(CompletionStatus::flushed) == pair.options.server_receives);
    who.disconnect();
    pair.under->settle();
}

TEST_CASE("P4: why a side disconnects is told to the other where the fabric has a word for it") {
    Pair pair;
    pair.connect();
    pair.server.disconnect(Error::name_in_use);
    pair.pump_drained();
    CHECK(!pair.server.reason);
    CHECK((pair.client.reason == Error::name_in_use ||
           (!pair.under->tells_why() && pair.client.reason)));
}

TEST_CASE("P1: work that is outstanding when a side disconnects completes exactly once") {
    const bool by_client = GENERATE(true, false);
    Pair pair({.server_receives = 64, .client_receives = 64});
    pair.connect();
    post_messages(pair.client, 40);
    post_messages(pair.server, 40);
    (by_client ? pair.client : pair.server).disconnect();
    pair.pump_drained();  // Peer watches
    CHECK(pair.client.receives <= 40);
    CHECK(pair.server.receives <= 40);
}

TEST_CASE("P1: both sides may disconnect at the same time") {
    Pair pair;
    pair.connect();
    post_messages(pair.client, 4);
    post_messages(pair.server, 4);
    pair.client.disconnect();
    pair.server.disconnect();
    pair.pump_drained();
}

TEST_CASE("P1: work that is posted after disconnect() completes as flushed") {
    Pair pair;
    pair.connect();
    pair.client.disconnect();
    REQUIRE(!pair.client.post(
        {.opcode = WorkOpcode::write_immediate, .signal = Signal::completion, .context = 7}));
    pair.pump_drained();
    const auto done = pair.client.of(CompletionOpcode::send);
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == CompletionStatus::flushed);
    CHECK(done[0].context == 7);
}

TEST_CASE("P4: an endpoint may disconnect inside on_established") {
    Pair pair;
    pair.client.when_established = [&] { pair.client.disconnect(); };
    pair.dial({});
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.established == 1);
    CHECK(pair.client.disconnected == 1);
    pair.pump([&] { return !pair.server.endpoint || pair.server.drained == 1; });
}

TEST_CASE("P4: an endpoint may be destroyed inside on_drained") {
    Pair pair;
    pair.connect();
    pair.client.when_drained = [&] { pair.client.endpoint.reset(); };
    pair.server.when_drained = [&] { pair.server.endpoint.reset(); };
    pair.client.disconnect();
    pair.pump_drained();
    CHECK(!pair.client.endpoint);
    CHECK(!pair.server.endpoint);
    pair.under->settle();
}

TEST_CASE("P4: after on_drained nothing touches a buffer") {
    Pair pair({.memory_bytes = 4u << 20});
    pair.connect();
    pair.client_memory.fill(std::byte{1});
    for (std::size_t i = 0; i < 4; ++i) {
        const Segment source = pair.client_memory.segment(i << 20, 1u << 20);
        REQUIRE(!pair.client.post({.opcode = WorkOpcode::write,
                                   .local = {&source, 1},
                                   .remote = pair.server_region->remote(i << 20, 0)}));
        const Segment target = pair.client_memory.segment(i << 20, 1u << 20);
        REQUIRE(!pair.client.post({.opcode = WorkOpcode::read,
                                   .local = {&target, 1},
                                   .remote = pair.server_region->remote(i << 20, 0)}));
    }
    pair.client.disconnect();
    pair.pump([&] { return pair.client.drained == 1; });
    // What still arrives at the server is what was there; nothing comes back.
    pair.client_memory.fill(std::byte{2});
    pair.pump([&] { return pair.server.drained == 1; });
    pair.under->settle();
    CHECK(pair.client_memory.all_are(std::byte{2}));
    bool only_old = true;
    for (const std::byte each : pair.server_memory.all()) only_old &= each != std::byte{2};
    CHECK(only_old);
}

TEST_CASE("P4: many connections in turn leave nothing behind") {
    Pair pair;
    for (int i = 0; i < 50; ++i) {
        Peer first;
        Peer second;
        pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
            second.endpoint =
                got(request->accept(*pair.server_domain, {}, EndpointOptions{}, second));
            second.receive({}, 1);
        };
        first.endpoint = got(pair.under->client().connect(*pair.client_domain, "", pair.address, {},
                                                          EndpointOptions{}, first));
        pair.pump([&] { return first.established == 1; });
        REQUIRE(!first.post({.opcode = WorkOpcode::write_immediate}));
        pair.pump([&] { return second.receives == 1; });
        (i % 2 == 0 ? first : second).disconnect();
        pair.pump([&] { return first.drained == 1 && second.drained == 1; });
    }
}

TEST_CASE("P4: when the peer's process dies, this side is told and drains") {
    Pair pair;
    pair.connect();
    post_messages(pair.client, 8);
    if (!pair.under->kill_server()) {
        rnbd::testing::skip("this fabric's test cannot end one process alone");
        return;
    }
    // The dead side hears nothing more; it counts as drained from here on.
    pair.server.endpoint.reset();
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.disconnected == 1);
    CHECK(pair.client.reason);
}
