// A peer made of a plain socket that says exactly what a test wants, and the server it talks to.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "rtrs/base/random.h"
#include "rtrs/fabric/tcp/crc32c.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabrics.h"
#include "rtrs/sockets/address.h"

namespace rtrs::tcp::test {

inline std::unique_ptr<Reactor> make_reactor() {
    auto reactor = Reactor::create();
    if (reactor) return std::move(*reactor);
    std::cerr << "skipped: no reactor: " << reactor.error().message() << '\n';
    std::exit(77);
}

template <typename Done>
void pump(Reactor& reactor, Done done) {
    const Instant end = reactor.now() + std::chrono::seconds(60);
    while (!done()) {
        REQUIRE(reactor.now() < end);
        reactor.run_once(std::chrono::milliseconds(20));
    }
}

struct Recorder final : EndpointHandler {
    void on_established(Bytes data) override {
        ++established;
        private_data.assign(data.begin(), data.end());
    }
    void on_rejected(Bytes data) override {
        ++rejected;
        private_data.assign(data.begin(), data.end());
    }
    void on_completion(const Completion& completion) override {
        completions.push_back(completion);
        if (completed) completed(completion);
    }
    void on_disconnected(std::error_code why) override {
        ++disconnected;
        reason = why;
    }
    void on_drained() override { ++drained; }

    int established = 0, rejected = 0, disconnected = 0, drained = 0;
    std::error_code reason;
    std::vector<std::byte> private_data;
    std::vector<Completion> completions;
    std::function<void(const Completion&)> completed;
    std::unique_ptr<Endpoint> endpoint;
};

// Three pages, of which the middle one is offered.
struct Pages {
    static constexpr std::size_t page = 1u << 20;
    Pages()
        : data(static_cast<std::byte*>(mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
    ~Pages() { munmap(data, 3 * page); }
    MutableBytes middle() const { return {data + page, page}; }
    bool untouched(std::size_t from = 0, std::size_t bytes = 3 * page) const {
        for (std::size_t i = from; i < from + bytes; ++i) {
            if (data[i] != std::byte{0}) return false;
        }
        return true;
    }
    std::byte* data;
};

struct ServerUnderTest : ListenerHandler {
    explicit ServerUnderTest(TcpFabricOptions options = {}, const char* address = "127.0.0.1:0")
        : reactor(make_reactor()), fabric(make_tcp_fabric(*reactor, options)) {
        domain = fabric->create_domain().value();
        region = domain->register_memory(pages.middle(), Access::remote_write | Access::remote_read)
                     .value();
        listener = fabric->listen(address, *this).value();
    }
    virtual ~ServerUnderTest() {
        for (auto& peer : peers) {
            if (peer->drained == 0) peer->endpoint->disconnect();
            pump(*reactor, [&] { return peer->drained == 1; });
        }
    }
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        ++requests;
        request_data.assign(request->private_data().begin(), request->private_data().end());
        peers.push_back(std::make_unique<Recorder>());
        peers.back()->endpoint = request
                                     ->accept(*domain, Bytes(reply),
                                              {.send_queue_depth = send_queue_depth,
                                               .receive_queue_depth = 8,
                                               .silence_max = silence_max},
                                              *peers.back())
                                     .value();
        REQUIRE(!peers.back()->endpoint->post_receive(7, {receive, sizeof receive}));
    }
    Recorder& peer() { return *peers.at(0); }

    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Fabric> fabric;
    Pages pages;
    std::unique_ptr<ProtectionDomain> domain;
    std::unique_ptr<MemoryRegion> region;
    std::unique_ptr<Listener> listener;
    std::vector<std::unique_ptr<Recorder>> peers;
    std::uint32_t send_queue_depth = 8;  // of those that come from now on
    Duration silence_max = EndpointOptions{}.silence_max;
    int requests = 0;
    std::vector<std::byte> request_data;
    std::vector<std::byte> reply;
    std::byte receive[64]{};
};

// A frame's bytes; its payload checksum is right unless told otherwise.
inline std::vector<std::byte> frame(FrameHeader header, Bytes payload, bool crc = true) {
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    if (crc && !payload.empty()) {
        header.flags |= flag_payload_crc;
        header.payload_crc = crc32c(payload);
    }
    std::vector<std::byte> bytes(header_bytes);
    emit_header(header, bytes.data());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
}

class RawPeer {
  public:
    RawPeer(Reactor& reactor, const std::string& address) : reactor_(reactor) {
        const auto to = parse_address(address).value();
        fd_ = ::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(::connect(fd_, to.get(), to.bytes) == 0);
    }
    explicit RawPeer(ServerUnderTest& server)
        : RawPeer(*server.reactor, server.listener->address()) {}
    ~RawPeer() { close(); }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    void end_of_stream() { ::shutdown(fd_, SHUT_WR); }

