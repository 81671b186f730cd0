// Handshakes: the bytes, what is refused, what is bounded.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "rtrs/base/descriptors.h"
#include "tests/unit/tcp/raw_peer.h"

using namespace rtrs;
using namespace rtrs::tcp;
using namespace rtrs::tcp::test;

TEST_CASE("tcp listener: a connect request is answered by an accept with our hello") {
    ServerUnderTest server;
    server.reply = noise(196);
    RawPeer raw(server);
    const auto data = noise(56, 2);
    REQUIRE(raw.greet(true, fabric_version, data));
    const auto answer = raw.hear_frame();
    REQUIRE(answer);
    CHECK(answer->header.opcode == Opcode::accept);
    const auto hello = parse_hello(answer->payload);
    REQUIRE(hello);
    CHECK(hello->version == 1);
    CHECK(hello->payload_crc);
    CHECK(hello->reads_max == 64);
    CHECK(std::ranges::equal(Bytes(answer->payload).subspan(hello_bytes), server.reply));
    CHECK(server.request_data == data);
}

TEST_CASE("tcp listener: payload checksums are on only if both sides want them") {
    const bool we = GENERATE(true, false);
    const bool they = GENERATE(true, false);
    TcpFabricOptions options;
    if (!we) options.data_checksum = TcpFabricOptions::DataChecksum::off;
    ServerUnderTest server(options);
    RawPeer raw(server);
    REQUIRE(raw.greet(they));
    const auto answer = raw.hear_frame();
    REQUIRE(answer);
    CHECK(parse_hello(answer->payload)->payload_crc == (we && they));
}

TEST_CASE("tcp listener: an unknown version is rejected with the version spoken here") {
    const auto version = static_cast<std::uint16_t>(GENERATE(0, 2, 0xffff));
    ServerUnderTest server;
    RawPeer raw(server);
    REQUIRE(raw.greet(true, version));
    const auto answer = raw.hear_frame();
    REQUIRE(answer);
    CHECK(answer->header.opcode == Opcode::reject);
    const auto hello = parse_hello(answer->payload);
    REQUIRE(hello);
    CHECK(hello->version == 1);
    CHECK(hello->reason == RejectReason::version);
    CHECK(raw.at_end());
    CHECK(server.requests == 0);
}

TEST_CASE("tcp listener: what is not a connect request is closed without a word") {
    ServerUnderTest server;
    RawPeer raw(server);
    SECTION("noise") { raw.say(noise(100)); }
    SECTION("another frame") { raw.say(frame(FrameHeader{.opcode = Opcode::send}, noise(40))); }
    SECTION("wrong checksum") {
        const HandshakeFrame good = emit_handshake(Opcode::connect_request, Hello{}, {});
        std::vector<std::byte> bad(good.bytes.begin(), good.bytes.begin() + 48);
        bad.back() ^= std::byte{1};
        raw.say(bad);
    }
    SECTION("lengths that disagree") {
        auto payload = noise(20);
        std::ranges::fill(payload, std::byte{0});
        payload[0] = std::byte{1};
        payload[8] = std::byte{5};
        raw.say(frame(FrameHeader{.opcode = Opcode::connect_request}, payload));
    }
    SECTION("an end in the middle") {
        raw.say(Bytes(noise(10)));
        raw.end_of_stream();
    }
    CHECK(raw.at_end());
    CHECK(server.requests == 0);
}

TEST_CASE("tcp listener: a handshake that stalls is closed after the timeout") {
    TcpFabricOptions options;
    options.handshake_timeout = std::chrono::milliseconds(30);
    ServerUnderTest server(options);
    RawPeer raw(server);
    const HandshakeFrame request = emit_handshake(Opcode::connect_request, Hello{}, {});
    const std::size_t said = GENERATE(0, 10, 32, 40);
    raw.say(Bytes(request.bytes).first(said));
    CHECK(raw.at_end());
    CHECK(server.requests == 0);
}

TEST_CASE("tcp listener: beyond handshakes_max the oldest sockets are closed, new ones go on") {
    TcpFabricOptions options;
    options.handshakes_max = 2;
    ServerUnderTest server(options);
    RawPeer first(server);
    RawPeer second(server);
    for (int i = 0; i < 5; ++i) server.reactor->run_once(std::chrono::milliseconds(10));
    RawPeer third(server);
    CHECK(first.at_end());
    REQUIRE(second.greet());
    CHECK(second.hear_frame());
    RawPeer fourth(server);
    REQUIRE(fourth.greet());
    CHECK(fourth.hear_frame());
    REQUIRE(third.greet());
    CHECK(third.hear_frame());
}

