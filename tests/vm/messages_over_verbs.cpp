// Messages with tags of a session over the verbs fabric: eager and by rendezvous, in both
// directions, each once and in order while both of the session's paths are torn down in turn.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>

#include "rtrs/client.h"
#include "rtrs/fabrics.h"
#include "rtrs/server.h"
#include "tests/print_tracer.h"

using namespace rtrs;

namespace {

constexpr std::uint32_t eager_bytes = 1024;
constexpr std::uint32_t longest_bytes = 1 << 20;
constexpr std::uint64_t in_the_air = 24;  // of each direction: more than the window

// Length and content follow from the number, so that the receiver knows both.
std::size_t length_of(std::uint64_t number) {
    const std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15u;
    const std::uint64_t most = number % 64 == 63 ? longest_bytes : 3 * eager_bytes;
    return 1 + mixed % most;
}

std::byte content_of(std::uint64_t number, std::size_t at) {
    return static_cast<std::byte>(number * 31 + at * 7 + at / 256);
}

// Sends numbered messages as long as it may, and checks what comes. A message's tag is its number.
class End {
  public:
    End(MessageService& service, Random& random) : service_(service), random_(random) {
        post();
        while (sent_ < in_the_air) send();
    }

    MessageService& service() { return service_; }
    std::uint64_t received() const { return received_; }
    std::uint64_t under_way() const { return under_way_; }
    std::uint64_t wrong() const { return wrong_; }
    void stop() { stopping_ = true; }

  private:
    void send() {
        MessageBuffer content(length_of(sent_));
        if (content.size() == 0) throw std::bad_alloc();
        for (std::size_t i = 0; i < content.size(); ++i) content.bytes()[i] = content_of(sent_, i);
        const auto error = service_.send(
            sent_, std::move(content),
            [](void* self, std::error_code failed) { static_cast<End*>(self)->ended(failed); },
            this);
        if (error) ++wrong_;
        ++sent_;
        ++under_way_;
    }
    void ended(std::error_code error) {
        --under_way_;
        if (error) ++wrong_;
        if (!stopping_) send();
    }
    void post() {
        const auto posted = service_.receive(
            {.tag = 0, .mask = 0}, longest_bytes,
            [](void* self, const ReceivedMessage& message) {
                static_cast<End*>(self)->arrived(message);
            },
            this);
        if (!posted) ++wrong_;
        ++posted_;
    }
    void arrived(const ReceivedMessage& message) {
        if (message.error == Error::closed) return;
        const std::uint64_t number = received_++;
        bool good =
            !message.error && message.tag == number && message.content.size() == length_of(number);
        for (std::size_t i = 0; good && i < message.content.size(); ++i) {
            good = message.content[i] == content_of(number, i);
        }
        if (!good) ++wrong_;
        --posted_;
        // Few wait or many: some of the next ones are unexpected.
        for (const std::uint64_t wanted = 1 + random_.below(12); posted_ < wanted;) post();
    }

    MessageService& service_;
    Random& random_;
    std::uint64_t sent_ = 0;
    std::uint64_t under_way_ = 0;
    std::uint64_t received_ = 0;
    std::uint64_t posted_ = 0;
    std::uint64_t wrong_ = 0;
    bool stopping_ = false;
};

struct ServerEnd final : ServerHandler {
    explicit ServerEnd(Random& its_random) : random(its_random) {}
    std::error_code on_session_up(ServerSession& session) override {
        end.emplace(*session.messages(), random);
        return {};
    }
    void on_request(ServerOp& op) override { op.respond({}); }
    void on_session_down(ServerSession&) override {}
    void on_closed() override { closed = true; }

    Random& random;
    std::optional<End> end;
    bool closed = false;
};

struct ClientEnd final : ClientSessionHandler {
    void on_link_up() override {}
    void on_link_down(std::error_code) override {}
    void on_messages_reset() override { ++resets; }
    void on_closed() override { closed = true; }

    unsigned resets = 0;
    bool closed = false;
};

struct World {
    World() {
        const char* host = std::getenv("RNBD_RDMA_HOST");
        if (host == nullptr) {
            std::cerr << "skipped: RNBD_RDMA_HOST names no RDMA device's address\n";
            std::exit(77);
        }
        local = host;
        fabric = make_verbs_fabric(*reactor, {.local_host = local, .tracer = &tracer}).value();
        server_fabric =
            make_verbs_fabric(*reactor, {.local_host = local, .tracer = &tracer}).value();
        const MessageOptions messages{.eager_bytes = eager_bytes, .longest_bytes = longest_bytes};
        ServerOptions options{.queue_depth = 8, .heartbeat_timeout = std::chrono::seconds(20)};
        options.messages = messages;
        server.emplace(environment(), options, server_end);
        ClientSessionOptions client{.name = "client",
                                    .connect_timeout = std::chrono::seconds(20),
                                    .heartbeat_timeout = std::chrono::seconds(20),
                                    .messages = messages};
        client.messages->silence_max = std::chrono::seconds(30);
        for (int i = 0; i < 2; ++i) {
            client.paths.push_back(
                {fabric.get(), "", server->listen(*server_fabric, local + ":0").value()});
        }
        session.emplace(environment(), std::move(client), client_end);
    }
    SessionEnvironment environment() { return {*reactor, random, tracer}; }
    // False: not within a generous time.
    template <typename Done>
    bool run_until(Done done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(180);
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            reactor->run_once(std::chrono::milliseconds(50));
        }
        return true;
    }

    testing::PrintTracer tracer;
    std::string local;
    Random random{17};
    std::unique_ptr<Reactor> reactor = Reactor::create().value();
    std::unique_ptr<Fabric> fabric, server_fabric;
    ServerEnd server_end{random};
    ClientEnd client_end;
    std::optional<Server> server;
    std::optional<ClientSession> session;
};

}  // namespace

TEST_CASE("messages over verbs arrive once and in order, through the loss of each path") {
    World world;
    REQUIRE(!world.session->open());
    REQUIRE(world.session->messages() != nullptr);
    End end(*world.session->messages(), world.random);
    REQUIRE(world.run_until([&] { return end.received() > 0 && world.server_end.end; }));
    End& other = *world.server_end.end;
    for (std::size_t round = 0; round < 6; ++round) {
        const std::uint64_t here = end.received(), there = other.received();
        REQUIRE(world.run_until(
            [&] { return end.received() >= here + 100 && other.received() >= there + 100; }));
        // One at a time: the server keeps the session.
        REQUIRE(world.run_until([&] {
            const auto paths = world.session->status().paths;
            return std::ranges::all_of(
                paths, [](const PathStatus& path) { return path.state == PathState::connected; });
        }));
        const auto paths = world.session->status().paths;
        REQUIRE(!world.session->operate_path(paths[round % 2].label,
                                             ClientSession::PathOperation::reconnect));
    }
    end.stop();
    other.stop();
    REQUIRE(world.run_until([&] { return end.under_way() == 0 && other.under_way() == 0; }));
    CHECK(end.wrong() == 0);
    CHECK(other.wrong() == 0);
    CHECK(world.client_end.resets == 0);
    for (End* one : {&end, &other}) {
        const MessageStatus status = one->service().status();
        CHECK(status.rendezvous > 100);
        CHECK(status.received - status.rendezvous > 100);
        CHECK(status.registrations == 0);
        CHECK(status.unexpected == 0);
    }
    world.session->close();
    REQUIRE(world.run_until([&] { return world.client_end.closed; }));
    world.server->close();
    REQUIRE(world.run_until([&] { return world.server_end.closed; }));
}
