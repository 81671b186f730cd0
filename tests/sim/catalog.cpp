// A server's catalog as its client follows it: a picture, events without a gap, a new picture where
// there is one, and everything again after a restart. The server here is the test's own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "rnbd/remote_catalog.h"
#include "tests/sim/seeds.h"
#include "tests/sim/session_world.h"

using namespace simtest;
using rnbd::CatalogEntry;
using rnbd::CatalogEvent;
using rnbd::CatalogEventKind;
using rnbd::CatalogPicture;
using rnbd::CatalogTag;

namespace {

struct TellingServer final : ServerHandler {
    TellingServer(SimWorld& world, SimHost& host, Tracer& tracer, const ServerOptions& options)
        : server({host.clock(), world.random(), tracer}, options, *this) {}

    std::error_code on_session_up(ServerSession& session) override {
        up = &session;
        service = session.messages();
        followed = false;
        if (service != nullptr) wait();
        return {};
    }
    void on_request(ServerOp& op) override { op.respond({}); }
    void on_session_down(ServerSession& session) override {
        if (up == &session) service = nullptr;
    }
    void on_closed() override { closed = true; }

    void wait() {
        static_cast<void>(service->receive(
            {.tag = rnbd::catalog_tag(CatalogTag::request, 0), .mask = rnbd::catalog_tag_mask}, 64,
            [](void* self, const ReceivedMessage& message) {
                static_cast<TellingServer*>(self)->asked(message);
            },
            this));
    }
    void asked(const ReceivedMessage& message) {
        if (message.error) return;
        wait();
        const auto request = rnbd::CatalogRequest::parse(message.content);
        if (!request) return;
        const auto asked_number = static_cast<std::uint32_t>(message.tag);
        if (request->follow) {
            ++follows;
            followed = true;
            number = asked_number;
        }
        if (garbles) {
            MessageBuffer content(7);
            static_cast<void>(service->send(rnbd::catalog_tag(CatalogTag::picture, asked_number),
                                            std::move(content), nullptr, nullptr));
            return;
        }
        send(CatalogTag::picture, asked_number,
             CatalogPicture{.generation = generation, .draining = draining, .entries = entries});
    }
    template <typename Message>
    void send(CatalogTag what, std::uint32_t to, const Message& message) {
        MessageBuffer content(message.wire_bytes());
        message.emit(content.bytes());
        static_cast<void>(
            service->send(rnbd::catalog_tag(what, to), std::move(content), nullptr, nullptr));
    }
    void tell(CatalogEventKind kind, const CatalogEntry& entry) {
        ++generation;
        if (service == nullptr || !followed) return;  // the picture that is asked for has it
        send(CatalogTag::event, number,
             CatalogEvent{.kind = kind, .generation = generation, .entry = entry});
    }

    ServerSession* up = nullptr;
    MessageService* service = nullptr;
    bool followed = false;
    std::vector<CatalogEntry> entries;
    std::uint64_t generation = 0;
    bool draining = false;
    bool garbles = false;
    std::uint32_t number = 0;
    unsigned follows = 0;
    bool closed = false;
    Server server;
};

struct ListeningClient final : ClientSessionHandler {
    ListeningClient(SimWorld& world, SimHost& host, Tracer& tracer, ClientSessionOptions options)
        : session(
              {host.clock(), world.random(), tracer},
              [&] {
                  for (PathAddress& path : options.paths) path.fabric = &host.fabric();
                  return options;
              }(),
              *this),
          catalog(
              session,
              [this](const CatalogEvent& event) {
                  heard += std::string(" ") + to_string(event.kind) + ":" + event.entry.name;
                  mirror(event);
              },
              [this](const std::string& why) { heard += " unreadable:" + why; }) {}
    void on_link_up() override { catalog.link_ready(); }
    void on_link_down(std::error_code) override {}
    void on_messages_reset() override { catalog.reset(); }
    void on_closed() override {
        catalog.closed();
        closed = true;
    }

