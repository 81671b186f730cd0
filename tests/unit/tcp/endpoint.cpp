// The endpoint against a peer of which every byte is chosen here.
#include <sched.h>

#include <catch2/catch.hpp>
#include <vector>

#include "tests/skip.h"
#include "tests/unit/tcp/raw_peer.h"

using namespace rtrs;
using namespace rtrs::tcp;
using namespace rtrs::tcp::test;

TEST_CASE("tcp endpoint: a write with immediate in any fragments is placed and delivered") {
    const std::size_t fragment = GENERATE(1, 7, 31, 33, 4096, 1 << 20);
    const std::size_t bytes = GENERATE(1, 60, 4096, 40000);
    if (fragment < 31 && bytes > 4096) return;  // only slow
    Connected connected;
    const auto data = noise(bytes);
    FrameHeader header = connected.header(Opcode::write_immediate, 5);
    header.immediate = 0x01020304;
    const auto all = frame(header, data);
    for (std::size_t at = 0; at < all.size(); at += fragment) {
        REQUIRE(connected.raw.say(Bytes(all).subspan(at, std::min(fragment, all.size() - at))));
    }
    pump(*connected.reactor, [&] { return !connected.peer().completions.empty(); });
    const Completion completion = connected.peer().completions.at(0);
    CHECK(completion.opcode == CompletionOpcode::receive_immediate);
    CHECK(completion.status == CompletionStatus::success);
    CHECK(completion.context == 7);
    CHECK(completion.bytes == bytes);
    CHECK(completion.immediate == 0x01020304);
    CHECK(std::ranges::equal(connected.pages.middle().subspan(5, bytes), data));
    CHECK(connected.pages.untouched(0, Pages::page + 5));
    CHECK(connected.pages.untouched(Pages::page + 5 + bytes, 100000));
}

TEST_CASE("tcp endpoint: large and small payloads mixed arrive whole and in order") {
    const bool crc = GENERATE(true, false);
    Connected connected(crc);
    Random random(5);
    std::vector<std::byte> expected(Pages::page);
    std::size_t at = 0;
    int frames = 0;
    std::vector<std::byte> all;
    for (;; ++frames) {
        const std::size_t bytes =
            random.chance(1, 3) ? 1 + random.below(150000) : 1 + random.below(500);
        if (at + bytes > Pages::page) break;
        const auto data = noise(bytes, random.next());
        std::ranges::copy(data, expected.begin() + static_cast<long>(at));
        const auto next = frame(connected.header(Opcode::write, at), data, crc);
        all.insert(all.end(), next.begin(), next.end());
        at += bytes;
    }
    REQUIRE(frames > 5);
    const auto last = frame(FrameHeader{.opcode = Opcode::send}, noise(10), crc);
    all.insert(all.end(), last.begin(), last.end());
    Bytes rest = all;
    while (!rest.empty()) {
        const std::size_t part = std::min<std::size_t>(rest.size(), 1 + random.below(90000));
        REQUIRE(connected.raw.say(rest.first(part)));
        rest = rest.subspan(part);
    }
    pump(*connected.reactor, [&] { return !connected.peer().completions.empty(); });
    CHECK(connected.peer().completions.at(0).opcode == CompletionOpcode::receive);
    CHECK(std::ranges::equal(connected.pages.middle(), expected));
}

