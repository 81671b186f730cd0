// P1, P2 and P7: posted work.
#include <catch2/catch.hpp>
#include <cstring>

#include "rtrs/base/random.h"
#include "tests/contract/fabric/pair.h"

using namespace rtrs;
using namespace rtrs::contract;

namespace {

WorkRequest send(std::span<const Segment> local, std::uint64_t context = 0) {
    return {.opcode = WorkOpcode::send,
            .signal = Signal::completion,
            .context = context,
            .local = local};
}

}  // namespace

TEST_CASE("send: arrives in the peer's next receive with its length") {
    Pair pair;
    pair.connect();
    pair.client_memory.pattern(0, 200, 1);
    const Segment segment = pair.client_memory.segment(0, 200);
    REQUIRE(!pair.client.post(send({&segment, 1}, 42)));
    pair.pump([&] { return pair.server.receives == 1 && pair.client.sends == 1; });
    const Completion& completion = pair.server.completions[0];
    CHECK(completion.opcode == CompletionOpcode::receive);
    CHECK(completion.bytes == 200);
    CHECK(std::memcmp(pair.received(pair.server, completion).data(), segment.data, 200) == 0);
    CHECK(pair.client.completions[0].opcode == CompletionOpcode::send);
    CHECK(pair.client.completions[0].context == 42);
}

TEST_CASE("send with immediate: carries 32 bits, with and without payload") {
    const std::size_t bytes = GENERATE(0, 1, 256);
    Pair pair;
    pair.connect();
    pair.server_memory.pattern(0, 256, 2);
    const Segment segment = pair.server_memory.segment(0, bytes);
    REQUIRE(!pair.server.post({.opcode = WorkOpcode::send_immediate,
                               .signal = Signal::completion,
                               .local = {&segment, 1},
                               .immediate = 0xfeedbeef}));
    pair.pump([&] { return pair.client.receives == 1 && pair.server.sends == 1; });
    const Completion& completion = pair.client.completions[0];
    CHECK(completion.opcode == CompletionOpcode::receive_immediate);
    CHECK(completion.immediate == 0xfeedbeef);
    CHECK(completion.bytes == bytes);
    CHECK(std::memcmp(pair.received(pair.client, completion).data(), segment.data, bytes) == 0);
}

TEST_CASE("send: an empty one consumes an empty receive") {
    Pair pair({.server_receives = 0});
    pair.connect();
    REQUIRE(!pair.server.receive({}, 9));
    REQUIRE(!pair.client.post(send({})));
    pair.pump([&] { return pair.server.receives == 1; });
    CHECK(pair.server.completions[0].context == 9);
    CHECK(pair.server.completions[0].bytes == 0);
}

TEST_CASE("write: places up to four segments side by side in remote memory") {
    Pair pair;
    pair.connect();
    pair.client_memory.pattern(0, 10000, 3);
    const Segment local[] = {pair.client_memory.segment(0, 1), pair.client_memory.segment(1, 4095),
                             pair.client_memory.segment(4096, 0),
                             pair.client_memory.segment(4096, 5904)};
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write,
                               .signal = Signal::completion,
                               .local = local,
                               .remote = pair.server_region->remote(777, 0)}));
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate, .immediate = 5}));
    pair.pump([&] { return pair.server.receives == 1 && pair.client.sends == 1; });
    CHECK(pair.server_memory.has_pattern(777, 10000, 3));
    CHECK(pair.server_memory.data()[776] == std::byte{0});
    CHECK(pair.server_memory.data()[777 + 10000] == std::byte{0});
}

TEST_CASE("write with immediate: payload and immediate in one") {
    Pair pair;
    pair.connect();
    pair.client_memory.pattern(0, 4096, 4);
    const Segment local[] = {pair.client_memory.segment(0, 64),
                             pair.client_memory.segment(64, 4032)};
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate,
                               .signal = Signal::completion,
                               .local = local,
                               .remote = pair.server_region->remote(8192, 0),
                               .immediate = 17}));
    pair.pump([&] { return pair.server.receives == 1 && pair.client.sends == 1; });
    CHECK(pair.server.completions[0].opcode == CompletionOpcode::receive_immediate);
    CHECK(pair.server.completions[0].immediate == 17);
    CHECK(pair.server_memory.has_pattern(8192, 4096, 4));
    CHECK(pair.server_receives.all_are(std::byte{0}));
}

TEST_CASE("write with immediate: an empty one needs neither key nor address") {
    Pair pair;
    pair.connect();
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate, .immediate = 1}));
    REQUIRE(!pair.server.post({.opcode = WorkOpcode::write_immediate, .immediate = 2}));
    pair.pump([&] { return pair.server.receives == 1 && pair.client.receives == 1; });
    CHECK(pair.server.completions[0].immediate == 1);
    CHECK(pair.client.completions[0].immediate == 2);
    CHECK(pair.client.disconnected == 0);
}

