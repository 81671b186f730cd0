// Each kind of fault, and what still holds under it (Peer watches P1, P3 and P4).
#include <catch2/catch.hpp>

#include "tests/contract/fabric/faulty_under_test.h"
#include "tests/contract/fabric/pair.h"

using namespace rtrs;
using namespace rtrs::contract;
using namespace std::chrono_literals;

namespace {

struct FaultyPair : Pair {
    FaultyPair() : Pair({.server_receives = 64, .client_receives = 64}) {}
    FaultyFabric& faults() { return static_cast<FaultyUnderTest&>(*under).faulty_client(); }
    FaultyFabric& server_faults() { return static_cast<FaultyUnderTest&>(*under).faulty_server(); }

    void post(Peer& peer, std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) {
            REQUIRE(!peer.post({.opcode = WorkOpcode::write_immediate,
                                .signal = i % 3 == 0 ? Signal::none : Signal::completion,
                                .context = 1000 + i,
                                .immediate = static_cast<std::uint32_t>(i)}));
        }
    }
};

bool in_order(const Peer& peer) {
    std::uint32_t expected = 0;
    for (const Completion& each : peer.of(CompletionOpcode::receive_immediate)) {
        if (each.status == CompletionStatus::success && each.immediate != expected++) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("fault: a connection is lost after N posts; both sides learn ECONNRESET") {
    FaultyPair pair;
    pair.faults().options().lose_connection_after_posts = 10;
    pair.connect();
    pair.post(pair.client, 20);
    pair.pump_drained();
    CHECK(pair.client.reason == from_errno(ECONNRESET));
    CHECK(pair.server.reason);
    CHECK(pair.faults().statistics().connections_lost == 1);
    CHECK(in_order(pair.server));
}

TEST_CASE("fault: a connection is lost at a time") {
    FaultyPair pair;
    pair.faults().options().lose_connection_after = 5ms;
    pair.connect();
    pair.post(pair.client, 20);
    pair.post(pair.server, 20);
    pair.pump_drained();
    CHECK(pair.client.reason == from_errno(ECONNRESET));
}

TEST_CASE("fault: every connection is lost on command") {
    FaultyPair pair;
    pair.connect();
    pair.post(pair.client, 20);
    pair.faults().lose_connections();
    pair.faults().lose_connections();
    pair.pump_drained();
    CHECK(pair.faults().statistics().connections_lost == 1);
}

TEST_CASE("fault: connections are lost by chance, with the same seed in the same way") {
    const std::uint32_t seeds = GENERATE(range(1u, 20u));
    FaultyPair pair;
    for (std::uint32_t i = 0; i < seeds; ++i) pair.faults().draw(1);  // another place in the row
    pair.faults().options().lose_connection_per_million = 100000;
    pair.connect();
    pair.post(pair.client, 40);
    pair.under->settle();
    if (pair.faults().statistics().connections_lost > 0) pair.pump_drained();
    CHECK(in_order(pair.server));
}

TEST_CASE("fault: delayed completions keep their order") {
    FaultyPair pair;
    pair.faults().options().completion_delay_max = 2ms;
    pair.server_faults().options().completion_delay_max = 2ms;
    pair.connect();
    pair.post(pair.client, 40);
    pair.post(pair.server, 40);
    pair.pump([&] { return pair.client.receives == 40 && pair.server.receives == 40; });
    CHECK(in_order(pair.client));
    CHECK(in_order(pair.server));
    CHECK(pair.faults().statistics().events_delayed > 0);
    pair.client.disconnect();
    pair.pump_drained();
}

TEST_CASE("fault: a delayed on_disconnected lets posts still complete as flushed") {
    // A machine that is busy with something else may take longer than the stall; then once more.
    for (Duration stall = 20ms;; stall *= 2) {
        FaultyPair pair;
        pair.connect();
        pair.faults().stall(stall);
        pair.server.disconnect();
        pair.pump([&] { return pair.server.drained == 1; });
        const bool in_time = pair.client.disconnected == 0;
        if (in_time) pair.post(pair.client, 3);  // it does not know yet
        pair.pump_drained();
        CHECK(pair.client.sends <= 3);
        if (in_time) break;
    }
}

TEST_CASE("fault: a stall holds everything back, then everything comes") {
    // A machine that is busy with something else may take longer than the stall; then once more.
    for (Duration stall = 30ms;; stall *= 2) {
        FaultyPair pair;
        pair.connect();
        const auto begun = std::chrono::steady_clock::now();
        pair.faults().stall(stall);
        pair.post(pair.server, 20);
        pair.post(pair.client, 20);
        pair.pump([&] { return pair.server.receives == 20; });
        const bool held_back = pair.client.completions.empty();
        const bool in_time = std::chrono::steady_clock::now() - begun < stall;
        if (in_time) CHECK(held_back);
        pair.pump([&] { return pair.client.receives == 20; });
        CHECK(in_order(pair.client));
        if (in_time) break;
    }
}

TEST_CASE("fault: a black hole ends with the caller's disconnect") {
    FaultyPair pair;
    pair.connect();
    pair.faults().stall(24h);
    pair.post(pair.server, 20);
    pair.post(pair.client, 20);
    pair.under->settle();
    CHECK(pair.client.completions.empty());
    pair.client.disconnect();
    pair.pump_drained();
    CHECK(!pair.client.reason);
}

TEST_CASE("fault: stalls by chance keep order and lose nothing") {
    FaultyPair pair;
    pair.faults().options().stall_per_million = 100000;
    pair.faults().options().stall_duration = 1ms;
    pair.connect();
    pair.post(pair.client, 60);
    pair.post(pair.server, 60);
    pair.pump([&] { return pair.client.receives == 60 && pair.server.receives == 60; });
    CHECK(in_order(pair.client));
    CHECK(pair.faults().statistics().stalls > 0);
}

TEST_CASE("fault: a slow peer's messages come late, own completions do not wait for them") {
    FaultyPair pair;
    pair.connect();
    pair.faults().options().slow_peer = 5ms;
    pair.post(pair.server, 10);
    pair.pump([&] { return pair.client.receives == 10; });
    CHECK(in_order(pair.client));
    CHECK(pair.faults().statistics().events_delayed > 0);
}

TEST_CASE("fault: registrations and windows are refused with ENOMEM") {
    FaultyPair pair;
    Memory memory(4096);
    const Access access = Access::remote_write;
    pair.faults().refuse_next().registrations = 1;
    auto region = pair.client_domain->register_memory(memory.all(), access);
    REQUIRE(!region);
    CHECK(region.error() == from_errno(ENOMEM));
    region = pair.client_domain->register_memory(memory.all(), access);
    REQUIRE(region);
    pair.faults().options().refuse_window_per_million = 1000000;
    auto windows = pair.client_domain->create_windows(**region, 1);
    REQUIRE(!windows);
    CHECK(windows.error() == from_errno(ENOMEM));
    CHECK(pair.faults().statistics().refusals == 2);
}

TEST_CASE("fault: a refused connect ends in on_disconnected; receives are flushed") {
    FaultyPair pair;
    pair.faults().refuse_next().connects = 1;
    pair.dial({});
    REQUIRE(!pair.client.receive({}, 3));
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.disconnected == 1);
    CHECK(pair.client.reason == from_errno(ECONNREFUSED));
    CHECK(pair.client.count(CompletionStatus::flushed) == 1);
}

TEST_CASE("fault: a connect request that cannot be accepted can be rejected with a reason") {
    FaultyPair pair;
    pair.server_faults().refuse_next().accepts = 1;
    const std::vector<std::byte> why(56, std::byte{7});
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        const Calling calling;
        const auto accepted = request->accept(*pair.server_domain, {}, {}, pair.server);
        CHECK((!accepted && accepted.error() == from_errno(ENOMEM)));
        request->reject(why);
    };
    pair.dial({});
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.rejected == 1);
    REQUIRE(pair.client.private_data.size() >= why.size());
    CHECK(std::ranges::equal(std::span(pair.client.private_data).first(why.size()), why));
}

TEST_CASE("fault: a connect request is rejected, a listen refused") {
    FaultyPair pair;
    pair.server_faults().refuse_next() = {.requests = 1, .listens = 1};
    pair.dial({});
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.rejected == 1);
    auto listener = pair.under->server().listen(pair.under->server_address(), pair.acceptor);
    REQUIRE(!listener);
    CHECK(listener.error() == from_errno(EADDRINUSE));
}
