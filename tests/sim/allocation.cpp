// Once a session is up, requests allocate nothing: neither the core nor the simulated fabric.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>

#include "tests/sim/session_world.h"

namespace {
std::uint64_t allocations = 0;
}

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    ++allocations;
    return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace simtest;

namespace {

class Echo final : public ServerHandler {
  public:
    std::error_code on_session_up(ServerSession&) override { return {}; }
    void on_request(ServerOp& op) override {
        if (op.direction() == Direction::read) op.use_answer_buffer();
        op.respond({}, static_cast<std::uint32_t>(op.data().size()));
    }
    void on_session_down(ServerSession&) override {}
    void on_closed() override { closed = true; }
    bool closed = false;
};

// Requests that beget requests.
class Mill final : public ClientSessionHandler {
  public:
    Mill(SessionEnvironment environment, ClientSessionOptions options)
        : session(environment, std::move(options), *this) {}
    void on_link_up() override {}
    void on_link_down(std::error_code) override {}
    void on_closed() override { closed = true; }
    void submit(Permit permit) {
        ++made;
        const bool write = made % 2 == 0;
        session.submit(std::move(permit), {.direction = write ? Direction::write : Direction::read,
                                           .message = message,
                                           .payload_bytes = made % 3 == 0 ? 4096u : 512u,
                                           .responded = responded,
                                           .context = this});
    }
    static void responded(void* self, Permit permit, std::error_code) {
        auto& mill = *static_cast<Mill*>(self);
        if (++mill.answered + mill.session.permits_max() <= mill.wanted)
            mill.submit(std::move(permit));
    }
    void run(SimWorld& world, std::uint64_t count) {
        wanted = answered + count;
        while (auto permit = session.try_take()) submit(std::move(*permit));
        REQUIRE(world.run_until([&] { return answered == made; }, 100s));
    }
    std::byte message[32] = {};
    std::uint64_t made = 0, answered = 0, wanted = 0;
    bool closed = false;
    ClientSession session;
};

}  // namespace

TEST_CASE("10,000 requests allocate nothing") {
    SimOptions sim;
    sim.seed = 3;
    SimWorld world(sim);
    SimHost& server_host = world.add_host({"10.0.0.1"});
    SimHost& client_host = world.add_host({"10.0.0.2"});
    Recorder recorder(world);
    Echo echo;
    ServerOptions options{.queue_depth = 32, .chunk_bytes = 8192};
    options.always_invalidate = GENERATE(true, false);
    Server server({server_host.clock(), world.random(), recorder}, options, echo);
    REQUIRE(server.listen(server_host.fabric(), "10.0.0.1:1235"));
    ClientSessionOptions client;
    client.name = "host-a";
    client.paths = {{&client_host.fabric(), "", "10.0.0.1:1235"}};
    client.io_connections = 2;
    Mill mill({client_host.clock(), world.random(), recorder}, client);
    REQUIRE(!mill.session.open());
    REQUIRE(world.run_until([&] { return mill.session.link_up(); }, 1s));
    mill.run(world, 20000);  // the simulator's own queues find their sizes

    const std::uint64_t before = allocations;
    mill.run(world, 10000);
    // run() and run_until() of the test have a few of their own.
    CHECK(allocations - before <= 3);

    mill.session.close();
    CHECK(world.run_until([&] { return mill.closed; }, 1s));
    server.close();
    CHECK(world.run_until([&] { return echo.closed; }, 1s));
}