    // What there is if one goes by the events alone.
    void mirror(const CatalogEvent& event) {
        const auto known = sizes.find(event.entry.name);
        const bool there = known != sizes.end();
        switch (event.kind) {
            case CatalogEventKind::added:
                if (there) ++odd;
                sizes[event.entry.name] = event.entry.size_bytes;
                return;
            case CatalogEventKind::removed:
                if (!there) ++odd;
                sizes.erase(event.entry.name);
                return;
            case CatalogEventKind::resized:
                if (!there || known->second == event.entry.size_bytes) ++odd;
                sizes[event.entry.name] = event.entry.size_bytes;
                return;
            default:
                return;
        }
    }

    std::string heard;
    std::map<std::string, std::uint64_t> sizes;
    unsigned odd = 0;  // what no true event can be: twice the same, or out of order
    bool closed = false;
    ClientSession session;
    rnbd::RemoteCatalog catalog;
};

struct Town {
    explicit Town(bool with_messages = true, const SceneOptions& its_options = quick_options(1))
        : options(its_options), world(options.sim) {
        options.client.messages = MessageOptions{};
        if (with_messages) options.server.messages = MessageOptions{};
        std::vector<std::string> servers, clients;
        for (std::size_t i = 0; i < options.addresses; ++i) {
            servers.push_back("10.0." + std::to_string(i) + ".1");
            clients.push_back("10.0." + std::to_string(i) + ".2");
            options.client.paths.push_back({nullptr, "", servers.back() + ":1235"});
        }
        server_host = &world.add_host(servers);
        client_host = &world.add_host(clients);
        start_server();
        client = std::make_unique<ListeningClient>(world, *client_host, recorder, options.client);
        REQUIRE(!client->session.open());
    }
    ~Town() {
        world.abandon();
        bury(client.release());
        bury(server.release());
    }
    void start_server() {
        server = std::make_unique<TellingServer>(world, *server_host, recorder, options.server);
        REQUIRE(server->server.listen(server_host->fabric(), "0.0.0.0:1235"));
    }
    std::string heard() {
        world.run_for(2s);
        return std::exchange(client->heard, {});
    }

    SceneOptions options;
    SimWorld world;
    Recorder recorder{world};
    SimHost* server_host = nullptr;
    SimHost* client_host = nullptr;
    std::unique_ptr<TellingServer> server;
    std::unique_ptr<ListeningClient> client;
};

CatalogEntry entry(std::string name, std::uint64_t size) {
    return {.name = std::move(name), .size_bytes = size, .block_bytes = 512};
}

}  // namespace

TEST_CASE("catalog: a picture, then events") {
    Town town;
    town.server->entries = {entry("a", 1), entry("b", 2)};
    CHECK(town.heard() == " added:a added:b");
    CHECK(town.client->catalog.known());
    town.server->tell(CatalogEventKind::resized, entry("a", 10));
    town.server->tell(CatalogEventKind::removed, entry("b", 2));
    CHECK(town.heard() == " resized:a removed:b");
    CHECK(town.client->catalog.entries().size() == 1);
    CHECK(town.client->catalog.entries().at("a").size_bytes == 10);
    CHECK(town.server->follows == 1);
}

TEST_CASE("catalog: a gap is noticed, and what was missed is told") {
    Town town;
    town.server->entries = {entry("a", 1)};
    CHECK(town.heard() == " added:a");
    ++town.server->generation;  // of an event that never came
    town.server->entries = {entry("a", 5), entry("c", 3)};
    town.server->tell(CatalogEventKind::added, entry("c", 3));
    CHECK(town.heard() == " resized:a added:c");
    CHECK(town.server->follows == 2);
}

TEST_CASE("catalog: ten thousand exports come at once") {
    Town town;
    for (int i = 0; i < 10000; ++i) {
        town.server->entries.push_back(entry("volume-" + std::to_string(i), 4096));
    }
    town.heard();
    CHECK(town.client->catalog.entries().size() == 10000);
    CHECK(town.client->session.messages()->status().rendezvous == 1);
}

TEST_CASE("catalog: what has changed over a restart of the server is told") {
    Town town;
    town.server->entries = {entry("a", 1), entry("b", 2), entry("c", 3), entry("d", 4)};
    CHECK(town.heard() == " added:a added:b added:c added:d");
    town.server_host->crash(SimHost::CrashSeen::by_reset);
    bury(town.server.release());
    town.world.run_for(100ms);
    town.server_host->restart();
    town.start_server();
    town.server->entries = {entry("a", 7), entry("c", 3), entry("d", 4)};
    town.server->entries[1].block_bytes = 4096;
    CHECK(town.heard() == " resized:a resized:c removed:b");
    town.server->tell(CatalogEventKind::waiting, entry("a", 7));
    CHECK(town.heard() == " waiting:a");
}