TEST_CASE("tcp endpoint: one receive stays while little comes, and makes way for large payloads") {
    const bool prompt = GENERATE(true, false);
    Connected connected;
    Reactor& reactor = *connected.reactor;
    reactor.set_prompt_sends(prompt);
    const auto write = [&](std::size_t bytes, std::uint64_t seed, std::size_t at_a_time) {
        const std::size_t before = connected.peer().completions.size();
        REQUIRE(!connected.peer().endpoint->post_receive(0, {}));
        const auto data = noise(bytes, seed);
        const auto all = frame(connected.header(Opcode::write_immediate), data);
        for (std::size_t at = 0; at < all.size(); at += at_a_time) {
            REQUIRE(
                connected.raw.say(Bytes(all).subspan(at, std::min(at_a_time, all.size() - at))));
            reactor.run_once(Duration::zero());
        }
        pump(reactor, [&] { return connected.peer().completions.size() > before; });
        REQUIRE(std::ranges::equal(connected.pages.middle().first(bytes), data));
    };
    const auto submissions_of = [&](auto what) {
        const std::uint64_t before = reactor.statistics().submissions;
        what();
        return reactor.statistics().submissions - before;
    };
    const auto small_ones = [&] {
        for (std::uint64_t i = 0; i < 100; ++i) write(100, i, 1000);
    };
    small_ones();
    const bool stays = prompt && reactor.keeps_receives();
    const std::uint64_t for_small = submissions_of(small_ones);
    CHECK((stays ? for_small < 20 : for_small >= 100));
    for (std::uint64_t round = 0; round < 10; ++round) {
        write(300000, round, round % 2 == 0 ? 1 << 20 : 7000);
        write(100, round, 50);
        small_ones();
    }
    CHECK((!stays || submissions_of(small_ones) < 20));
}

TEST_CASE("tcp endpoint: a wrong payload checksum fails the connection and is never delivered") {
    const std::size_t bytes = GENERATE(60, 4096, 300000);
    Connected connected;
    FrameHeader header = connected.header(Opcode::write_immediate);
    header.flags = flag_payload_crc;
    const auto data = noise(bytes);
    header.payload_crc = crc32c(data) ^ 1;
    CHECK(connected.raw.say(frame(header, data, false)));
    connected.fails(Error::checksum);
    REQUIRE(connected.peer().completions.size() == 1);
    CHECK(connected.peer().completions[0].status == CompletionStatus::flushed);
}

TEST_CASE("tcp endpoint: checksums must be there when agreed, and must not when not") {
    const bool crc = GENERATE(true, false);
    Connected connected(crc);
    CHECK(connected.raw.say(frame(connected.header(Opcode::write), noise(10), !crc)));
    connected.fails(Error::protocol);
    CHECK(connected.pages.untouched());
}

TEST_CASE("tcp endpoint: frames that are out of place fail the connection") {
    Connected connected;
    SECTION("accept") {
        const HandshakeFrame again = emit_handshake(Opcode::accept, Hello{}, {});
        connected.raw.say(Bytes(again.bytes).first(again.size));
    }
    SECTION("connect request") {
        const HandshakeFrame again = emit_handshake(Opcode::connect_request, Hello{}, {});
        connected.raw.say(Bytes(again.bytes).first(again.size));
    }
    SECTION("read response") {
        connected.raw.say(frame(FrameHeader{.opcode = Opcode::read_response}, noise(8)));
    }
    SECTION("empty read response") {
        connected.raw.say(frame(FrameHeader{.opcode = Opcode::read_response}, {}));
    }
    SECTION("no receive is posted") {
        const auto one = frame(FrameHeader{.opcode = Opcode::send_immediate}, {});
        connected.raw.say(one);
        connected.raw.say(one);
    }
    SECTION("longer than the receive") {
        connected.raw.say(frame(FrameHeader{.opcode = Opcode::send}, noise(65)));
        pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
        CHECK(connected.peer().completions.at(0).status == CompletionStatus::length);
    }
    SECTION("noise") { connected.raw.say(noise(100)); }
    connected.fails(Error::protocol);
    CHECK(connected.pages.untouched());
}

TEST_CASE("tcp endpoint: a peer that writes nothing again and again loses its connection") {
    Connected connected;
    REQUIRE(!connected.peer().endpoint->post_receive(8, {connected.receive, 0}));
    const auto nothing = frame(connected.header(Opcode::write), {});
    const auto write_nothing = [&] {
        for (std::uint32_t i = 0; i < empty_writes_max; ++i) {
            REQUIRE(connected.raw.say(nothing));
        }
    };
    write_nothing();
    // In a row: any other frame begins a new one.
    FrameHeader other = connected.header(Opcode::write_immediate);
    SECTION("something is written") { other.opcode = Opcode::write; }
    SECTION("something is said") {}
    const std::vector<std::byte> data(other.opcode == Opcode::write ? 8 : 0);
    REQUIRE(connected.raw.say(frame(other, data)));
    write_nothing();
    pump(*connected.reactor, [&] { return !connected.raw.has_news(); });
    CHECK(connected.peer().disconnected == 0);
    REQUIRE(connected.raw.say(nothing));
    pump(*connected.reactor, [&] { return connected.peer().disconnected == 1; });
    CHECK(connected.peer().reason == Error::protocol);
}

