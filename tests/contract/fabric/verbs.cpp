// The verbs fabric for the contract suite: both sides on one device of this machine, which
// RNBD_RDMA_HOST names by its address; else the first address that leads to one.
#include <ifaddrs.h>
#include <netdb.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "rtrs/fabrics.h"
#include "tests/contract/fabric/pair.h"
#include "tests/print_tracer.h"
#include "tests/skip.h"

namespace rtrs::contract {
namespace {

[[noreturn]] void skip(const std::string& why) {
    std::cerr << "skipped: " << why << '\n';
    std::exit(77);
}

std::vector<std::string> hosts() {
    if (const char* named = std::getenv("RNBD_RDMA_HOST")) return {named};
    std::vector<std::string> found;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return found;
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
        char host[NI_MAXHOST];
        if (getnameinfo(each->ifa_addr, sizeof(sockaddr_in), host, sizeof host, nullptr, 0,
                        NI_NUMERICHOST) == 0) {
            found.emplace_back(host);
        }
    }
    freeifaddrs(list);
    return found;
}

class VerbsUnderTest : public FabricUnderTest {
  public:
    VerbsUnderTest() : reactor_(make_reactor()) {
        for (const std::string& host : hosts()) {
            auto fabric = make_verbs_fabric(*reactor_, {.local_host = host, .tracer = &tracer_});
            if (!fabric) continue;
            if (!(*fabric)->create_domain()) skip("the RDMA device at " + host + " cannot do RTRS");
            host_ = host;
            client_ = std::move(*fabric);
            server_ = got(make_verbs_fabric(*reactor_, {.local_host = host, .tracer = &tracer_}));
            return;
        }
        skip("no RDMA device: none of this machine's addresses leads to one");
    }

    Fabric& client() override { return *client_; }
    Fabric& server() override { return *server_; }
    std::string server_address() const override { return host_ + ":0"; }
    std::string client_host() const override { return host_; }
    std::string deserted_address() const override { return host_ + ":9"; }
    bool enforces_window_bounds() const override { return std::getenv("RNBD_RDMA_RXE") == nullptr; }
    bool has_remote_invalidation() const override { return false; }
    bool tells_why() const override { return false; }

    bool pump_until(const std::function<bool()>& done) override {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            reactor_->run_once(std::chrono::milliseconds(100));
        }
        return true;
    }
    void settle() override {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
        while (std::chrono::steady_clock::now() < end) {
            reactor_->run_once(std::chrono::milliseconds(10));
        }
    }

  private:
    static std::unique_ptr<Reactor> make_reactor() {
        auto reactor = Reactor::create();
        if (reactor) {
            if (std::getenv("RNBD_RDMA_BUSY_POLL") != nullptr) {
                (*reactor)->set_busy_poll(std::chrono::milliseconds(1));
            }
            return std::move(*reactor);
        }
        skip("no reactor: " + reactor.error().message());
    }

    testing::PrintTracer tracer_;
    std::unique_ptr<Reactor> reactor_;
    std::string host_;
    std::unique_ptr<Fabric> client_, server_;
};

}  // namespace

std::unique_ptr<FabricUnderTest> make_under_test() { return std::make_unique<VerbsUnderTest>(); }

namespace {

// What all programs have on the machine's devices: "... pd 1 cq 1 qp 1 cm_id 0 mr 0 ...".
std::string device_use() {
    std::string text;
    FILE* pipe = popen("rdma resource show 2>/dev/null", "r");
    if (pipe == nullptr) return text;
    char line[256];
    while (fgets(line, sizeof line, pipe) != nullptr) text += line;
    pclose(pipe);
    return text;
}

std::size_t windows_revoked(const Peer& peer) { return peer.count(CompletionOpcode::revoke); }

}  // namespace

TEST_CASE("what connections, regions and windows took of the device, they give back") {
    auto under = make_under_test();  // keeps the device open
    const std::string before = device_use();
    if (before.empty()) {
        rnbd::testing::skip("no rdma(8) here");
        return;
    }
    for (int round = 0; round < 5; ++round) {
        Pair pair;
        pair.connect();
        auto windows = got(pair.server_domain->create_windows(*pair.server_region, 1));
        const MemoryWindow window{windows.get()};
        const Segment range = pair.server_memory.segment(0, 4096);
        REQUIRE(!pair.server.post(
            {.opcode = WorkOpcode::bind_window, .local = {&range, 1}, .window = window}));
        (round % 2 == 0 ? pair.client : pair.server).disconnect();
        pair.pump_drained();
    }
    CHECK(device_use() == before);
}