TEST_CASE("catalog: what the server means to do is told, and in the picture for who missed it") {
    using rnbd::ServerIntent;
    Town town;
    const auto intent = [&] { return town.client->catalog.intent(); };
    CHECK_FALSE(intent());
    town.heard();
    CHECK(intent() == ServerIntent::serve);
    town.server->draining = true;
    town.server->tell(CatalogEventKind::draining, {});
    CHECK(town.heard() == " draining:");
    CHECK(intent() == ServerIntent::drain);
    ++town.server->generation;  // of an event that never came
    town.server->draining = false;
    town.server->tell(CatalogEventKind::added, entry("a", 1));
    CHECK(town.heard() == " accepting:");
    CHECK(intent() == ServerIntent::serve);
    town.server->tell(CatalogEventKind::ending, {});
    CHECK(town.heard() == " ending:");
    town.server_host->crash(SimHost::CrashSeen::by_reset);
    bury(town.server.release());
    town.world.run_for(100ms);
    CHECK(intent() == ServerIntent::end);
    town.server_host->restart();
    town.start_server();
    CHECK(town.heard() == " accepting:");
    CHECK(intent() == ServerIntent::serve);
}

namespace {

struct Faults {
    Town& town;
    Random& random;
    bool may_crash;

    void one() {
        const std::size_t which = random.below(town.options.addresses);
        const std::string client = town.client_host->address(which);
        const std::string server = town.server_host->address(which);
        SimNetwork& network = town.world.network();
        switch (random.below(may_crash ? 5 : 4)) {
            case 0:
                return network.reset(client, server, SimNetwork::Seen::by_both);
            case 1:
                network.cut(client, server);
                town.world.run_for(up_to(900ms));
                return network.heal(client, server);
            case 2:
                network.cut_one_way(server, client);
                town.world.run_for(up_to(900ms));
                return network.heal(server, client);
            case 3:
                return network.stall(server, client, up_to(300ms));
            case 4:
                crash();
        }
    }
    void crash() {
        const std::vector<CatalogEntry> entries = town.server->entries;
        town.server_host->crash(SimHost::CrashSeen::by_reset);
        bury(town.server.release());
        town.world.run_for(up_to(300ms));
        town.server_host->restart();
        town.start_server();
        town.server->entries = entries;
    }
    Duration up_to(Duration bound) {
        return Duration(random.below(static_cast<std::uint64_t>(bound.count())));
    }
};

// One export comes, goes or has another size.
void change(TellingServer& server, Random& random) {
    const std::string name(1, static_cast<char>('a' + random.below(6)));
    const auto found = std::ranges::find(server.entries, name, &CatalogEntry::name);
    if (found == server.entries.end()) {
        server.entries.push_back(entry(name, 1 + random.below(1000)));
        return server.tell(CatalogEventKind::added, server.entries.back());
    }
    if (random.chance(1, 3)) {
        const CatalogEntry gone = *found;
        server.entries.erase(found);
        return server.tell(CatalogEventKind::removed, gone);
    }
    found->size_bytes += 1 + random.below(1000);
    server.tell(CatalogEventKind::resized, *found);
}

std::map<std::string, std::uint64_t> sizes_of(const std::vector<CatalogEntry>& entries) {
    std::map<std::string, std::uint64_t> sizes;
    for (const CatalogEntry& one : entries) sizes[one.name] = one.size_bytes;
    return sizes;
}

std::uint64_t changes_in_all = 0;

void run(std::uint64_t seed) {
    Random random(seed * 7919);
    SceneOptions options = quick_options(seed);
    options.sim.transport_timeout = random.chance(1, 2) ? 200ms : 3s;
    options.addresses = 1 + random.below(3);
    Town town(true, options);
    Faults faults{town, random, random.chance(1, 3)};
    for (std::uint64_t i = 0; i < 6 + random.below(8); ++i) {
        for (std::uint64_t j = random.below(6); j > 0; --j, ++changes_in_all) {
            change(*town.server, random);
            if (random.chance(1, 2)) town.world.run_for(faults.up_to(20ms));
        }
        faults.one();
        town.world.run_for(faults.up_to(random.chance(1, 2) ? 50ms : 1s));
    }
    town.world.network().heal_all();
    CHECK(town.world.run_until(
        [&] {
            return town.client->catalog.known() &&
                   town.client->sizes == sizes_of(town.server->entries);
        },
        20s));
    town.world.run_for(1s);
    CHECK(town.client->sizes == sizes_of(town.server->entries));
    CHECK(town.client->odd == 0);
    const MessageStatus status = town.client->session.messages()->status();
    CHECK(status.registrations == 0);
    CHECK(status.sending == 0);
}

}  // namespace