// 64 descriptors, of which so many are taken: raw peers have theirs among these, so that what is
// left is the listener's.
class ScarceDescriptors {
  public:
    explicit ScarceDescriptors(std::uint64_t taken) {
        REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
        do {
            taken_.push_back(dup(0));
        } while (descriptors_open(taken_.back()) < taken);
        REQUIRE(descriptors_open(taken_.back()) == taken);
        const rlimit tight{64, before_.rlim_max};
        REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    }
    ~ScarceDescriptors() {
        for (const int fd : taken_) close(fd);
        setrlimit(RLIMIT_NOFILE, &before_);
    }
    ScarceDescriptors(const ScarceDescriptors&) = delete;
    ScarceDescriptors& operator=(const ScarceDescriptors&) = delete;

    std::unique_ptr<RawPeer> silent_peer(ServerUnderTest& server) {
        REQUIRE(taken_.size() > 1);
        close(taken_[taken_.size() - 2]);
        taken_.erase(taken_.end() - 2);
        auto peer = std::make_unique<RawPeer>(server);
        for (int i = 0; i < 3; ++i) server.reactor->run_once(std::chrono::milliseconds(5));
        return peer;
    }

  private:
    rlimit before_{};
    std::vector<int> taken_;
};

TEST_CASE("tcp listener: while descriptors are scarce, silent sockets take half of the rest") {
    TcpFabricOptions options;
    options.handshake_timeout = std::chrono::hours(1);
    ServerUnderTest server(options);
    // The first peer has the last of those that are for all, the ninth the last but eight.
    ScarceDescriptors scarce(47);
    std::vector<std::unique_ptr<RawPeer>> silent;
    for (int i = 0; i < 9; ++i) silent.push_back(scarce.silent_peer(server));
    CHECK(silent[0]->at_end());
    REQUIRE(silent[1]->greet());
    CHECK(silent[1]->hear_frame());
}

TEST_CASE("tcp listener: of the last descriptors silent sockets take two") {
    TcpFabricOptions options;
    options.handshake_timeout = std::chrono::hours(1);
    ServerUnderTest server(options);
    ScarceDescriptors scarce(56);
    std::vector<std::unique_ptr<RawPeer>> silent;
    for (int i = 0; i < 3; ++i) silent.push_back(scarce.silent_peer(server));
    CHECK(silent[0]->at_end());
    REQUIRE(silent[1]->greet());
    CHECK(silent[1]->hear_frame());
    REQUIRE(silent[2]->greet());
    CHECK(silent[2]->hear_frame());
}

