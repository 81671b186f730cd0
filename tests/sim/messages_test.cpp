// Messages with tags over whole sessions: each once and in order whatever happens to the paths,
// within bounded memory, and with nothing left registered.
#include <fmt/format.h>
#include <malloc.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <vector>

#include "rtrs/fabric/fault/faulty_fabric.h"
#include "rtrs/wire/tag.h"
#include "tests/sim/raw_peer.h"
#include "tests/sim/seeds.h"
#include "tests/sim/session_world.h"

using namespace simtest;

namespace {

constexpr Tag tags = 4;
constexpr TagPattern any{.tag = 0, .mask = 0};

// What a message of the test begins with; the rest repeats the number.
struct Stamp {
    std::uint64_t generation;
    std::uint64_t tag;
    std::uint64_t number;  // among those of its tag and generation, from 0
};

// One end: sends numbered messages, and checks what comes.
struct End {
    End(Findings& its_findings, Random& its_random, MessageService& its_service,
        const MessageOptions& its_options)
        : findings(its_findings),
          random(its_random),
          service(its_service),
          options(its_options),
          generation(random.next()) {}

    bool send() {
        const Tag tag = random.below(tags);
        const std::size_t bytes =
            sizeof(Stamp) + (random.chance(1, 3) ? random.below(8 * options.eager_bytes)
                                                 : random.below(options.eager_bytes / 2));
        MessageBuffer content(bytes);
        const Stamp stamp{generation, tag, next[tag]};
        std::ranges::fill(content.bytes(), static_cast<std::byte>(stamp.number));
        std::memcpy(content.bytes().data(), &stamp, sizeof stamp);
        const auto error = service.send(
            tag, std::move(content),
            [](void* self, std::error_code result) { static_cast<End*>(self)->sent(result); },
            this);
        if (error) return false;
        ++next[tag];
        ++made;
        return true;
    }

    void sent(std::error_code error) {
        ++(error ? failed : finished);
        findings.expect(!error || error == Error::path_lost || error == Error::closed,
                        "a send failed: " + error.message());
    }

    bool post(TagPattern pattern) {
        const auto id = service.receive(
            pattern, options.longest_bytes,
            [](void* self, const ReceivedMessage& message) {
                static_cast<End*>(self)->received(message);
            },
            this);
        if (!id) return false;
        ++posted;
        last = *id;
        return true;
    }

    void post_some() {
        if (posted > 20) return;
        const Tag tag = random.below(tags);
        post(random.chance(1, 4) ? any : TagPattern{.tag = tag});
        if (random.chance(1, 10) && service.cancel(last)) --posted;
    }

    // Also if what is posted waits for other tags.
    void wait_for_anything() {
        while ((posted < 10 || service.status().unexpected > 0) && post(any)) {
        }
    }

    void received(const ReceivedMessage& message) {
        --posted;
        if (message.error) {
            findings.expect(message.error == Error::path_lost || message.error == Error::closed,
                            "a receive failed: " + message.error.message());
            return;
        }
        Stamp stamp;
        findings.expect(message.content.size() >= sizeof stamp, "a message is too short");
        std::memcpy(&stamp, message.content.data(), sizeof stamp);
        findings.expect(stamp.tag == message.tag, "the tag is another one");
        if (stamp.generation != peer) {
            findings.expect(!old_peers.contains(stamp.generation), "a former life came back");
            old_peers[peer] = true;
            peer = stamp.generation;
            expected.clear();
            delivered = 0;
        }
        const std::uint64_t wanted = expected[message.tag]++;
        findings.expect(stamp.number == wanted, fmt::format("tag {}: {} came instead of {}",
                                                            message.tag, stamp.number, wanted));
        for (std::size_t i = sizeof stamp; i < message.content.size(); ++i) {
            if (message.content[i] == static_cast<std::byte>(stamp.number)) continue;
            findings.expect(false, "the content was changed");
            break;
        }
        ++delivered;
    }

    // All that was sent has failed or arrived: begin again.
    void reset() {
        generation = random.next();
        next.clear();
        made = finished = failed = 0;
    }

