// Two ends that exchange numbered messages over a session on virtual time, and check what comes:
// each once, in order, whole.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rtrs/fabric/fault/faulty_fabric.h"
#include "tests/sim/session_world.h"

namespace simtest {

inline constexpr Tag tags = 4;
inline constexpr TagPattern any{.tag = 0, .mask = 0};

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

inline SceneOptions message_options(std::uint64_t seed) {
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

inline void cover(Street& street, End& end) {
    street.world.run_until(
        [&] {
            end.wait_for_anything();
            return street.all_arrived();
        },
        5s);
}

}  // namespace simtest