TEST_CASE("tcp listener: out of descriptors it waits, and then goes on") {
    ServerUnderTest server;
    RawPeer raw(server);
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int next = dup(0);
    close(next);
    const rlimit tight{static_cast<rlim_t>(next), before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    const std::uint64_t turns = server.reactor->statistics().turns;
    const Instant end = server.reactor->now() + std::chrono::milliseconds(50);
    while (server.reactor->now() < end) server.reactor->run_once(std::chrono::milliseconds(50));
    CHECK(server.reactor->statistics().turns - turns < 20);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(raw.greet());
    CHECK(raw.hear_frame());
}

TEST_CASE("tcp listener: who comes and goes at once holds few descriptors of many") {
    constexpr int crowd = 100;
    ServerUnderTest server;
    const int first_free = dup(0);
    close(first_free);
    // Accepted in one turn they would have a descriptor each.
    for (int i = 0; i < crowd; ++i) RawPeer gone(server);
    int highest = first_free;
    for (int turn = 0; turn < 4 * crowd; ++turn) {
        server.reactor->run_once(std::chrono::milliseconds(0));
        const int next = dup(0);
        close(next);
        highest = std::max(highest, next);
    }
    CHECK(highest < first_free + crowd / 4);
    RawPeer late(server);
    REQUIRE(late.greet());
    CHECK(late.hear_frame());
}

TEST_CASE("tcp listener: destroyed during handshakes, it frees its port and calls nobody") {
    ServerUnderTest server;
    const std::string address = server.listener->address();
    RawPeer raw(server);
    raw.say(Bytes(noise(5)));
    server.listener.reset();
    CHECK(raw.at_end());
    auto again = server.fabric->listen(address, server);
    REQUIRE(again);
    CHECK((*again)->address() == address);
}

TEST_CASE("tcp listener: [::] serves IPv4 and IPv6") {
    ServerUnderTest server({}, "[::]:0");
    const std::string address = server.listener->address();
    const std::string port = address.substr(address.rfind(':'));
    RawPeer four(*server.reactor, "127.0.0.1" + port);
    REQUIRE(four.greet());
    CHECK(four.hear_frame());
    CHECK(server.peer().endpoint->local_address() == "127.0.0.1" + port);
    RawPeer six(*server.reactor, "[::1]" + port);
    REQUIRE(six.greet());
    CHECK(six.hear_frame());
    CHECK(server.peers.at(1)->endpoint->local_address() == "[::1]" + port);
}

namespace {

// A socket that accepts by hand, for a fabric that dials.
struct RawListener {
    RawListener() {
        Address any = parse_address("127.0.0.1:0").value();
        fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(::bind(fd, any.get(), any.bytes) == 0);
        REQUIRE(::listen(fd, 10) == 0);
    }
    ~RawListener() {
        ::close(fd);
        if (peer >= 0) ::close(peer);
    }
    // Whatever the dialler says, this is the answer.
    void answer(Reactor& reactor, Bytes bytes) {
        pollfd poll_fd{fd, POLLIN, 0};
        pump(reactor, [&] { return ::poll(&poll_fd, 1, 0) == 1; });
        peer = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
        REQUIRE(peer >= 0);
        REQUIRE(::send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(bytes.size()));
    }
    int fd = -1;
    int peer = -1;
};

struct Dialler {
    explicit Dialler(TcpFabricOptions options = {})
        : reactor(make_reactor()), fabric(make_tcp_fabric(*reactor, options)) {
        domain = fabric->create_domain().value();
    }
    void dial(const std::string& to, const std::string& from = "") {
        recorder.endpoint =
            fabric->connect(*domain, from, to, {}, EndpointOptions{}, recorder).value();
    }
    void ends(std::error_code why) {
        pump(*reactor, [&] { return recorder.drained == 1; });
        CHECK(recorder.established == 0);
        CHECK(recorder.disconnected == 1);
        CHECK(recorder.reason == why);
    }
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<ProtectionDomain> domain;
    Recorder recorder;
};

}  // namespace

TEST_CASE("tcp dial: a silent listener ends in ETIMEDOUT") {
    TcpFabricOptions options;
    options.connect_timeout = std::chrono::milliseconds(30);
    Dialler dialler(options);
    RawListener listener;
    dialler.dial(local_address(listener.fd));
    dialler.ends(from_errno(ETIMEDOUT));
}

TEST_CASE("tcp dial: an answer that is none ends in an error") {
    Dialler dialler;
    RawListener listener;
    dialler.dial(local_address(listener.fd));
    Hello hello;
    SECTION("noise") {
        listener.answer(*dialler.reactor, noise(300));
        dialler.ends(Error::protocol);
    }
    SECTION("another frame") {
        listener.answer(*dialler.reactor, frame(FrameHeader{.opcode = Opcode::send}, {}));
        dialler.ends(Error::protocol);
    }
    SECTION("another version") {
        hello.version = 3;
        const HandshakeFrame answer = emit_handshake(Opcode::accept, hello, {});
        listener.answer(*dialler.reactor, Bytes(answer.bytes).first(answer.size));
        dialler.ends(Error::protocol);
    }
    SECTION("our version is not spoken") {
        hello.reason = RejectReason::version;
        const HandshakeFrame answer = emit_handshake(Opcode::reject, hello, {});
        listener.answer(*dialler.reactor, Bytes(answer.bytes).first(answer.size));
        dialler.ends(Error::protocol);
    }
    SECTION("a wrong checksum") {
        HandshakeFrame answer = emit_handshake(Opcode::accept, hello, {});
        answer.bytes[40] ^= std::byte{1};
        listener.answer(*dialler.reactor, Bytes(answer.bytes).first(answer.size));
        dialler.ends(Error::checksum);
    }
    SECTION("the end") {
        listener.answer(*dialler.reactor, {});
        ::shutdown(listener.peer, SHUT_WR);
        dialler.ends(from_errno(ECONNRESET));
    }
}

TEST_CASE("tcp dial: checksums that we did not ask for are refused") {
    TcpFabricOptions options;
    options.data_checksum = TcpFabricOptions::DataChecksum::off;
    Dialler dialler(options);
    RawListener listener;
    dialler.dial(local_address(listener.fd));
    Hello hello;
    hello.payload_crc = true;
    const HandshakeFrame answer = emit_handshake(Opcode::accept, hello, {});
    listener.answer(*dialler.reactor, Bytes(answer.bytes).first(answer.size));
    dialler.ends(Error::protocol);
}

TEST_CASE("tcp dial: the source address is used, one of another machine fails") {
    Dialler dialler;
    RawListener listener;
    SECTION("used") {
        dialler.dial(local_address(listener.fd), "127.0.0.2");
        const HandshakeFrame answer = emit_handshake(Opcode::accept, Hello{}, {});
        listener.answer(*dialler.reactor, Bytes(answer.bytes).first(answer.size));
        pump(*dialler.reactor, [&] { return dialler.recorder.established == 1; });
        CHECK(dialler.recorder.endpoint->local_address().starts_with("127.0.0.2:"));
        dialler.recorder.endpoint->disconnect();
        pump(*dialler.reactor, [&] { return dialler.recorder.drained == 1; });
    }
    SECTION("not ours") {
        dialler.dial(local_address(listener.fd), "192.0.2.1");
        dialler.ends(from_errno(EADDRNOTAVAIL));
    }
}

TEST_CASE("tcp dial: given up at once, it drains") {
    Dialler dialler;
    RawListener listener;
    dialler.dial(local_address(listener.fd));
    const int turns = GENERATE(0, 1, 2, 5);
    for (int i = 0; i < turns; ++i) dialler.reactor->run_once(Duration::zero());
    dialler.recorder.endpoint->disconnect();
    dialler.ends({});
}