TEST_CASE("post_revoke: more at a time than the send queue has places for wait in turn") {
    constexpr std::uint32_t count = 300;
    const bool disconnect = GENERATE(false, true);
    Pair pair({.endpoint = {.send_queue_depth = 4, .receive_queue_depth = 64}});
    pair.connect();
    auto windows = got(pair.server_domain->create_windows(*pair.server_region, count));
    const Segment range = pair.server_memory.segment(0, 4096);
    for (std::uint32_t i = 0; i < count; ++i) {
        pair.pump([&] {
            return !pair.server.post({.opcode = WorkOpcode::bind_window,
                                      .signal = Signal::completion,
                                      .local = {&range, 1},
                                      .window = {windows.get(), i}});
        });
    }
    pair.pump([&] { return pair.server.sends == count; });
    for (std::uint32_t i = 0; i < count; ++i) pair.server.revoke({windows.get(), i});
    CHECK(pair.server.revokes_pending == count);
    // They leave works their places.
    const Segment answer = pair.server_memory.segment(0, 64);
    for (std::uint32_t i = 0; i < 4; ++i) {
        CHECK(!pair.server.post({.opcode = WorkOpcode::write,
                                 .signal = Signal::completion,
                                 .local = {&answer, 1},
                                 .remote = pair.client_region->remote(0, 0)}));
    }
    if (disconnect) pair.server.disconnect();
    pair.pump([&] { return windows_revoked(pair.server) == count; });
    if (disconnect) return;
    // Each of them is dead.
    const Segment source = pair.client_memory.segment(0, 64);
    RemoteBuffer remote = pair.server_region->remote(0, 0);
    remote.key = windows->key(count - 1);
    REQUIRE(!pair.client.post({.opcode = WorkOpcode::write,
                               .signal = Signal::completion,
                               .local = {&source, 1},
                               .remote = remote}));
    pair.pump_drained();
    CHECK(pair.client.reason == Error::remote_access);
}

TEST_CASE("post_revoke: a window whose connection went down is dead, and can be bound again") {
    Pair pair;
    pair.connect();
    auto windows = got(pair.server_domain->create_windows(*pair.server_region, 1));
    const MemoryWindow window{windows.get()};
    const Segment range = pair.server_memory.segment(0, 4096);
    REQUIRE(!pair.server.post({.opcode = WorkOpcode::bind_window,
                               .signal = Signal::completion,
                               .local = {&range, 1},
                               .window = window}));
    pair.pump([&] { return pair.server.sends == 1; });
    RemoteBuffer remote = pair.server_region->remote(0, 0);
    remote.key = window.key();
    pair.server.disconnect();
    CHECK(pair.server.endpoint->post_revoke(window, 1) == RevokeResult::effective);
    pair.pump_drained();

    // Another connection of the same domains.
    Peer client;
    Peer server;
    pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
        server.endpoint = got(request->accept(*pair.server_domain, {}, {}, server));
    };
    client.endpoint =
        got(pair.under->client().connect(*pair.client_domain, "", pair.address, {}, {}, client));
    pair.pump([&] { return client.established == 1 && server.established == 1; });
    const Segment source = pair.client_memory.segment(0, 64);
    REQUIRE(!server.post({.opcode = WorkOpcode::bind_window,
                          .signal = Signal::completion,
                          .local = {&range, 1},
                          .window = window}));
    pair.pump([&] { return server.sends == 1; });
    RemoteBuffer fresh = remote;
    fresh.key = window.key();
    CHECK(fresh.key != remote.key);
    const auto write = [&](const RemoteBuffer& to) {
        return client.post({.opcode = WorkOpcode::write,
                            .signal = Signal::completion,
                            .local = {&source, 1},
                            .remote = to});
    };
    REQUIRE(!write(fresh));
    pair.pump([&] { return client.sends == 1; });
    REQUIRE(!write(remote));
    pair.pump([&] { return client.drained == 1 && server.drained == 1; });
    CHECK(client.reason == Error::remote_access);
}