TEST_CASE("tcp endpoint: a write is refused before its first byte is placed") {
    const std::size_t bytes = GENERATE(1, 4096, 200000);
    Connected connected;
    FrameHeader header = connected.header(Opcode::write);
    SECTION("key") { header.key ^= 1u << 31; }
    SECTION("below") { --header.address; }
    SECTION("above") { header.address += Pages::page - bytes + 1; }
    // Only a part: nothing waits for the rest.
    const auto all = frame(header, noise(bytes));
    CHECK(connected.raw.say(Bytes(all).first(header_bytes + 1)));
    connected.fails(Error::remote_access);
    CHECK(connected.pages.untouched());
}

TEST_CASE("tcp endpoint: a key that is revoked between parts of a payload stops the rest") {
    const std::size_t bytes = 10000;
    Connected connected;
    auto windows = connected.domain->create_windows(*connected.region, 1).value();
    const MemoryWindow window{windows.get()};
    const Segment all{connected.region->data(), static_cast<std::uint32_t>(Pages::page)};
    REQUIRE(
        !connected.peer().endpoint->post(std::vector{WorkRequest{.opcode = WorkOpcode::bind_window,
                                                                 .signal = Signal::completion,
                                                                 .local = {&all, 1},
                                                                 .window = window}}));
    pump(*connected.reactor, [&] { return connected.peer().completions.size() == 1; });
    FrameHeader header = connected.header(Opcode::write);
    header.key = window.key();
    const auto data = noise(bytes);
    const auto whole = frame(header, data);
    CHECK(connected.raw.say(Bytes(whole).first(header_bytes + 5000)));
    pump(*connected.reactor, [&] { return connected.region->data()[4999] == data[4999]; });
    CHECK(connected.peer().endpoint->post_revoke(window, 1) == RevokeResult::effective);
    CHECK(connected.raw.say(Bytes(whole).subspan(header_bytes + 5000)));
    connected.fails(Error::remote_access);
    CHECK(connected.pages.untouched(Pages::page + 5000, 10000));
}

TEST_CASE("tcp endpoint: a revoke during a direct receive ends it before it is effective") {
    Connected connected;
    auto windows = connected.domain->create_windows(*connected.region, 1).value();
    const MemoryWindow window{windows.get()};
    const Segment all{connected.region->data(), static_cast<std::uint32_t>(Pages::page)};
    REQUIRE(
        !connected.peer().endpoint->post(std::vector{WorkRequest{.opcode = WorkOpcode::bind_window,
                                                                 .signal = Signal::completion,
                                                                 .local = {&all, 1},
                                                                 .window = window}}));
    pump(*connected.reactor, [&] { return connected.peer().completions.size() == 1; });
    FrameHeader header = connected.header(Opcode::write);
    header.key = window.key();
    const auto data = noise(400000);
    const auto whole = frame(header, data);
    CHECK(connected.raw.say(Bytes(whole).first(100000)));
    // The ring is waiting for the rest now.
    pump(*connected.reactor, [&] { return connected.region->data()[50000] == data[50000]; });
    for (int i = 0; i < 5; ++i) connected.reactor->run_once(Duration::zero());
    Recorder& peer = connected.peer();
    CHECK(peer.endpoint->post_revoke(window, 99) == RevokeResult::pending);
    bool revoked = false;
    std::vector<std::byte> then;
    peer.completed = [&](const Completion& completion) {
        if (completion.opcode != CompletionOpcode::revoke) return;
        revoked = true;
        CHECK(completion.context == 99);
        CHECK(completion.status == CompletionStatus::success);
        const MutableBytes memory = connected.pages.middle();
        then.assign(memory.begin(), memory.end());
    };
    (void)connected.raw.say(Bytes(whole).subspan(100000));
    pump(*connected.reactor, [&] { return peer.drained == 1; });
    CHECK(revoked);
    CHECK(peer.reason == Error::remote_access);
    CHECK(std::ranges::equal(connected.pages.middle(), then));
}

