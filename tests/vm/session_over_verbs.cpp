// The core over the verbs fabric: a session with two paths to a server on the same device, whose
// requests go on while its paths are torn down, and when one of its queue pairs falls silent. In
// the contract suite the fabric is alone.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "rtrs/client.h"
#include "rtrs/fabric/fault/faulty_fabric.h"
#include "rtrs/fabrics.h"
#include "rtrs/server.h"
#include "tests/print_tracer.h"

using namespace rtrs;

namespace {

constexpr std::uint32_t block_bytes = 4096;
constexpr std::uint32_t blocks = 1024;
constexpr std::uint32_t most_blocks = 30;  // of one request: 120 KiB

struct NotingTracer final : testing::PrintTracer {
    void trace(TraceLevel level, std::string_view subsystem, std::string_view subject,
               std::string_view text) override {
        all += text;
        PrintTracer::trace(level, subsystem, subject, text);
    }
    std::string all;
};

// A disk in memory. A request's message is the number of its first block.
class Disk final : public ServerHandler {
  public:
    Disk() : data_(std::size_t{blocks} * block_bytes) {}
    std::error_code on_session_up(ServerSession&) override { return {}; }
    void on_session_down(ServerSession&) override {}
    void on_closed() override { closed = true; }
    void on_request(ServerOp& op) override {
        std::uint32_t block = 0;
        std::memcpy(&block, op.message().data(), sizeof block);
        const MutableBytes data = op.data();
        std::byte* at = data_.data() + std::size_t{block} * block_bytes;
        if (op.direction() == Direction::write) {
            std::memcpy(at, data.data(), data.size());
            return op.respond({});
        }
        std::memcpy(data.data(), at, data.size());
        op.respond({}, static_cast<std::uint32_t>(data.size()));
    }
    bool closed = false;

  private:
    std::vector<std::byte> data_;
};

// Keeps `depth` requests in the air; no two of them touch the same block. Every block says how
// often it was written.
class Workload final : public ClientSessionHandler {
  public:
    Workload(SessionEnvironment environment, ClientSessionOptions options, std::uint32_t depth)
        : session(environment, std::move(options), *this),
          random_(environment.random),
          slots_(depth),
          versions_(blocks),
          busy_(blocks) {}

    void on_link_up() override {
        for (Slot& slot : slots_) {
            if (slot.running && session.held(slot.permit)) session.resume(slot.permit);
        }
        fill();
    }
    void on_link_down(std::error_code) override { ++link_losses; }
    void on_closed() override { closed = true; }

    void stop() {
        stopping_ = true;
        if (running_ == 0) session.close();
    }

    ClientSession session;
    std::uint64_t answered = 0;
    std::uint64_t errors = 0;
    std::uint64_t mismatches = 0;
    std::uint64_t link_losses = 0;
    bool closed = false;

  private:
    struct Slot {
        Workload* owner = nullptr;
        bool running = false;
        PermitId permit{};
        Direction direction = Direction::write;
        std::uint32_t block = 0;
        std::uint32_t count = 0;
    };

    void fill() {
        for (Slot& slot : slots_) {
            if (!slot.running && !stopping_) start(slot);
        }
    }

    bool take_blocks(Slot& slot) {
        slot.count = 1 + static_cast<std::uint32_t>(random_.below(most_blocks));
        slot.block = static_cast<std::uint32_t>(random_.below(blocks - slot.count));
        for (std::uint32_t i = 0; i < slot.count; ++i) {
            if (busy_[slot.block + i]) return false;
        }
        for (std::uint32_t i = 0; i < slot.count; ++i) busy_[slot.block + i] = true;
        return true;
    }

    void start(Slot& slot) {
        auto permit = session.try_take();
        if (!permit) return;
        while (!take_blocks(slot)) {
        }
        slot.owner = this;
        slot.running = true;
        slot.permit = permit->id();
        slot.direction = random_.below(2) == 0 ? Direction::write : Direction::read;
        ++running_;
        if (slot.direction == Direction::write) write_pattern(slot, permit->payload());
        std::byte message[8]{};
        std::memcpy(message, &slot.block, sizeof slot.block);
        session.submit(std::move(*permit),
                       {.direction = slot.direction,
                        .message = message,
                        .payload_bytes = slot.count * block_bytes,
                        .responded =
                            [](void* context, Permit its, std::error_code error) {
                                Slot& done = *static_cast<Slot*>(context);
                                done.owner->responded(done, std::move(its), error);
                            },
                        .context = &slot});
    }

    std::uint32_t stamp(std::uint32_t block, std::uint32_t at) const {
        return versions_[block] * 2654435761u + block * 40503u + at;
    }

    void write_pattern(const Slot& slot, MutableBytes payload) {
        for (std::uint32_t i = 0; i < slot.count; ++i) {
            ++versions_[slot.block + i];
            for (std::uint32_t at = 0; at < block_bytes; at += 4) {
                const std::uint32_t value = stamp(slot.block + i, at);
                std::memcpy(payload.data() + i * block_bytes + at, &value, sizeof value);
            }
        }
    }

    bool has_pattern(const Slot& slot, Bytes payload) const {
        for (std::uint32_t i = 0; i < slot.count; ++i) {
            if (versions_[slot.block + i] == 0) continue;
            for (std::uint32_t at = 0; at < block_bytes; at += 4) {
                std::uint32_t value = 0;
                std::memcpy(&value, payload.data() + i * block_bytes + at, sizeof value);
                if (value != stamp(slot.block + i, at)) return false;
            }
        }
        return true;
    }