TEST_CASE("a segment that lies in no region is refused with EFAULT") {
    Pair pair;
    pair.connect();
    std::byte elsewhere[300];
    const Segment segment{elsewhere, sizeof elsewhere};
    CHECK(pair.client.post({.opcode = WorkOpcode::send, .local = {&segment, 1}}) ==
          from_errno(EFAULT));
    CHECK(pair.client.endpoint->post_receive(1000, segment) == from_errno(EFAULT));
    pair.under->settle();
    CHECK(pair.client.disconnected == 0);
}

TEST_CASE("several devices: the fabric's address chooses one, and others' addresses are refused") {
    const char* other_host = std::getenv("RNBD_RDMA_OTHER_HOST");
    if (other_host == nullptr) {
        rnbd::testing::skip("RNBD_RDMA_OTHER_HOST names no address of a second device");
        return;
    }
    Pair pair;
    const auto there = pair.under->client().listen(std::string(other_host) + ":0", pair.acceptor);
    REQUIRE(!there);
    CHECK(there.error() == from_errno(ENODEV));
    SECTION("from there") {
        pair.client.endpoint = got(pair.under->client().connect(
            *pair.client_domain, other_host, std::string(other_host) + ":9", {}, {}, pair.client));
        pair.pump([&] { return pair.client.drained == 1; });
        CHECK(pair.client.reason == from_errno(ENODEV));
    }
    SECTION("a fabric of its own reaches it") {
        auto reactor = got(Reactor::create());
        auto fabric = got(make_verbs_fabric(*reactor, {.local_host = other_host}));
        auto listener = fabric->listen(std::string(other_host) + ":0", pair.acceptor);
        CHECK(listener.has_value());
    }
}

TEST_CASE("make_verbs_fabric: an address that leads to no device is refused") {
    auto reactor = got(Reactor::create());
    const auto nowhere = make_verbs_fabric(*reactor, {.local_host = "192.0.2.1"});
    REQUIRE(!nowhere);
    CHECK(nowhere.error() == from_errno(ENODEV));
    const auto nonsense = make_verbs_fabric(*reactor, {.local_host = "nonsense"});
    REQUIRE(!nonsense);
    CHECK(nonsense.error() == from_errno(EINVAL));
}

// For a guest alone: take the machine's device away.

namespace {

struct SoftDevice {
    SoftDevice() {
        const char* name = std::getenv("RNBD_RDMA_RXE");
        const char* wire = std::getenv("RNBD_RDMA_WIRE");
        if (name == nullptr || wire == nullptr) skip("RNBD_RDMA_RXE names no device to remove");
        remove = std::string("rdma link delete ") + name;
        add = std::string("rdma link add ") + name + " type rxe netdev " + wire;
    }
    std::string remove;
    std::string add;
};

}  // namespace

TEST_CASE("P4: when the device is removed, both sides are told and drain", "[.][removal]") {
    const SoftDevice device;
    Pair pair;
    pair.connect();
    const Segment source = pair.client_memory.segment(0, 65536);
    for (std::uint64_t i = 0; i < 100; ++i) {
        REQUIRE(!pair.client.post({.opcode = WorkOpcode::write,
                                   .context = i,
                                   .local = {&source, 1},
                                   .remote = pair.server_region->remote(0, 0)}));
    }
    // It waits until this process has let go of the device.
    REQUIRE(std::system((device.remove + " &").c_str()) == 0);
    pair.pump_drained();
    // Who is told first ends its side, which the other may hear before it is told, too.
    const auto removed = [](const Peer& peer) { return peer.reason == from_errno(ENODEV); };
    CHECK((removed(pair.client) || removed(pair.server)));
    for (const Peer* peer : {&pair.client, &pair.server}) {
        CHECK((removed(*peer) || peer->reason == Error::closed_by_peer));
    }
    pair.pump([&] { return !pair.under->client().create_domain().has_value(); });
    CHECK(pair.under->client().create_domain().error() == from_errno(ENODEV));
    auto late =
        pair.under->client().connect(*pair.client_domain, "", pair.address, {}, {}, pair.client);
    REQUIRE(!late);
    CHECK(late.error() == from_errno(ENODEV));
    CHECK(pair.under->client().device().empty());
    // For the next one. The device is gone when its name is free.
    pair.pump([&] { return std::system((device.add + " 2>/dev/null").c_str()) == 0; });
}