TEST_CASE("tcp endpoint: reads are answered in order from registered memory") {
    Connected connected;
    const auto data = noise(200000);
    std::ranges::copy(data, connected.region->data());
    std::vector<std::byte> requests;
    for (std::uint32_t id = 0; id < 4; ++id) {
        std::array<std::byte, read_request_bytes> request;
        emit_read_request({50000, 40 + id}, request.data());
        const auto next = frame(connected.header(Opcode::read_request, 50000 * id), request);
        requests.insert(requests.end(), next.begin(), next.end());
    }
    CHECK(connected.raw.say(requests));
    for (std::uint32_t id = 0; id < 4; ++id) {
        const auto answer = connected.raw.hear_frame();
        REQUIRE(answer);
        CHECK(answer->header.opcode == Opcode::read_response);
        CHECK(answer->header.address == 40 + id);
        CHECK(std::ranges::equal(answer->payload, Bytes(data).subspan(50000 * id, 50000)));
    }
}

TEST_CASE("tcp endpoint: more reads than agreed end the connection, and cost no memory") {
    Connected connected;
    std::array<std::byte, read_request_bytes> request;
    emit_read_request({static_cast<std::uint32_t>(Pages::page), 0}, request.data());
    const auto one = frame(connected.header(Opcode::read_request), request);
    for (int i = 0; i < 1000; ++i) {
        if (!connected.raw.say(one)) break;
    }
    pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
    CHECK(connected.peer().reason == Error::protocol);
}

TEST_CASE("tcp endpoint: reads outstanding are bounded by what the peer holds") {
    Connected connected;  // the raw peer said 4
    std::byte target[16];
    const Segment segment{target, sizeof target};
    const WorkRequest read{.opcode = WorkOpcode::read,
                           .signal = Signal::completion,
                           .local = {&segment, 1},
                           .remote = {0x1000, 5, 0}};
    for (int i = 0; i < 4; ++i) CHECK(!connected.peer().endpoint->post({&read, 1}));
    CHECK(connected.peer().endpoint->post({&read, 1}) == from_errno(ENOBUFS));
    const auto asked = connected.raw.hear_frame();
    REQUIRE(asked);
    CHECK(asked->header.opcode == Opcode::read_request);
    CHECK(asked->header.address == 0x1000);
    CHECK(asked->header.key == 5);
    const ReadRequest request =
        parse_read_request(std::span(asked->payload).first<read_request_bytes>());
    CHECK(request.bytes == sizeof target);
    const auto data = noise(16);
    FrameHeader header{.opcode = Opcode::read_response};
    SECTION("the answer is placed") {
        header.address = request.id;
        CHECK(connected.raw.say(frame(header, data)));
        pump(*connected.reactor, [&] { return !connected.peer().completions.empty(); });
        CHECK(std::ranges::equal(target, data));
        CHECK(!connected.peer().endpoint->post({&read, 1}));
    }
    SECTION("an answer to another one fails the connection") {
        header.address = request.id + 1;
        CHECK(connected.raw.say(frame(header, data)));
        pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
        CHECK(connected.peer().reason == Error::protocol);
    }
    SECTION("an answer of another length fails the connection") {
        header.address = request.id;
        CHECK(connected.raw.say(frame(header, Bytes(data).first(15))));
        pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
        CHECK(connected.peer().reason == Error::protocol);
    }
}