    void responded(Slot& slot, Permit permit, std::error_code error) {
        ++answered;
        if (error) ++errors;
        if (!error && slot.direction == Direction::read && !has_pattern(slot, permit.payload())) {
            ++mismatches;
        }
        for (std::uint32_t i = 0; i < slot.count; ++i) busy_[slot.block + i] = false;
        slot.running = false;
        --running_;
        permit = Permit();
        if (stopping_) {
            if (running_ == 0) session.close();
            return;
        }
        start(slot);
    }

    Random& random_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> versions_;
    std::vector<bool> busy_;
    std::uint32_t running_ = 0;
    bool stopping_ = false;
};

struct World {
    explicit World(const ServerOptions& options) : random(11) {
        const char* host = std::getenv("RNBD_RDMA_HOST");
        if (host == nullptr) {
            std::cerr << "skipped: RNBD_RDMA_HOST names no RDMA device's address\n";
            std::exit(77);
        }
        local = host;
        reactor = Reactor::create().value();
        fabric = make_verbs_fabric(*reactor, {.local_host = local, .tracer = &tracer}).value();
        server_fabric =
            make_verbs_fabric(*reactor, {.local_host = local, .tracer = &tracer}).value();
        faults.emplace(*server_fabric, *reactor, FaultOptions{});
        server.emplace(environment(), options, disk);
        for (std::string& address : addresses) {
            address = server->listen(*faults, local + ":0").value();
        }
    }
    SessionEnvironment environment() { return {*reactor, random, tracer}; }
    // False: not within a generous time.
    template <typename Done>
    bool run_until(Done done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            reactor->run_once(std::chrono::milliseconds(50));
        }
        return true;
    }

    NotingTracer tracer;
    std::string local;
    Random random;
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Fabric> fabric, server_fabric;
    std::optional<FaultyFabric> faults;
    Disk disk;
    std::optional<Server> server;
    std::string addresses[2];
};

}  // namespace

TEST_CASE("a session over verbs reads back what it wrote, through the loss of each of its paths") {
    const bool always_invalidate = GENERATE(true, false);
    const auto protection = GENERATE(Protection::exactly_once, Protection::fenced);
    CAPTURE(always_invalidate, to_string(protection));
    World world({.queue_depth = 64,
                 .always_invalidate = always_invalidate,
                 .heartbeat_timeout = std::chrono::seconds(20),
                 .protection = protection});
    Workload work(world.environment(),
                  {.name = "client",
                   .paths = {{world.fabric.get(), "", world.addresses[0]},
                             {world.fabric.get(), "", world.addresses[1]}},
                   .io_connections = 2,
                   .connect_timeout = std::chrono::seconds(20),
                   .heartbeat_timeout = std::chrono::seconds(20),
                   .request_deadline = std::chrono::seconds(20),
                   .protection = protection},
                  32);
    REQUIRE(!work.session.open());
    for (int round = 0; round < 6; ++round) {
        const std::uint64_t before = work.answered;
        const auto path = [&] {
            return work.session.status().paths[static_cast<std::size_t>(round % 2)];
        };
        // It was lost two rounds ago, and may still be dialled, which is refused.
        REQUIRE(world.run_until(
            [&] { return work.answered >= before + 300 && path().state == PathState::connected; }));
        REQUIRE(!work.session.operate_path(path().label, ClientSession::PathOperation::reconnect));
    }
    // Both come back.
    REQUIRE(world.run_until([&] {
        for (const PathStatus& path : work.session.status().paths) {
            if (path.state != PathState::connected) return false;
        }
        return true;
    }));
    work.stop();
    REQUIRE(world.run_until([&] { return work.closed; }));
    CHECK(work.mismatches == 0);
    CHECK(work.errors == 0);
    world.server->close();
    REQUIRE(world.run_until([&] { return world.disk.closed; }));
}

// As where a device sends nothing any more, and does not say so: what comes is acknowledged,
// heartbeats are answered over the first connection, and requests on the other one wait.
TEST_CASE("a path of which one queue pair is silent without an error is given up") {
    World world({.queue_depth = 64, .heartbeat_timeout = std::chrono::seconds(20)});
    Workload work(world.environment(),
                  {.name = "client",
                   .paths = {{world.fabric.get(), "", world.addresses[0]}},
                   .io_connections = 1,
                   .connect_timeout = std::chrono::seconds(20),
                   .heartbeat_interval = std::chrono::milliseconds(500),
                   .heartbeat_timeout = std::chrono::seconds(4),
                   .request_deadline = std::chrono::milliseconds(200)},
                  32);
    REQUIRE(!work.session.open());
    REQUIRE(world.run_until([&] { return work.answered >= 300; }));
    // The connections of a path are made one after the other.
    world.faults->stall_newest(std::chrono::hours(24));
    const auto is_found = [&] {
        return world.tracer.all.find("answers nothing, though") != std::string::npos;
    };
    REQUIRE(world.run_until(is_found));
    const std::uint64_t before = work.answered;
    REQUIRE(world.run_until([&] { return work.answered >= before + 300; }));
    work.stop();
    REQUIRE(world.run_until([&] { return work.closed; }));
    CHECK(work.mismatches == 0);
    CHECK(work.errors == 0);
    world.server->close();
    REQUIRE(world.run_until([&] { return world.disk.closed; }));
}