    Findings& findings;
    Random& random;
    MessageService& service;
    MessageOptions options;
    std::uint64_t generation;
    std::map<Tag, std::uint64_t> next;
    std::uint64_t made = 0, finished = 0, failed = 0;
    std::uint32_t posted = 0;
    ReceiveId last{};
    std::uint64_t peer = 0;
    std::map<std::uint64_t, bool> old_peers;
    std::map<Tag, std::uint64_t> expected;
    std::uint64_t delivered = 0;
};

struct MessageServer final : ServerHandler {
    MessageServer(SimWorld& world, SimHost& host, Findings& its_findings, Tracer& tracer,
                  const ServerOptions& its_options)
        : findings(its_findings),
          options(its_options),
          random(world.random()),
          fabric(host.fabric(), host.clock(), {}),
          server({host.clock(), world.random(), tracer}, options, *this) {}

    std::error_code on_session_up(ServerSession& session) override {
        if (session.messages() == nullptr) return {};
        end = std::make_unique<End>(findings, random, *session.messages(), *options.messages);
        return {};
    }
    void on_request(ServerOp& op) override { op.respond({}); }
    void on_session_down(ServerSession& session) override {
        if (end && &end->service == session.messages()) end.reset();
    }
    void on_closed() override { closed = true; }

    Findings& findings;
    ServerOptions options;
    Random& random;
    std::unique_ptr<End> end;
    bool closed = false;
    FaultyFabric fabric;
    Server server;
};

struct MessageClient final : ClientSessionHandler {
    MessageClient(SimWorld& world, SimHost& host, Findings& findings, Tracer& tracer,
                  ClientSessionOptions options)
        : fabric(host.fabric(), host.clock(), {}),
          session(
              {host.clock(), world.random(), tracer},
              [&] {
                  for (PathAddress& path : options.paths) path.fabric = &fabric;
                  return options;
              }(),
              *this) {
        findings.expect(!session.open(), "cannot open");
        if (options.messages) {
            end = std::make_unique<End>(findings, world.random(), *session.messages(),
                                        *options.messages);
        }
    }
    void on_link_up() override { ++links_up; }
    void on_link_down(std::error_code reason) override { down_for = reason; }
    void on_messages_reset() override {
        ++resets;
        end->reset();
    }
    void on_closed() override { closed = true; }

    unsigned links_up = 0;
    unsigned resets = 0;
    bool closed = false;
    std::error_code down_for;
    std::unique_ptr<End> end;
    FaultyFabric fabric;
    ClientSession session;
};

SceneOptions message_options(std::uint64_t seed) {
    SceneOptions options = quick_options(seed);
    options.client.messages = options.server.messages = MessageOptions{
        .window = 8, .eager_bytes = 256, .longest_bytes = 1 << 16, .silence_max = 1s};
    return options;
}

struct Street {
    explicit Street(const SceneOptions& its_options) : options(its_options), world(options.sim) {
        std::vector<std::string> servers;
        std::vector<std::string> clients;
        for (std::size_t i = 0; i < options.addresses; ++i) {
            servers.push_back(fmt::format("10.0.{}.1", i));
            clients.push_back(fmt::format("10.0.{}.2", i));
            options.client.paths.push_back({nullptr, "", servers.back() + ":1235"});
        }
        server_host = &world.add_host(servers);
        client_host = &world.add_host(clients);
        start_server();
        client = std::make_unique<MessageClient>(world, *client_host, findings, recorder,
                                                 options.client);
    }
    ~Street() {
        world.abandon();
        bury(client.release());
        bury(server.release());
    }
    void start_server() {
        server = std::make_unique<MessageServer>(world, *server_host, findings, recorder,
                                                 options.server);
        findings.expect(server->server.listen(server->fabric, "0.0.0.0:1235").has_value(),
                        "cannot listen");
    }
    void crash_server(SimHost::CrashSeen seen) {
        server_host->crash(seen);
        bury(server.release());
    }
    bool up() {
        return world.run_until(
            [&] {
                return client->end->service.status().up && server->end &&
                       server->end->service.status().up;
            },
            20s);
    }
    // Everything that was sent has arrived, with receives for it.
    bool all_arrived() {
        End& a = *client->end;
        return server->end && a.made == a.finished + a.failed &&
               server->end->made == server->end->finished + server->end->failed &&
               server->end->peer == a.generation && a.peer == server->end->generation &&
               server->end->delivered == a.made && a.delivered == server->end->made;
    }
    void close() {
        client->session.close();
        CHECK(world.run_until([&] { return client->closed; }, 20s));
        CHECK(client->end->posted == 0);
        CHECK(client->end->made == client->end->finished + client->end->failed);
        client.reset();
        server->server.close();
        CHECK(world.run_until([&] { return server->closed; }, 20s));
        server.reset();
    }
    void report() {
        for (const std::string& line : findings.lines) FAIL_CHECK(line);
    }

