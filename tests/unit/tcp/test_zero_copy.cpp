// Sends without a copy: what is sent is what was posted, and memory comes back when the kernel has
// let go of it. Between sockets of one machine the kernel copies what has come and holds what has
// not, so both are seen here.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "raw_peer.h"

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
        WARN("SKIPPED: this kernel sends nothing without a copy, or does not say so");
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

TEST_CASE("zero copy: the memory is given back at the end, though the peer took nothing") {
    ZeroCopyServer server;
    // More than the sockets take: the rest stays with the kernel, not copied yet.
    server.data = noise(8u << 20);
    for (std::uint64_t i = 0; i < 8; ++i) server.post(i, 8u << 20);
    for (int i = 0; i < 20; ++i) server.reactor->run_once(Duration::zero());
    CHECK(server.did().zero_copies >= 1);
    CHECK(server.peer().completions.size() < 8);
    server.peer().endpoint->disconnect();
    pump(*server.reactor, [&] { return server.peer().drained == 1; });
    CHECK(server.peer().completions.size() == 9);  // and the receive
    // Nothing of it is sent any more, and so nothing that is written here now.
    std::ranges::fill(server.data, std::byte{0});
    const auto heard = server.raw.hear(64u << 20);
    CHECK(heard.size() < (8u << 20) * 8);
    CHECK(std::equal(heard.begin() + header_bytes,
                     heard.begin() + static_cast<std::ptrdiff_t>(
                                         std::min<std::size_t>(heard.size(), header_bytes + 1000)),
                     noise(8u << 20).begin()));
}
