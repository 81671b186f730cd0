// P4 and P5: how connections come to be, or not.
#include <catch2/catch.hpp>

#include "tests/contract/fabric/pair.h"

using namespace rtrs;
using namespace rtrs::contract;

namespace {

std::vector<std::byte> data_of(std::size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i + 1);
    return data;
}

// P5: trailing zeros are allowed.
bool same_but_zeros(const std::vector<std::byte>& sent, const std::vector<std::byte>& seen) {
    if (seen.size() < sent.size()) return false;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] != (i < sent.size() ? sent[i] : std::byte{0})) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("P5: a request carries up to 56 bytes of private data, a reply up to 196") {
    const auto [request, reply] = GENERATE(std::pair<std::size_t, std::size_t>{0, 0},
                                           std::pair<std::size_t, std::size_t>{1, 1},
                                           std::pair<std::size_t, std::size_t>{56, 196});
    Pair pair;
    pair.reply_data = data_of(reply);
    pair.dial(data_of(request));
    pair.pump([&] { return pair.client.established == 1 && pair.server.established == 1; });
    CHECK(same_but_zeros(data_of(request), pair.request_data));
    CHECK(pair.request_data.size() <= private_data_request_max);
    CHECK(same_but_zeros(data_of(reply), pair.client.private_data));
    CHECK(pair.client.private_data.size() <= private_data_reply_max);
}

TEST_CASE("P5: a request with 57 bytes of private data is refused with EMSGSIZE") {
    Pair pair;
    const auto data = data_of(57);
    auto endpoint = pair.under->client().connect(*pair.client_domain, "", pair.address, data,
                                                 EndpointOptions{}, pair.client);
    REQUIRE(!endpoint);
    CHECK(endpoint.error() == from_errno(EMSGSIZE));
}

TEST_CASE("P4: a rejected request ends in on_rejected with the peer's data, then on_drained") {
    const std::size_t bytes = GENERATE(0, 1, 148);
    Pair pair;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        const Calling calling;
        request->reject(data_of(bytes));
    };
    pair.dial({});
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.rejected == 1);
    CHECK(pair.client.disconnected == 0);
    CHECK(same_but_zeros(data_of(bytes), pair.client.private_data));
}

TEST_CASE("P4: a connect request that is destroyed unanswered is rejected without data") {
    Pair pair;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        const Calling calling;
        request.reset();
    };
    pair.dial({});
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.rejected == 1);
    CHECK(same_but_zeros({}, pair.client.private_data));
}

TEST_CASE("P4: where nobody listens, on_disconnected is the first event and on_drained the last") {
    Pair pair;
    pair.address = pair.under->deserted_address();
    pair.dial({});
    REQUIRE(!pair.client.receive({}, 77));
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.established == 0);
    CHECK(pair.client.disconnected == 1);
    CHECK(pair.client.reason);
    REQUIRE(pair.client.completions.size() == 1);
    CHECK(pair.client.completions[0].status == CompletionStatus::flushed);
}

TEST_CASE("P4: a request that is kept is answered later") {
    Pair pair;
    std::unique_ptr<ConnectRequest> kept;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        kept = std::move(request);
    };
    pair.dial(data_of(5));
    pair.pump([&] { return kept != nullptr; });
    pair.under->settle();
    CHECK(!pair.client.was_connected());
    CHECK(kept->remote_address().starts_with(pair.under->client_host() + ":"));
    pair.server.endpoint =
        got(kept->accept(*pair.server_domain, {}, EndpointOptions{}, pair.server));
    kept.reset();
    pair.pump([&] { return pair.client.established == 1 && pair.server.established == 1; });
}

TEST_CASE("P4: a request that was accepted cannot be rejected any more") {
    Pair pair;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        const Calling calling;
        pair.server.endpoint =
            got(request->accept(*pair.server_domain, {}, EndpointOptions{}, pair.server));
        request->reject(data_of(1));
    };
    pair.dial({});
    pair.pump([&] { return pair.client.established == 1 && pair.server.established == 1; });
    pair.under->settle();
    CHECK(pair.client.rejected == 0);
    CHECK(pair.client.disconnected == 0);
}

TEST_CASE("P4: disconnect() before the answer ends the attempt") {
    Pair pair;
    std::unique_ptr<ConnectRequest> kept;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        kept = std::move(request);
    };
    pair.dial({});
    pair.pump([&] { return kept != nullptr; });
    pair.client.disconnect();
    pair.pump([&] { return pair.client.drained == 1; });
    CHECK(pair.client.established == 0);
    CHECK(pair.client.disconnected == 1);
    CHECK(!pair.client.reason);
    pair.under->settle();
    // Too late: either refused at once, or it ends by itself.
    auto accepted = kept->accept(*pair.server_domain, {}, EndpointOptions{}, pair.server);
    if (!accepted) {
        CHECK(accepted.error() == from_errno(ECONNRESET));
        return;
    }
    pair.server.endpoint = std::move(*accepted);
    pair.pump([&] { return pair.server.drained == 1; });
}