TEST_CASE("write: an empty one needs neither key nor address, and the peer sees nothing of it") {
    Pair pair;
    pair.connect();
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write, .signal = Signal::completion}));
    pair.pump([&] { return pair.client.sends == 1; });
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate, .immediate = 1}));
    pair.pump([&] { return pair.server.receives == 1; });
    CHECK(pair.server.completions[0].immediate == 1);
    CHECK(pair.client.disconnected == 0);
}

TEST_CASE("read: fetches remote memory without the peer's help") {
    const std::size_t bytes = GENERATE(1, 4096, 300000);
    Pair pair;
    pair.connect();
    pair.server_memory.pattern(100, bytes, 5);
    const Segment local = pair.client_memory.segment(50, bytes);
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::read,
                               .signal = Signal::completion,
                               .local = {&local, 1},
                               .remote = pair.server_region->remote(100, 0)}));
    pair.pump([&] { return pair.client.sends == 1; });
    CHECK(pair.client_memory.has_pattern(50, bytes, 5));
    CHECK(pair.client_memory.data()[49] == std::byte{0});
    CHECK(pair.client_memory.data()[50 + bytes] == std::byte{0});
    CHECK(pair.server.completions.empty());
}

TEST_CASE("P2: a read returns what was written before it") {
    Pair pair;
    pair.connect();
    pair.client_memory.pattern(0, 5000, 6);
    const Segment source = pair.client_memory.segment(0, 5000);
    const Segment target = pair.client_memory.segment(8192, 5000);
    const WorkRequest chain[] = {{.opcode = WorkOpcode::write,
                                  .local = {&source, 1},
                                  .remote = pair.server_region->remote(0, 0)},
                                 {.opcode = WorkOpcode::read,
                                  .signal = Signal::completion,
                                  .local = {&target, 1},
                                  .remote = pair.server_region->remote(0, 0)}};
    REQUIRE(!pair.client.post(chain));
    pair.pump([&] { return pair.client.sends == 1; });
    CHECK(pair.client_memory.has_pattern(8192, 5000, 6));
}

TEST_CASE("P2: a write is placed before the message posted after it is seen") {
    Pair pair({.server_receives = 0});
    pair.connect();
    for (unsigned round = 0; round < 50; ++round) {
        REQUIRE(!pair.server.receive({}, round));
        pair.client_memory.pattern(0, 100000, round);
        const Segment source = pair.client_memory.segment(0, 100000);
        bool placed = false;
        pair.server.completed = [&](const Completion&) {
            placed = pair.server_memory.has_pattern(0, 100000, round);
        };
        const WorkRequest chain[] = {{.opcode = WorkOpcode::write,
                                      .local = {&source, 1},
                                      .remote = pair.server_region->remote(0, 0)},
                                     {.opcode = WorkOpcode::write_immediate,
                                      .signal = Signal::completion,
                                      .context = round}};
        REQUIRE(!pair.client.post(chain));
        pair.pump(
            [&] { return pair.server.receives == round + 1 && pair.client.sends == round + 1; });
        CHECK(placed);
    }
    pair.server.completed = nullptr;
}

TEST_CASE("P2: order holds over 10,000 mixed requests") {
    constexpr std::uint32_t total = 10000;
    constexpr std::uint32_t window = 200;
    Pair pair({.server_receives = window});
    pair.connect();
    // Request n carries n; a plain write puts it into the server's memory, where the next message
    // must find it.
    std::uint32_t written = 0;
    std::uint32_t expected = 0;
    std::vector<std::uint32_t> messages;  // what each consumed receive must bring
    std::vector<std::uint32_t> writes;    // the newest plain write before it
    bool in_order = true;
    pair.server.completed = [&](const Completion& completion) {
        if (completion.status != CompletionStatus::success) return;
        std::uint32_t value = completion.immediate;
        if (completion.opcode == CompletionOpcode::receive) {
            std::memcpy(&value, pair.received(pair.server, completion).data(), sizeof value);
        }
        std::uint32_t placed = 0;
        std::memcpy(&placed, pair.server_memory.data(), sizeof placed);
        in_order = in_order && value == messages[expected] && placed >= writes[expected];
        ++expected;
        pair.server.receive(pair.server_receives.segment(completion.context * Pair::receive_bytes,
                                                         Pair::receive_bytes),
                            completion.context);
    };
    Random random(1);
    std::uint32_t posted = 0;
    const auto post_some = [&] {
        while (posted < total && messages.size() < expected + window) {
            std::byte* slot = pair.client_memory.data() + posted * 16;
            std::memcpy(slot, &posted, sizeof posted);
            const Segment source{slot, 4 + static_cast<std::uint32_t>(random.below(3)) * 4};
            WorkRequest request{.signal = posted % 7 == 0 ? Signal::completion : Signal::none,
                                .context = posted,
                                .local = {&source, 1},
                                .remote = pair.server_region->remote(0, 0),
                                .immediate = posted};
            constexpr WorkOpcode opcodes[] = {WorkOpcode::send, WorkOpcode::send_immediate,
                                              WorkOpcode::write_immediate, WorkOpcode::write};
            request.opcode = opcodes[random.below(4)];
            if (pair.client.post(request)) return;  // wait for completions
            if (request.opcode == WorkOpcode::write ||
                request.opcode == WorkOpcode::write_immediate)
                written = posted;
            if (request.opcode != WorkOpcode::write) {
                messages.push_back(posted);
                writes.push_back(written);
            }
            ++posted;
        }
    };
    pair.pump([&] {
        post_some();
        return (posted == total && expected == messages.size()) || pair.client.disconnected > 0;
    });
    CHECK(pair.client.disconnected == 0);
    CHECK(in_order);
    CHECK(expected == messages.size());
    pair.server.completed = nullptr;
}

