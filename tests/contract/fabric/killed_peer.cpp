// What the death of the other process means, for fabrics that reach from process to process.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/contract/fabric/pair.h"
#include "tests/skip.h"

namespace rtrs::contract {
namespace {

constexpr const char* address_pipe = "RNBD_CONTRACT_ADDRESS_PIPE";
constexpr const char* server_case = "a server that accepts whatever comes until it is killed";
constexpr int exit_skipped = 77;

}  // namespace

// Not a test: what the one below runs as a process of its own. A device's memory and files do not
// survive a fork, so it is this program, started again.
TEST_CASE(server_case, "[.]") {
    const char* pipe_number = std::getenv(address_pipe);
    if (pipe_number == nullptr) return;
    const auto fabric = make_under_test();
    auto domain = got(fabric->server().create_domain());
    std::vector<std::unique_ptr<Peer>> peers;
    Acceptor acceptor;
    acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        peers.push_back(std::make_unique<Peer>());
        Peer& peer = *peers.back();
        peer.endpoint = got(request->accept(*domain, {}, EndpointOptions{}, peer));
        for (std::uint64_t i = 0; i < 64; ++i) peer.receive({}, i);
    };
    auto listener = got(fabric->server().listen(fabric->server_address(), acceptor));
    const std::string address = listener->address();
    const int fd = std::atoi(pipe_number);
    if (write(fd, address.data(), address.size()) < 0) _exit(1);
    ::close(fd);
    // Its parent kills it; should that have died, its pipe's end says nothing: so not for ever.
    fabric->pump_until([] { return false; });
    _exit(1);
}

TEST_CASE("P4: when the peer's process is killed, this side is told and drains (own process)") {
    std::array<int, 2> pipes{};
    REQUIRE(pipe(pipes.data()) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::close(pipes[0]);
        setenv(address_pipe, std::to_string(pipes[1]).c_str(), 1);
        execl("/proc/self/exe", "contract_fabric", server_case, nullptr);
        _exit(1);
    }
    ::close(pipes[1]);
    std::array<char, 64> text{};
    const ssize_t bytes = read(pipes[0], text.data(), text.size());
    ::close(pipes[0]);
    if (bytes <= 0) {
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == exit_skipped) {
            rnbd::testing::skip("the server cannot be here");
            return;
        }
    }
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