    // False if the connection broke.
    bool say(Bytes bytes) {
        while (!bytes.empty()) {
            const ssize_t sent =
                ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN) return false;
            if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
            reactor_.run_once(Duration::zero());
        }
        return true;
    }
    // Without a turn of the other side.
    void whisper(Bytes bytes) const {
        REQUIRE(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                static_cast<ssize_t>(bytes.size()));
    }
    bool greet(bool payload_crc = true, std::uint16_t version = fabric_version,
               Bytes private_data = {}) {
        Hello hello;
        hello.version = version;
        hello.payload_crc = payload_crc;
        hello.reads_max = 4;
        const HandshakeFrame handshake =
            emit_handshake(Opcode::connect_request, hello, private_data);
        return say(Bytes(handshake.bytes).first(handshake.size));
    }

    // Exactly so many bytes, or fewer if the stream ends.
    std::vector<std::byte> hear(std::size_t bytes) {
        std::vector<std::byte> heard(bytes);
        std::size_t got = 0;
        const Instant end = reactor_.now() + std::chrono::seconds(60);
        while (got < bytes) {
            REQUIRE(reactor_.now() < end);
            const ssize_t n = ::recv(fd_, heard.data() + got, bytes - got, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN)) break;
            if (n > 0) got += static_cast<std::size_t>(n);
            reactor_.run_once(std::chrono::milliseconds(1));
        }
        heard.resize(got);
        return heard;
    }
    struct Heard {
        FrameHeader header;
        std::vector<std::byte> payload;
    };
    std::optional<Heard> hear_frame() {
        const auto header = hear(header_bytes);
        if (header.size() < header_bytes) return std::nullopt;
        Heard heard;
        REQUIRE(!parse_header(std::span(header).first<header_bytes>(), heard.header));
        heard.payload = hear(heard.header.payload_bytes);
        if (heard.header.has_payload_crc()) {
            REQUIRE(crc32c(heard.payload) == heard.header.payload_crc);
        }
        return heard;
    }
    // Whether something has come, without a turn of the other side.
    bool has_news() const {
        pollfd socket{fd_, POLLIN, 0};
        return ::poll(&socket, 1, 0) == 1;
    }
    bool at_end() { return hear(1).empty(); }

  private:
    Reactor& reactor_;
    int fd_ = -1;
};

// A server and a raw peer that have shaken hands.
struct Connected final : ServerUnderTest {
    explicit Connected(bool payload_crc = true) : raw(*this) {
        REQUIRE(raw.greet(payload_crc));
        const auto answer = raw.hear_frame();
        REQUIRE(answer);
        REQUIRE(answer->header.opcode == Opcode::accept);
        pump(*reactor, [&] { return peer().established == 1; });
    }
    FrameHeader header(Opcode opcode, std::uint64_t offset = 0) const {
        FrameHeader result;
        result.opcode = opcode;
        result.address = reinterpret_cast<std::uint64_t>(region->data()) + offset;
        result.key = region->key();
        return result;
    }
    // The connection ends, and the raw peer is told why.
    void fails(std::error_code why) {
        pump(*reactor, [&] { return peer().drained == 1; });
        CHECK(peer().reason == why);
        const auto goodbye = raw.hear_frame();
        REQUIRE(goodbye);
        CHECK(goodbye->header.opcode == Opcode::disconnect);
        CHECK(goodbye->header.immediate == static_cast<std::uint32_t>(disconnect_reason(why)));
        CHECK(raw.at_end());
    }
    RawPeer raw;
};

inline std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed = 1) {
    Random random(seed);
    std::vector<std::byte> result(bytes);
    for (std::byte& b : result) b = static_cast<std::byte>(random.next());
    return result;
}

}  // namespace rtrs::tcp::test