TEST_CASE("tcp endpoint: the reason of a disconnect frame is what this side reports") {
    const auto [said, reported] =
        GENERATE(table<std::uint32_t, std::error_code>({{0, Error::closed_by_peer},
                                                        {1, Error::protocol},
                                                        {2, Error::remote_access},
                                                        {3, Error::checksum},
                                                        {4000, from_errno(ECONNRESET)}}));
    Connected connected;
    CHECK(
        connected.raw.say(frame(FrameHeader{.opcode = Opcode::disconnect, .immediate = said}, {})));
    pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
    CHECK(connected.peer().reason == reported);
}

TEST_CASE("tcp endpoint: the end of the stream, between frames or inside one, is a reset") {
    Connected connected;
    const auto all = frame(connected.header(Opcode::write), noise(100000));
    const std::size_t before_end = GENERATE(0, 10, 32, 1000, 40000);
    CHECK(connected.raw.say(Bytes(all).first(before_end)));
    connected.raw.end_of_stream();
    pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
    CHECK(connected.peer().reason == from_errno(ECONNRESET));
}

namespace {

// Processors that this thread may run on, and where it stays meanwhile.
class Processors {
  public:
    Processors() {
        REQUIRE(::sched_getaffinity(0, sizeof all_, &all_) == 0);
        for (int i = 0; i < CPU_SETSIZE; ++i) {
            if (CPU_ISSET(i, &all_)) numbers.push_back(i);
        }
    }
    ~Processors() { ::sched_setaffinity(0, sizeof all_, &all_); }
    void stay_on(int processor) const {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
    }
    std::vector<int> numbers;

  private:
    cpu_set_t all_{};
};

}  // namespace

TEST_CASE("tcp endpoint: of many answers a part leaves early, and payloads come in parts") {
    enum class Peer { elsewhere, here, elsewhere_not_wanted };
    const Peer peer = GENERATE(Peer::elsewhere, Peer::here, Peer::elsewhere_not_wanted);
    const bool early = peer == Peer::elsewhere;
    const Processors processors;
    if (processors.numbers.size() < 2) {
        rnbd::testing::skip("needs two processors");
        return;
    }
    ServerUnderTest server;
    server.send_queue_depth = 64;
    server.reactor->set_prompt_sends(peer != Peer::elsewhere_not_wanted);
    RawPeer raw(server);
    REQUIRE(raw.greet());
    REQUIRE(raw.hear_frame());
    pump(*server.reactor, [&] { return server.peer().established == 1; });
    // What the peer says is brought by the processor that it says it on, and asked about now and
    // then.
    const int ours = processors.numbers[peer == Peer::here ? 0 : 1];
    for (int i = 0; i < 40; ++i) {
        server.peer().completions.clear();
        processors.stay_on(processors.numbers[0]);
        raw.whisper(frame(FrameHeader{.opcode = Opcode::send}, noise(10)));
        processors.stay_on(ours);
        pump(*server.reactor, [&] { return !server.peer().completions.empty(); });
        REQUIRE(!server.peer().endpoint->post_receive(7, {server.receive, sizeof server.receive}));
    }

    struct Answers : TurnTask {
        Answers(Endpoint& its, const RawPeer& its_peer)
            : TurnTask(&go), endpoint(its), peer(its_peer) {}
        static void go(TurnTask& task) {
            auto& self = static_cast<Answers&>(task);
            std::byte text[8]{};
            const Segment segment{text, sizeof text};
            const WorkRequest one{.opcode = WorkOpcode::send, .local = {&segment, 1}};
            for (int i = 1; i <= 64; ++i) {
                RTRS_ASSERT(!self.endpoint.post({&one, 1}));
                if (i == 31) self.before = self.peer.has_news();
            }
            self.after = self.peer.has_news();
        }
        Endpoint& endpoint;
        const RawPeer& peer;
        bool before = false, after = false;
    } answers(*server.peer().endpoint, raw);
    server.reactor->at_turn_end(answers);
    server.reactor->run_once(Duration::zero());
    CHECK(!answers.before);
    CHECK(answers.after == early);
    for (int i = 0; i < 64; ++i) REQUIRE(raw.hear_frame());  // all of them, once and whole
    CHECK(!raw.has_news());

    // And of many payloads a first part is worked off before the rest is taken.
    constexpr std::size_t bytes = 4096, count = 16;
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < count; ++i) {
        FrameHeader header;
        header.opcode = Opcode::write;
        header.address = reinterpret_cast<std::uint64_t>(server.region->data()) + i * bytes;
        header.key = server.region->key();
        const auto one = frame(header, noise(bytes, i + 1));
        all.insert(all.end(), one.begin(), one.end());
    }
    processors.stay_on(processors.numbers[0]);
    raw.whisper(all);
    processors.stay_on(ours);
    const auto is_there = [&](std::size_t i) {
        return std::ranges::equal(server.pages.middle().subspan(i * bytes, bytes),
                                  noise(bytes, i + 1));
    };
    pump(*server.reactor, [&] { return is_there(0); });
    if (early) CHECK(!is_there(count - 1));
    pump(*server.reactor, [&] { return is_there(count - 1); });
    for (std::size_t i = 0; i < count; ++i) CHECK(is_there(i));
}

