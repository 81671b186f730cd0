// Sends without a copy: what is sent is what was posted, and memory comes back when the kernel has
// let go of it. Between sockets of one machine the kernel copies what has come and holds what has
// not, so both are seen here.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "raw_peer.h"
#include "tests/skip.h"

using namespace rtrs;
using namespace rtrs::tcp;
using namespace rtrs::tcp::test;

namespace {

constexpr std::uint32_t large_bytes = 512u << 10;

TcpFabricOptions without_copies() {
    TcpFabricOptions options;
    options.zero_copy = TcpFabricOptions::ZeroCopy::on;
    return options;
}

struct ZeroCopyServer : ServerUnderTest {
    explicit ZeroCopyServer(TcpFabricOptions options = without_copies())
        : ServerUnderTest(options), raw(*this), data(noise(large_bytes)) {
        silence_max = std::chrono::hours(1);  // the kernel gives nothing up by itself
        REQUIRE(raw.greet());
        REQUIRE(raw.hear_frame());
        pump(*reactor, [&] { return peer().established == 1; });
    }
    void post(std::uint64_t context, std::uint32_t bytes) {
        const Segment segment{data.data(), bytes};
        const WorkRequest send{.opcode = WorkOpcode::send,
                               .signal = Signal::completion,
                               .context = context,
                               .local = {&segment, 1}};
        REQUIRE(!peer().endpoint->post({&send, 1}));
    }
    const Reactor::Statistics& did() const { return reactor->statistics(); }

    RawPeer raw;
    std::vector<std::byte> data;
};

}  // namespace

TEST_CASE("zero copy: payloads of all sizes arrive whole and in order, until the kernel copies") {
    ZeroCopyServer server;
    const std::vector<std::uint32_t> sizes{large_bytes, 10,          64u << 10, (64u << 10) - 1,
                                           0,           large_bytes, 70u << 10};
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < sizes.size(); ++i) server.post(i, sizes[i]);
        for (const std::uint32_t bytes : sizes) {
            const auto heard = server.raw.hear_frame();
            REQUIRE(heard);
            CHECK(heard->payload.size() == bytes);
            CHECK(std::equal(heard->payload.begin(), heard->payload.end(), server.data.begin()));
        }
        auto& completions = server.peer().completions;
        pump(*server.reactor, [&] { return completions.size() == sizes.size(); });
        for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(completions[i].context == i);
        completions.clear();
    }
    if (server.did().zero_copies == 1 && server.did().zero_copies_copied == 0) {
        rnbd::testing::skip_part("this kernel sends nothing without a copy, or does not say so");
        return;
    }
    // The first report gave it up.
    CHECK(server.did().zero_copies_copied >= 1);
    CHECK(server.did().zero_copies <= 4);
}

TEST_CASE("zero copy: nobody who did not ask for it gets it") {
    ZeroCopyServer server{TcpFabricOptions{}};
    server.post(1, large_bytes);
    REQUIRE(server.raw.hear_frame());
    CHECK(server.did().zero_copies == 0);
}

TEST_CASE(
    "zero copy: reads are answered with a copy, since a peer may be quicker than the kernel") {
    ZeroCopyServer server;
    FrameHeader request;
    request.opcode = Opcode::read_request;
    request.address = reinterpret_cast<std::uint64_t>(server.region->data());
    request.key = server.region->key();
    std::array<std::byte, read_request_bytes> wanted;
    emit_read_request({large_bytes, 1}, wanted.data());
    REQUIRE(server.raw.say(frame(request, wanted)));
    const auto heard = server.raw.hear_frame();
    REQUIRE(heard);
    CHECK(heard->payload.size() == large_bytes);
    CHECK(!server.region->being_read());
    CHECK(server.did().zero_copies == 0);
}

TEST_CASE("zero copy: what was on its way at an end that was asked for arrives, and the reason") {
    ZeroCopyServer server;
    server.post(1, large_bytes);
    pump(*server.reactor, [&] { return server.did().zero_copies == 1; });
    server.reactor->run_once(Duration::zero());
    server.peer().endpoint->disconnect();
    const auto heard = server.raw.hear_frame();
    REQUIRE(heard);
    CHECK(std::ranges::equal(heard->payload, server.data));
    const auto goodbye = server.raw.hear_frame();
    REQUIRE(goodbye);
    CHECK(goodbye->header.opcode == Opcode::disconnect);
}