namespace {

// The same domains, regions and listener serve a connection: a window is bound, the client writes
// through it, and reads nothing but what was written.
void serve_again(Pair& pair, MemoryWindow window, Key dead_key) {
    std::vector<std::unique_ptr<Peer>> attempts;  // client, server, client, server...
    pair.pump([&] {
        for (int side = 0; side < 2; ++side) attempts.push_back(std::make_unique<Peer>());
        Peer& client = **(attempts.end() - 2);
        Peer& server = *attempts.back();
        pair.acceptor.requested = [&](std::unique_ptr<ConnectRequest> request) {
            auto accepted = request->accept(*pair.server_domain, {}, {}, server);
            if (accepted) server.endpoint = std::move(*accepted);
        };
        auto dialled =
            pair.under->client().connect(*pair.client_domain, "", pair.address, {}, {}, client);
        if (!dialled) {
            CHECK(dialled.error() == from_errno(ENODEV));
            attempts.resize(attempts.size() - 2);
            return false;
        }
        client.endpoint = std::move(*dialled);
        pair.pump([&] {
            return client.drained == 1 || (client.established == 1 && server.established == 1);
        });
        if (client.drained == 0) return true;
        // The client's side found the device before the server's.
        pair.pump([&] { return !server.endpoint || server.drained == 1; });
        return false;
    });
    Peer& client = **(attempts.end() - 2);
    Peer& server = *attempts.back();
    const Segment range = pair.server_memory.segment(0, 4096);
    REQUIRE(!server.post({.opcode = WorkOpcode::bind_window,
                          .signal = Signal::completion,
                          .local = {&range, 1},
                          .window = window}));
    pair.pump([&] { return server.sends == 1; });
    const Segment source = pair.client_memory.segment(0, 64);
    std::fill_n(source.data, 64, std::byte{0x5a});
    std::fill_n(range.data, 64, std::byte{0});
    RemoteBuffer remote = pair.server_region->remote(0, 0);
    const auto write = [&](Key key) {
        remote.key = key;
        return client.post({.opcode = WorkOpcode::write,
                            .signal = Signal::completion,
                            .local = {&source, 1},
                            .remote = remote});
    };
    REQUIRE(!write(window.key()));
    pair.pump([&] { return client.sends == 1; });
    CHECK(std::equal(source.data, source.data + 64, range.data));
    REQUIRE(!write(pair.server_region->key()));
    pair.pump([&] { return client.sends == 2; });
    // What was given out for the old device opens nothing.
    if (dead_key != window.key() && dead_key != pair.server_region->key()) {
        REQUIRE(!write(dead_key));
        pair.pump([&] { return client.drained == 1; });
        CHECK(client.reason == Error::remote_access);
    }
    client.disconnect();
    server.disconnect();
    pair.pump([&] { return client.drained == 1 && server.drained == 1; });
}

}  // namespace

TEST_CASE("a device that was removed and is back is found again", "[.][removal]") {
    const SoftDevice device;
    Pair pair;
    auto windows = got(pair.server_domain->create_windows(*pair.server_region, 1));
    const MemoryWindow window{windows.get()};
    pair.connect();
    const Segment range = pair.server_memory.segment(0, 4096);
    REQUIRE(!pair.server.post({.opcode = WorkOpcode::bind_window,
                               .signal = Signal::completion,
                               .local = {&range, 1},
                               .window = window}));
    pair.pump([&] { return pair.server.sends == 1; });
    for (int round = 0; round < 3; ++round) {
        const Key key = window.key();
        // It waits until this process has let go of the device.
        REQUIRE(std::system(("(" + device.remove + "; sleep 1; " + device.add + ") &").c_str()) ==
                0);
        if (round == 0) pair.pump_drained();
        pair.pump([&] { return !pair.under->client().create_domain().has_value(); });
        serve_again(pair, window, key);
    }
}

}  // namespace rtrs::contract