    SceneOptions options;
    SimWorld world;
    Findings findings;
    Recorder recorder{world};
    SimHost* server_host = nullptr;
    SimHost* client_host = nullptr;
    std::unique_ptr<MessageServer> server;
    std::unique_ptr<MessageClient> client;
};

void cover(Street& street, End& end) {
    street.world.run_until(
        [&] {
            end.wait_for_anything();
            return street.all_arrived();
        },
        5s);
}

struct Totals {
    std::uint64_t messages = 0;
    std::uint64_t resets = 0;
} totals;

void trouble(Street& street, Random& random, std::size_t which, bool may_crash) {
    const std::string client = street.client_host->address(which);
    const std::string server = street.server_host->address(which);
    SimNetwork& network = street.world.network();
    const auto up_to = [&](Duration bound) {
        return Duration(random.below(static_cast<std::uint64_t>(bound.count())));
    };
    switch (random.below(may_crash ? 9 : 8)) {
        case 0:
            return network.reset(client, server, SimNetwork::Seen::by_both);
        case 1:
            return network.reset(client, server, SimNetwork::Seen::by_first);
        case 2:
            return network.reset(server, client, SimNetwork::Seen::by_first);
        case 3:
            network.cut(client, server);
            street.world.run_for(up_to(900ms));
            return network.heal(client, server);
        case 4:
            network.cut_one_way(client, server);
            street.world.run_for(up_to(900ms));
            return network.heal(client, server);
        case 5:
            return network.stall(server, client, up_to(300ms));
        case 6:
            street.client->fabric.options().refuse_registration_per_million = 200000;
            street.world.run_for(up_to(100ms));
            street.client->fabric.options().refuse_registration_per_million = 0;
            return;
        case 7: {
            const auto paths = street.client->session.status().paths;
            const auto& path = paths.at(which);
            static_cast<void>(street.client->session.operate_path(
                path.label, ClientSession::PathOperation::reconnect));
            return;
        }
        case 8:
            street.crash_server(random.chance(1, 2) ? SimHost::CrashSeen::by_reset
                                                    : SimHost::CrashSeen::never);
            street.world.run_for(up_to(300ms));
            street.server_host->restart();
            return street.start_server();
    }
}

void run(std::uint64_t seed) {
    Random random(seed * 31337);
    SceneOptions options = message_options(seed);
    options.sim.transport_timeout = random.chance(1, 2) ? 200ms : 3s;
    options.addresses = 1 + random.below(3);
    const bool may_crash = random.chance(1, 4);
    // One address is left alone: then the session must never be made anew.
    const std::size_t troubled = options.addresses - (may_crash ? 0 : 1);
    Street street(options);
    street.up();
    const auto work = [&] {
        for (End* end : {street.client->end.get(), street.server->end.get()}) {
            if (end == nullptr) continue;
            for (int i = 0; i < 8; ++i) {
                if (random.chance(1, 2) && end->made - end->finished < 40) end->send();
                if (random.chance(1, 2)) end->post_some();
            }
        }
    };
    for (std::uint64_t i = 0; i < 6 + random.below(10); ++i) {
        work();
        street.world.run_for(Duration(random.below(random.chance(1, 2) ? 500'000 : 50'000'000)));
        work();
        if (troubled > 0) trouble(street, random, random.below(troubled), may_crash);
    }
    street.world.network().heal_all();
    street.client->fabric.options() = {};
    street.world.run_for(3s);
    CHECK(street.up());
    work();
    street.client->end->send();
    if (street.server->end) street.server->end->send();
    CHECK(street.world.run_until(
        [&] {
            for (End* end : {street.client->end.get(), street.server->end.get()}) {
                if (end != nullptr) end->wait_for_anything();
            }
            return street.all_arrived();
        },
        20s));
    if (!may_crash) CHECK(street.client->resets == 0);
    street.world.run_for(100ms);
    for (End* end : {street.client->end.get(), street.server->end.get()}) {
        REQUIRE(end != nullptr);
        const MessageStatus status = end->service.status();
        CHECK(status.registrations == 0);
        CHECK(status.sending == 0);
        CHECK(status.unexpected == 0);
        totals.messages += end->delivered;
    }
    totals.resets += street.client->resets;
    if (random.chance(1, 2)) work();
    street.close();
    street.report();
}

}  // namespace

TEST_CASE("messages: eager and rendezvous arrive in both directions") {
    Street street(message_options(1));
    REQUIRE(street.up());
    for (int i = 0; i < 300; ++i) {
        for (End* end : {street.client->end.get(), street.server->end.get()}) {
            end->send();
            end->post(any);
        }
        street.world.run_for(1ms);
    }
    cover(street, *street.client->end);
    cover(street, *street.server->end);
    CHECK(street.all_arrived());
    CHECK(street.client->end->service.status().rendezvous > 50);
    CHECK(street.client->end->service.status().registrations == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: a flood that nobody waits for costs bounded memory") {
    Street street(message_options(2));
    REQUIRE(street.up());
    End& client = *street.client->end;
    for (int i = 0; i < 500; ++i) CHECK(client.send());
    street.world.run_for(2s);
    const MessageOptions& options = *street.options.server.messages;
    const MessageStatus status = street.server->end->service.status();
    CHECK(status.unexpected == options.window);
    CHECK(status.unexpected_bytes <= options.window * options.eager_bytes);
    CHECK(client.service.status().sending > 400);
    // Its memory is registered for what is announced alone.
    CHECK(client.service.status().registrations <= options.window);
    cover(street, *street.server->end);
    CHECK(street.server->end->delivered == 500);
    CHECK(street.client->session.status().paths[0].reconnects == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: what a flood of the longest eager messages takes, measured") {
    SceneOptions options = quick_options(2);
    options.client.messages = options.server.messages = MessageOptions{};
    Street street(options);
    REQUIRE(street.up());
    const MessageOptions& limits = *options.server.messages;
    for (std::uint32_t i = 0; i < limits.sends_max; ++i) {
        MessageBuffer content(limits.eager_bytes);
        std::ranges::fill(content.bytes(), std::byte{1});
        REQUIRE(!street.client->end->service.send(1, std::move(content), nullptr, nullptr));
    }
    // From here on the sender has what it needs.
    const std::size_t before = ::mallinfo2().uordblks;
    street.world.run_for(2s);
    const std::size_t after = ::mallinfo2().uordblks;
    const MessageStatus status = street.server->end->service.status();
    CHECK(status.unexpected == limits.window);
    CHECK(status.unexpected_bytes == limits.window * limits.eager_bytes);
    const std::size_t grown = after > before ? after - before : 0;
    fmt::print("{} messages of {} bytes: {} wait, the heap grew by {} bytes\n", limits.sends_max,
               limits.eager_bytes, status.unexpected, grown);
    // What is kept beside each one's content, and the growth of lists.
    CHECK(grown <= limits.window * (limits.eager_bytes + 512) + 16384);
    street.world.run_for(10s);
    CHECK(street.server->end->service.status().unexpected == limits.window);
    CHECK(::mallinfo2().uordblks <= after + 16384);
    street.report();
}

TEST_CASE("messages: too long for the receive, for us, for the peer") {
    SceneOptions options = message_options(3);
    options.server.messages->longest_bytes = 2048;
    Street street(options);
    REQUIRE(street.up());
    MessageService& client = *street.client->session.messages();
    MessageService& server = street.server->end->service;
    std::vector<std::pair<std::uint64_t, std::error_code>> got;
    std::vector<std::error_code> sent;
    const auto receive = [](void* list, const ReceivedMessage& message) {
        static_cast<decltype(got)*>(list)->emplace_back(message.bytes, message.error);
    };
    const auto note = [](void* list, std::error_code error) {
        static_cast<decltype(sent)*>(list)->push_back(error);
    };
    for (int i = 0; i < 3; ++i) REQUIRE(server.receive(any, 100, receive, &got));
    CHECK(client.send(1, MessageBuffer(1 << 17), note, &sent) == std::errc::message_size);
    for (const std::size_t bytes : {2049, 101, 1000, 100}) {
        CHECK(!client.send(1, MessageBuffer(bytes), note, &sent));
    }
    street.world.run_for(100ms);
    const auto too_long = std::make_error_code(std::errc::message_size);
    REQUIRE(got.size() == 3);
    CHECK(got[0] == std::pair<std::uint64_t, std::error_code>(101, too_long));
    CHECK(got[1] == std::pair<std::uint64_t, std::error_code>(1000, too_long));
    CHECK(got[2] == std::pair<std::uint64_t, std::error_code>(100, {}));
    REQUIRE(sent.size() == 4);
    CHECK(sent[0] == too_long);
    CHECK(client.status().registrations == 0);
    CHECK(client.status().sending == 0);
    street.close();
    street.report();
}

TEST_CASE("messages: a peer without them sees nothing of them") {
    SceneOptions options = message_options(4);
    SECTION("the server") { options.server.messages.reset(); }
    SECTION("the client") { options.client.messages.reset(); }
    Street street(options);
    CHECK(street.world.run_until([&] { return street.client->links_up == 1; }, 5s));
    street.world.run_for(2s);
    CHECK_FALSE(street.client->session.peer_has_messages());
    CHECK(street.server->end == nullptr);
    // Of the path, and none besides.
    CHECK(street.world.network().connections() == 3);
    if (street.client->end) {
        street.client->end->send();
        street.world.run_for(1s);
        CHECK(street.client->end->service.status().sending == 1);
        CHECK_FALSE(street.client->end->service.status().up);
    }
    street.client->session.close();
    CHECK(street.world.run_until([&] { return street.client->closed; }, 20s));
    if (street.client->end) CHECK(street.client->end->failed == 1);
    street.report();
}

TEST_CASE("messages: a path that is lost with their connection says what the system said of it") {
    Street street(message_options(7));
    REQUIRE(street.up());
    // The next that posts is the connection of messages.
    street.client->fabric.options().lose_connection_per_million = 1'000'000;
    street.client->end->send();
    CHECK(street.world.run_until([&] { return !street.client->session.link_up(); }, 50ms));
    street.client->fabric.options().lose_connection_per_million = 0;
    CHECK(street.client->down_for == std::errc::connection_reset);
    REQUIRE(street.up());
    cover(street, *street.client->end);
    street.close();
    street.report();
}

TEST_CASE("messages: what is not in order drops the path of its sender alone") {
    Street street(message_options(5));
    REQUIRE(street.up());
    RawClient raw(street.world, *street.client_host, "10.0.0.1:1235");
    raw.request.features = features_of(Feature::failover, Feature::messages);
    raw.request.reconnect_count = 1;
    REQUIRE(raw.open(2, "raw", 16, 8192));
    raw.request.connection_count = 1;
    raw.request.purpose = ConnectionPurpose::messages;
    raw.request.first_connection = FirstConnection::no;
    std::vector<std::byte> hello(16 + TagHello::wire_bytes);
    TagHeader{.user_data = 1}.emit(hello);
    TagHello{.window = 4, .eager_bytes = 256, .longest_bytes = 1024, .life = 5}.emit(
        MutableBytes(hello).subspan(16));
    const auto header = [](TagHeaderOperation operation, std::uint32_t number, std::size_t bytes) {
        std::vector<std::byte> message(16 + bytes);
        TagHeader{.operation = operation, .user_data = number, .tag = 1}.emit(message);
        return message;
    };
    const auto rendezvous = [&](std::uint32_t bytes) {
        auto message = header(TagHeaderOperation::rendezvous, 1, 16);
        RendezvousHeader{.address = 1, .key = 2, .bytes = bytes}.emit(
            MutableBytes(message).subspan(16));
        return message;
    };
    std::vector<std::byte> bad;
    bool greet = true;
    SECTION("no hello first") {
        greet = false;
        bad = header(TagHeaderOperation::eager, 1, 4);
    }
    SECTION("a second hello") { bad = hello; }
    SECTION("a bad hello") {
        greet = false;
        bad = hello;
        bad[16 + 3] = std::byte{0};
    }
    SECTION("an unknown operation") { bad.assign(16, std::byte{4}); }
    SECTION("too short") { bad.assign(15, std::byte{}); }
    SECTION("a message is missing") { bad = header(TagHeaderOperation::eager, 2, 4); }
    SECTION("an impossible number") { bad = header(TagHeaderOperation::eager, 0xffffffff, 4); }
    SECTION("what was never sent is finished") { bad = header(TagHeaderOperation::finished, 1, 0); }
    SECTION("an unknown notice") { bad = header(TagHeaderOperation::no_tag, 7, 0); }
    SECTION("a rendezvous of nothing") { bad = rendezvous(0); }
    SECTION("a rendezvous that is too long") { bad = rendezvous((1 << 16) + 1); }
    SECTION("a rendezvous without its header") {
        bad = header(TagHeaderOperation::rendezvous, 1, 15);
    }
    RawConnection& link = raw.dial(0);
    street.world.run_until([&] { return link.established || link.rejected; }, 1s);
    REQUIRE(link.established);
    if (greet) {
        raw.send(static_cast<std::uint16_t>(raw.connections.size() - 1), hello);
        street.world.run_for(5ms);
        CHECK(raw.alive());
    }
    raw.send(static_cast<std::uint16_t>(raw.connections.size() - 1), bad);
    street.world.run_for(20ms);
    CHECK(link.disconnected);
    CHECK_FALSE(raw.alive());
    // The other client's path has not noticed.
    CHECK(street.client->session.status().paths[0].reconnects == 0);
    CHECK(street.client->end->service.status().up);
    raw.end();
    street.report();
}

// The sender has lost a link, and says all again on another; its last words on the first come later
// than those, and then the receiver loses that link, too.
TEST_CASE("messages: a late header from a lost link orphans nothing") {
    SceneOptions options = message_options(6);
    options.addresses = 2;
    Street street(options);
    REQUIRE(street.up());
    RawClient late(street.world, *street.client_host, "10.0.0.1:1235");
    RawClient good(street.world, *street.client_host, "10.0.1.1:1235");
    good.request.session_uuid = late.request.session_uuid;
    std::vector<std::byte> hello(16 + TagHello::wire_bytes);
    TagHeader{.user_data = 1}.emit(hello);
    TagHello{.window = 4, .eager_bytes = 256, .longest_bytes = 1024, .life = 5}.emit(
        MutableBytes(hello).subspan(16));
    constexpr std::uint16_t messages = 2;  // its place among a path's connections
    for (RawClient* raw : {&late, &good}) {
        raw->request.features = features_of(Feature::failover, Feature::messages);
        if (raw == &good) raw->request.first_connection = FirstConnection::no;
        REQUIRE(raw->open(messages, "raw", 16, 8192));
        raw->request.connection_count = 1;
        raw->request.purpose = ConnectionPurpose::messages;
        raw->dial(0);
        REQUIRE(street.world.run_until([&] { return raw->alive(); }, 1s));
        raw->send(messages, hello);
        street.world.run_for(5ms);
    }
    const auto announce = [&](RawClient& raw) {
        std::vector<std::byte> message(16 + 16);
        TagHeader{.operation = TagHeaderOperation::rendezvous, .user_data = 1, .tag = 1}.emit(
            message);
        const RemoteBuffer content = raw.own(600);
        RendezvousHeader{.address = content.address, .key = content.key, .bytes = 600}.emit(
            MutableBytes(message).subspan(16));
        raw.send(messages, message);
        street.world.run_for(5ms);
    };
    const auto finishes = [&](RawClient& raw) {
        RawConnection& link = *raw.connections[messages];
        return std::ranges::count_if(link.received, [&](const Completion& completion) {
            const auto header = TagHeader::parse(link.content(completion));
            return header && header->operation == TagHeaderOperation::finished;
        });
    };
    MessageService& service = street.server->end->service;
    unsigned received = 0;
    const auto receive = [&] {
        const auto posted = service.receive(
            any, 1024,
            [](void* count, const ReceivedMessage& message) {
                if (!message.error && message.bytes == 600) ++*static_cast<unsigned*>(count);
            },
            &received);
        CHECK(posted.has_value());
        street.world.run_for(5ms);
    };
    announce(good);
    announce(late);
    SECTION("before it was read") {
        late.connections[messages]->endpoint->disconnect();
        street.world.run_for(5ms);
        receive();
    }
    SECTION("after") {
        receive();
        late.connections[messages]->endpoint->disconnect();
        street.world.run_for(5ms);
    }
    CHECK(received == 1);
    CHECK(good.alive());
    CHECK(finishes(good) == 1);
    late.end();
    good.end();
    street.report();
}

TEST_CASE("messages: nothing is lost, doubled or out of order") {
    const Seeds seeds = chosen_seeds(400);
    for (std::uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
        INFO("repeat with: RNBD_SIM_SEED=" << seed << " sim_messages");
        run(seed);
    }
    CHECK(totals.messages > 100 * seeds.count);
    WARN(seeds.count << " seeds, " << totals.messages << " messages, " << totals.resets
                     << " resets");
}