TEST_CASE("catalog: no event is lost, doubled or out of order, whatever happens to the paths") {
    const Seeds seeds = chosen_seeds(200);
    for (std::uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
        INFO("repeat with: RNBD_SIM_SEED=" << seed << " sim_catalog");
        run(seed);
    }
    CHECK(changes_in_all > 5 * seeds.count);
    WARN(seeds.count << " seeds, " << changes_in_all << " changes");
}

TEST_CASE("catalog: a question is answered once") {
    Town town;
    unsigned answers = 0;
    std::error_code error;
    std::size_t found = 0;
    const auto ask = [&] {
        town.client->catalog.ask(
            [&](std::error_code its_error, const std::vector<CatalogEntry>& entries) {
                ++answers;
                error = its_error;
                found = entries.size();
            });
    };
    town.server->entries = {entry("a", 1)};
    ask();  // before the link is up
    town.heard();
    CHECK(answers == 1);
    CHECK(!error);
    CHECK(found == 1);
    ask();
    town.server_host->crash(SimHost::CrashSeen::by_reset);
    bury(town.server.release());
    town.world.run_for(100ms);
    town.server_host->restart();
    town.start_server();
    town.heard();
    CHECK(answers == 2);
    ask();
    town.client->session.close();
    town.world.run_for(2s);
    CHECK(town.client->closed);
    CHECK(answers == 3);
}

TEST_CASE("catalog: a picture that cannot be read is told once, another server is asked again") {
    Town town;
    town.server->garbles = true;
    CHECK(town.heard() == " unreadable:message is shorter than its type needs");
    CHECK_FALSE(town.client->catalog.known());
    CHECK(town.heard().empty());
    town.server_host->crash(SimHost::CrashSeen::by_reset);
    bury(town.server.release());
    town.world.run_for(100ms);
    town.server_host->restart();
    town.start_server();
    town.server->entries = {entry("a", 1)};
    CHECK(town.heard() == " added:a");
}

TEST_CASE("catalog: a picture of too many exports is refused, and the session goes on") {
    Town town;
    town.server->entries.assign(rnbd::catalog_entries_max + 1, entry("a", 1));
    std::error_code error;
    std::size_t found = 0;
    const auto ask = [&] {
        town.client->catalog.ask(
            [&](std::error_code its_error, const std::vector<CatalogEntry>& entries) {
                error = its_error;
                found = entries.size();
            });
    };
    ask();
    CHECK(town.heard() == " unreadable:found 65537 exports, expected at most 65536");
    CHECK(error == Error::protocol);
    CHECK(found == 0);
    CHECK_FALSE(town.client->catalog.known());
    CHECK(town.client->catalog.entries().empty());
    CHECK(town.client->session.link_up());
    // It is asked anew when something happens there.
    town.server->entries = {entry("b", 1)};
    ask();
    town.server->tell(CatalogEventKind::added, entry("b", 1));
    CHECK(town.heard() == " added:b");
    CHECK(!error);
    CHECK(found == 1);
}

TEST_CASE("catalog: a server without messages has none") {
    Town town(false);
    std::error_code error;
    town.client->catalog.ask(
        [&](std::error_code its_error, const std::vector<CatalogEntry>&) { error = its_error; });
    CHECK(town.heard().empty());
    CHECK(error == std::errc::operation_not_supported);
    CHECK_FALSE(town.client->catalog.known());
}