TEST_CASE("tcp endpoint: a peer that reads nothing fills the send queue, and nothing else") {
    Connected connected;
    std::vector<std::byte> large(8u << 20);
    const Segment segment{large.data(), static_cast<std::uint32_t>(large.size())};
    const WorkRequest send{
        .opcode = WorkOpcode::send, .signal = Signal::completion, .local = {&segment, 1}};
    for (int i = 0; i < 8; ++i) {
        CHECK(!connected.peer().endpoint->post({&send, 1}));
        connected.reactor->run_once(Duration::zero());
    }
    CHECK(connected.peer().endpoint->post({&send, 1}) == from_errno(ENOBUFS));
    connected.peer().endpoint->disconnect();
    pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
    CHECK(!connected.peer().reason);
    CHECK(connected.peer().completions.size() == 9);  // and the receive
}

TEST_CASE("tcp endpoint: what was sent before finish() arrives, though the peer goes on sending") {
    Connected connected;
    const auto answer = noise(400000);
    std::vector<std::byte> sent = answer;
    const Segment segment{sent.data(), static_cast<std::uint32_t>(sent.size())};
    const WorkRequest send{
        .opcode = WorkOpcode::send, .signal = Signal::completion, .local = {&segment, 1}};
    Recorder& peer = connected.peer();
    REQUIRE(!peer.endpoint->post({&send, 1}));
    pump(*connected.reactor, [&] { return peer.completions.size() == 1; });
    // Some of it comes before, some behind the end.
    const auto late = frame(connected.header(Opcode::write), noise(1000));
    connected.raw.whisper(late);
    peer.endpoint->finish(Error::name_in_use);
    const bool goes_on = GENERATE(true, false);
    for (int i = 0; i < 5; ++i) {
        connected.reactor->run_once(Duration::zero());
        if (goes_on) connected.raw.whisper(Bytes(late).first(100));
    }
    CHECK(peer.disconnected == 1);
    const auto heard = connected.raw.hear_frame();
    REQUIRE(heard);
    CHECK(heard->payload == answer);
    const auto goodbye = connected.raw.hear_frame();
    REQUIRE(goodbye);
    CHECK(goodbye->header.opcode == Opcode::disconnect);
    CHECK(disconnect_error(goodbye->header.immediate) == Error::name_in_use);
    CHECK(connected.raw.at_end());
    connected.raw.close();
    pump(*connected.reactor, [&] { return peer.drained == 1; });
    CHECK(!peer.reason);
    CHECK(connected.pages.untouched());
    REQUIRE(peer.completions.size() == 2);
    CHECK(peer.completions[1].status == CompletionStatus::flushed);  // the receive
}

TEST_CASE("tcp endpoint: a peer that does not end is not waited for without end") {
    Connected connected;
    connected.peer().endpoint->finish({});
    pump(*connected.reactor, [&] { return connected.peer().drained == 1; });
    CHECK(connected.raw.hear_frame());
    CHECK(connected.raw.at_end());
}
