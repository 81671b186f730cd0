#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

#include "tests/contract/fabric/pair.h"
#include "tests/contract/fabric/tcp_under_test.h"

namespace rtrs::contract {

std::unique_ptr<FabricUnderTest> make_under_test() { return std::make_unique<TcpUnderTest>(); }

namespace {

// A server process of its own: accepts whatever comes, until it is killed.
[[noreturn]] void serve(int address_pipe) {
    TcpUnderTest fabric;
    auto domain = fabric.server().create_domain().value();
    std::vector<std::unique_ptr<Peer>> peers;
    Acceptor acceptor;
    acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        peers.push_back(std::make_unique<Peer>());
        Peer& peer = *peers.back();
        auto accepted = request->accept(*domain, {}, EndpointOptions{}, peer);
        if (!accepted) _exit(1);
        peer.endpoint = std::move(*accepted);
        for (std::uint64_t i = 0; i < 64; ++i) peer.receive({}, i);
    };
    auto listener = fabric.server().listen(fabric.server_address(), acceptor);
    if (!listener) _exit(1);
    const std::string address = (*listener)->address();
    if (write(address_pipe, address.data(), address.size()) < 0) _exit(1);
    close(address_pipe);
    // Its parent kills it; should that have died, its pipe's end says nothing: so not for ever.
    fabric.pump_until([] { return false; });
    _exit(1);
}

}  // namespace

TEST_CASE("P4: when the peer's process is killed, this side is told and drains (own process)") {
    std::array<int, 2> pipes{};
    REQUIRE(pipe(pipes.data()) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(pipes[0]);
        serve(pipes[1]);
    }
    close(pipes[1]);
    std::array<char, 64> text{};
    const ssize_t bytes = read(pipes[0], text.data(), text.size());
    close(pipes[0]);
    REQUIRE(bytes > 0);

    Pair pair;
    pair.address.assign(text.data(), static_cast<std::size_t>(bytes));
    pair.dial({});
    pair.pump([&] { return pair.client.established == 1; });
    for (std::uint64_t i = 0; i < 8; ++i) {
        REQUIRE(!pair.client.post(
            {.opcode = WorkOpcode::write_immediate, .signal = Signal::completion, .context = i}));
        REQUIRE(!pair.client.receive({}, 100 + i));
    }
    pair.pump([&] { return pair.client.sends > 0; });
    kill(child, SIGKILL);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.disconnected == 1);
    CHECK(pair.client.reason);
    CHECK(pair.client.count(CompletionStatus::flushed) >= 8);
}

}  // namespace rtrs::contract