TEST_CASE(
    "P1: signalled requests complete in the order of their posts, unsignalled ones silently") {
    Pair pair;
    pair.connect();
    for (std::uint64_t i = 0; i < 16; ++i) {
        REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate,
                                   .signal = i % 4 == 3 ? Signal::completion : Signal::none,
                                   .context = i}));
    }
    pair.pump([&] { return pair.client.sends == 4 && pair.server.receives == 16; });
    pair.under->settle();
    REQUIRE(pair.client.completions.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(pair.client.completions[i].context == i * 4 + 3);
}

TEST_CASE("post: a full send queue refuses with ENOBUFS, all of a chain or nothing") {
    Pair pair(
        {.endpoint = {.send_queue_depth = 8, .receive_queue_depth = 64}, .server_receives = 32});
    pair.connect();
    const auto message = [](std::uint32_t number) {
        return WorkRequest{.opcode = WorkOpcode::write_immediate,
                           .signal = Signal::completion,
                           .context = number,
                           .immediate = number};
    };
    std::vector<WorkRequest> chain;
    for (std::uint32_t i = 0; i < 6; ++i) chain.push_back(message(i));
    REQUIRE(!pair.client.post(chain));
    const WorkRequest three[] = {message(100), message(101), message(102)};
    CHECK(pair.client.post(three) == from_errno(ENOBUFS));
    const WorkRequest two[] = {message(6), message(7)};
    CHECK(!pair.client.post(two));
    CHECK(pair.client.post(message(103)) == from_errno(ENOBUFS));
    pair.pump([&] { return pair.client.sends == 8 && pair.server.receives == 8; });
    CHECK(!pair.client.post(message(8)));
    pair.pump([&] { return pair.client.sends == 9 && pair.server.receives == 9; });
    pair.under->settle();
    REQUIRE(pair.server.receives == 9);
    for (std::uint32_t i = 0; i < 9; ++i) CHECK(pair.server.completions[i].immediate == i);
}

TEST_CASE("post: a longer payload than 64 MiB is refused with EMSGSIZE") {
    Pair pair({.memory_bytes = 33u << 20});
    pair.connect();
    const Segment half = pair.client_memory.segment(0, (32u << 20) + 1);
    const Segment local[] = {half, half};
    CHECK(pair.client.post({.opcode = WorkOpcode::write, .local = local}) == from_errno(EMSGSIZE));
    CHECK(pair.client.disconnected == 0);
}

TEST_CASE("post_receive: a full receive queue refuses with ENOBUFS") {
    Pair pair({.endpoint = {.send_queue_depth = 8, .receive_queue_depth = 4},
               .server_receives = 4,
               .client_receives = 4});
    pair.connect();
    CHECK(pair.server.receive({}, 9) == from_errno(ENOBUFS));
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate}));
    pair.pump([&] { return pair.server.receives == 1; });
    CHECK(!pair.server.receive({}, 9));
}

TEST_CASE("post_receive: is allowed before the connection is established") {
    Pair pair;
    pair.dial({});
    REQUIRE(!pair.client.receive(pair.client_receives.segment(0, 64), 0));
    pair.server.when_established = [&] {
        pair.server.post({.opcode = WorkOpcode::write_immediate, .immediate = 8});
    };
    pair.pump([&] { return pair.client.receives == 1; });
    CHECK(pair.client.completions[0].immediate == 8);
}