TEST_CASE("connect and listen: addresses that are not understood are refused with EINVAL") {
    const std::string bad =
        GENERATE(as<std::string>{}, "", "nonsense", "10.0.0.1", "10.0.0.1:", ":1", "10.0.0.1:99999",
                 "10.0.0.1:x", "::1:80", "[::1]");
    Pair pair;
    auto endpoint = pair.under->client().connect(*pair.client_domain, "", bad, {},
                                                 EndpointOptions{}, pair.client);
    REQUIRE(!endpoint);
    CHECK(endpoint.error() == from_errno(EINVAL));
    auto listener = pair.under->server().listen(bad, pair.acceptor);
    REQUIRE(!listener);
    CHECK(listener.error() == from_errno(EINVAL));
}

TEST_CASE("listen: an address that is taken is refused with EADDRINUSE, and free again later") {
    Pair pair;
    auto second = pair.under->server().listen(pair.address, pair.acceptor);
    REQUIRE(!second);
    CHECK(second.error() == from_errno(EADDRINUSE));
    pair.listener.reset();
    CHECK(pair.under->server().listen(pair.address, pair.acceptor).has_value());
}

TEST_CASE("listen: destroying the listener ends listening, not the connections") {
    Pair pair;
    pair.connect();
    pair.listener.reset();
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write_immediate, .immediate = 3}));
    pair.pump([&] { return pair.server.receives == 1; });
    Peer late;
    late.endpoint = got(pair.under->client().connect(*pair.client_domain, "", pair.address, {},
                                                     EndpointOptions{}, late));
    pair.pump([&] { return late.drained == 1; });
    CHECK(late.established == 0);
}

TEST_CASE("connect: both sides name both addresses; the source is as asked for") {
    Pair pair;
    pair.client.endpoint =
        got(pair.under->client().connect(*pair.client_domain, pair.under->client_host(),
                                         pair.address, {}, EndpointOptions{}, pair.client));
    CHECK(pair.client.endpoint->local_address().empty());
    pair.pump([&] { return pair.client.established == 1 && pair.server.established == 1; });
    CHECK(pair.client.endpoint->remote_address() == pair.address);
    CHECK(pair.server.endpoint->local_address() == pair.address);
    CHECK(pair.client.endpoint->local_address() == pair.server.endpoint->remote_address());
    CHECK(pair.client.endpoint->local_address().starts_with(pair.under->client_host() + ":"));
}

TEST_CASE("connect: 64 connections at once, each with its own traffic") {
    constexpr std::size_t count = 64;
    Pair pair;
    std::vector<std::unique_ptr<Peer>> clients;
    std::vector<std::unique_ptr<Peer>> servers;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        servers.push_back(std::make_unique<Peer>());
        Peer& peer = *servers.back();
        peer.endpoint = got(request->accept(*pair.server_domain, {}, EndpointOptions{}, peer));
        for (int i = 0; i < 4; ++i) peer.receive({}, 0);
    };
    for (std::size_t i = 0; i < count; ++i) {
        clients.push_back(std::make_unique<Peer>());
        Peer& peer = *clients.back();
        peer.endpoint = got(pair.under->client().connect(*pair.client_domain, "", pair.address, {},
                                                         EndpointOptions{}, peer));
        peer.when_established = [&peer, i] {
            for (std::uint32_t n = 0; n < 4; ++n) {
                peer.post({.opcode = WorkOpcode::write_immediate,
                           .signal = Signal::completion,
                           .immediate = static_cast<std::uint32_t>(i * 4 + n)});
            }
        };
    }
    const auto everywhere = [](auto& peers, auto&& holds) {
        return peers.size() == count && std::all_of(peers.begin(), peers.end(), holds);
    };
    pair.pump([&] {
        return everywhere(servers, [](const auto& peer) { return peer->receives == 4; }) &&
               everywhere(clients, [](const auto& peer) { return peer->sends == 4; });
    });
    std::set<std::uint32_t> seen;
    for (const auto& server : servers) {
        for (std::uint32_t n = 0; n < 4; ++n) {
            CHECK(server->completions[n].immediate == server->completions[0].immediate + n);
            seen.insert(server->completions[n].immediate);
        }
    }
    CHECK(seen.size() == count * 4);
    for (const auto& client : clients) client->disconnect();
    pair.pump([&] {
        const auto drained = [](const auto& peer) { return peer->drained == 1; };
        return everywhere(servers, drained) && everywhere(clients, drained);
    });
}