TEST_CASE("zero copy: the memory is given back at the end, though the peer took nothing") {
    ZeroCopyServer server;
    // More than the sockets take: the rest stays with the kernel, not copied yet.
    constexpr std::uint32_t bytes = 8u << 20;
    server.data = noise(bytes);
    for (std::uint64_t i = 0; i < 8; ++i) server.post(i, bytes);
    for (int i = 0; i < 20; ++i) server.reactor->run_once(Duration::zero());
    CHECK(server.did().zero_copies >= 1);
    CHECK(server.peer().completions.size() < 8);
    server.peer().endpoint->disconnect();
    pump(*server.reactor, [&] { return server.peer().drained == 1; });
    CHECK(server.peer().completions.size() == 9);  // and the receive
    // Nothing of it is sent any more, and so nothing that is written here now.
    const std::vector<std::byte> before = server.data;
    std::ranges::fill(server.data, std::byte{0});
    const auto heard = server.raw.hear(8 * (std::size_t{bytes} + header_bytes));
    CHECK(heard.size() < 8 * std::size_t{bytes});
    for (std::size_t at = 0; at < heard.size(); at += header_bytes + bytes) {
        const std::size_t begin = std::min(at + header_bytes, heard.size());
        const std::size_t end = std::min(begin + bytes, heard.size());
        CHECK(std::equal(heard.begin() + static_cast<std::ptrdiff_t>(begin),
                         heard.begin() + static_cast<std::ptrdiff_t>(end), before.begin()));
    }
}

namespace {

// In a process of its own: holds memory of sends that nobody takes, and a lock of a registered
// file, until it is killed.
[[noreturn]] void hold(int pipe, const char* path) {
    ServerUnderTest server(without_copies());
    server.silence_max = std::chrono::hours(1);
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || ::flock(file, LOCK_EX) != 0) _exit(1);
    server.reactor->run_once(Duration::zero());
    (void)server.reactor->register_file(file);
    const std::string address = server.listener->address();
    if (::write(pipe, address.data(), address.size()) < 0) _exit(1);
    while (server.peers.empty() || server.peer().established == 0) {
        server.reactor->run_once(std::chrono::milliseconds(20));
    }
    std::vector<std::byte> data(8u << 20);
    const Segment segment{data.data(), static_cast<std::uint32_t>(data.size())};
    const WorkRequest send{.opcode = WorkOpcode::send, .local = {&segment, 1}};
    for (int i = 0; i < 8; ++i) {
        if (server.peer().endpoint->post({&send, 1})) _exit(1);
    }
    for (int i = 0; i < 20; ++i) server.reactor->run_once(std::chrono::milliseconds(1));
    if (::write(pipe, "held", 4) < 0) _exit(1);
    for (int i = 0; i < 60; ++i) server.reactor->run_once(std::chrono::seconds(1));
    _exit(1);
}

std::string told(int pipe) {
    std::array<char, 64> text{};
    const ssize_t bytes = ::read(pipe, text.data(), text.size());
    REQUIRE(bytes > 0);
    return {text.data(), static_cast<std::size_t>(bytes)};
}

}  // namespace

TEST_CASE("zero copy: a killed process has its files claimed no longer, though nobody took it") {
    std::array<int, 2> pipes{};
    REQUIRE(::pipe(pipes.data()) == 0);
    char path[] = "/tmp/rnbd-held-XXXXXX";
    const int file = ::mkstemp(path);
    REQUIRE(file >= 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) hold(pipes[1], path);
    auto reactor = make_reactor();
    RawPeer raw(*reactor, told(pipes[0]));
    REQUIRE(raw.greet());
    REQUIRE(raw.hear_frame());
    REQUIRE(told(pipes[0]) == "held");
    CHECK(::flock(file, LOCK_EX | LOCK_NB) != 0);
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    pump(*reactor, [&] { return ::flock(file, LOCK_EX | LOCK_NB) == 0; });
    ::unlink(path);
    for (const int one : {pipes[0], pipes[1], file}) ::close(one);
}