TEST_CASE("P7: a message that finds no receive fails the connection on both sides") {
    const WorkOpcode opcode =
        GENERATE(WorkOpcode::send, WorkOpcode::send_immediate, WorkOpcode::write_immediate);
    Pair pair({.server_receives = 2});
    pair.connect();
    for (std::uint64_t i = 0; i < 4; ++i) {
        REQUIRE(!pair.client.post({.opcode = opcode, .signal = Signal::completion, .context = i}));
    }
    pair.pump_drained();
    CHECK(pair.server.receives == 2);
    CHECK(pair.client.reason);
    CHECK(pair.server.reason);
}

TEST_CASE("send: longer than the receive fails the connection with a length error") {
    Pair pair;
    pair.connect();
    const Segment segment = pair.client_memory.segment(0, Pair::receive_bytes + 1);
    REQUIRE(!pair.client.post(send({&segment, 1})));
    pair.pump_drained();
    CHECK(pair.server.count(CompletionStatus::length) == 1);
    CHECK(pair.server.receives == 0);
    CHECK(pair.client.reason);
}

TEST_CASE("write: 8 MiB arrive intact") {
    constexpr std::size_t bytes = 8u << 20;
    Pair pair({.memory_bytes = bytes + 4096});
    pair.connect();
    pair.client_memory.pattern(0, bytes, 9);
    const Segment source = pair.client_memory.segment(0, bytes);
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate,
                               .signal = Signal::completion,
                               .local = {&source, 1},
                               .remote = pair.server_region->remote(4096, 0)}));
    pair.pump([&] { return pair.server.receives == 1 && pair.client.sends == 1; });
    CHECK(pair.server_memory.has_pattern(4096, bytes, 9));
}

TEST_CASE("write: both directions saturated at once do not deadlock") {
    constexpr std::uint32_t bytes = 64u << 10;
    constexpr std::uint32_t depth = 32;
    constexpr std::uint64_t rounds = 1000;
    Pair pair({.memory_bytes = 2 * depth * bytes, .server_receives = 64, .client_receives = 64});
    pair.connect();
    struct Flow {
        Peer& from;
        Peer& to;
        Memory& source;
        Memory& target;
        MemoryRegion& region;
        std::uint64_t posted = 0;
        bool intact = true;
    };
    Flow flows[] = {
        {pair.client, pair.server, pair.client_memory, pair.server_memory, *pair.server_region},
        {pair.server, pair.client, pair.server_memory, pair.client_memory, *pair.client_region}};
    const auto push = [&](Flow& flow) {
        // At most `depth` in the air: then slots are free again, and receives are there.
        while (flow.posted < rounds && flow.posted < flow.to.receives + depth &&
               flow.posted < flow.from.sends + depth) {
            const std::uint64_t slot = (flow.posted % depth) * bytes;
            std::memcpy(flow.source.data() + slot, &flow.posted, sizeof flow.posted);
            const Segment local = flow.source.segment(slot, bytes);
            const RemoteBuffer remote = flow.region.remote(depth * bytes + slot, 0);
            promise(!flow.from.post({.opcode = WorkOpcode::write_immediate,
                                     .signal = Signal::completion,
                                     .context = flow.posted,
                                     .local = {&local, 1},
                                     .remote = remote,
                                     .immediate = static_cast<std::uint32_t>(flow.posted)}),
                    "post was refused");
            ++flow.posted;
        }
    };
    for (Flow& flow : flows) {
        flow.to.completed = [&](const Completion& completion) {
            if (completion.opcode != CompletionOpcode::receive_immediate) return;
            std::uint64_t value = 0;
            std::memcpy(&value,
                        flow.target.data() + depth * bytes + completion.immediate % depth * bytes,
                        sizeof value);
            flow.intact = flow.intact && value == completion.immediate;
            flow.to.receive({}, completion.context);
        };
    }
    pair.pump([&] {
        for (Flow& flow : flows) push(flow);
        return flows[0].to.receives == rounds && flows[1].to.receives == rounds;
    });
    for (Flow& flow : flows) {
        CHECK(flow.intact);
        flow.to.completed = nullptr;
    }
}

TEST_CASE("P3: posts from inside handlers do not call handlers") {
    Pair pair;
    pair.connect();
    // Ping-pong, each answer from inside the handler; Peer watches.
    constexpr std::uint32_t rounds = 100;
    const auto bounce = [](Peer& peer) {
        return [&peer](const Completion& completion) {
            if (completion.opcode != CompletionOpcode::receive_immediate) return;
            peer.receive({}, completion.context);
            if (completion.immediate == rounds) return;
            peer.post({.opcode = WorkOpcode::write_immediate,
                       .signal = Signal::completion,
                       .immediate = completion.immediate + 1});
        };
    };
    pair.client.completed = bounce(pair.client);
    pair.server.completed = bounce(pair.server);
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate, .immediate = 1}));
    pair.pump([&] { return pair.client.receives + pair.server.receives == rounds; });
    pair.client.completed = nullptr;
    pair.server.completed = nullptr;
}
