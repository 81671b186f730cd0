// A server's catalog as its client follows it: a picture, events without a gap, a new picture where
// there is one, and everything again after a restart. The server here is the test's own.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "rnbd/remote_catalog.h"
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
        service = session.messages();
        if (service != nullptr) wait();
        return {};
    }
    void on_request(ServerOp& op) override { op.respond({}); }
    void on_session_down(ServerSession&) override { service = nullptr; }
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
            number = asked_number;
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
        send(CatalogTag::event, number,
             CatalogEvent{.kind = kind, .generation = ++generation, .entry = entry});
    }

    MessageService* service = nullptr;
    std::vector<CatalogEntry> entries;
    std::uint64_t generation = 0;
    bool draining = false;
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
                  options.paths.push_back({&host.fabric(), "", "10.0.0.1:1235"});
                  return options;
              }(),
              *this),
          catalog(session, [this](const CatalogEvent& event) {
              heard += std::string(" ") + to_string(event.kind) + ":" + event.entry.name;
          }) {}
    void on_link_up() override { catalog.link_ready(); }
    void on_link_down(std::error_code) override {}
    void on_messages_reset() override { catalog.reset(); }
    void on_closed() override {
        catalog.closed();
        closed = true;
    }

    std::string heard;
    bool closed = false;
    ClientSession session;
    rnbd::RemoteCatalog catalog;
};

struct Town {
    explicit Town(bool with_messages = true) : options(quick_options(1)), world(options.sim) {
        options.client.messages = MessageOptions{};
        if (with_messages) options.server.messages = MessageOptions{};
        server_host = &world.add_host({"10.0.0.1"});
        client_host = &world.add_host({"10.0.0.2"});
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
    town.server->entries = {entry("a", 1), entry("b", 2)};
    CHECK(town.heard() == " added:a added:b");
    town.server_host->crash(SimHost::CrashSeen::by_reset);
    bury(town.server.release());
    town.world.run_for(100ms);
    town.server_host->restart();
    town.start_server();
    town.server->entries = {entry("a", 7)};
    CHECK(town.heard() == " resized:a removed:b");
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

TEST_CASE("catalog: a server without messages has none") {
    Town town(false);
    std::error_code error;
    town.client->catalog.ask(
        [&](std::error_code its_error, const std::vector<CatalogEntry>&) { error = its_error; });
    CHECK(town.heard().empty());
    CHECK(error == std::errc::operation_not_supported);
    CHECK_FALSE(town.client->catalog.known());
}
