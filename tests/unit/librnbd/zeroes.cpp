// Zeroes of a volume that comes back as one that makes none, with a server of the test's own: ours
// always makes them, a kernel's as its disk does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "librnbd/librnbd.h"
#include "rnbd/messages.h"
#include "rtrs/fabrics.h"
#include "rtrs/null_tracer.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

using namespace rnbd;
using rtrs::from_errno;

namespace {

constexpr std::uint32_t volume_bytes = 1u << 20;
constexpr std::byte old{0x55};

// One volume, of memory. It makes zeroes until it is asked for some; from then on it has to be
// opened again, and makes none.
class Disk final : public rtrs::ServerHandler {
  public:
    std::error_code on_session_up(rtrs::ServerSession&) override { return {}; }
    void on_session_down(rtrs::ServerSession&) override {}
    void on_closed() override { closed = true; }
    void on_request(rtrs::ServerOp& op) override {
        switch (request_type(op.message()).value_or(MessageType::close)) {
            case MessageType::session_info:
                SessionInfoResponse::to(*SessionInfoMessage::parse(op.message()), Feature::none)
                    .emit(op.data());
                return op.respond({}, SessionInfoResponse::wire_bytes);
            case MessageType::open:
                return open(op);
            case MessageType::io:
                return io(op);
            default:
                return op.respond({});
        }
    }

    std::vector<std::byte> content = std::vector<std::byte>(volume_bytes, old);
    std::uint32_t zeroes_asked_for = 0;
    std::uint32_t writes = 0;
    int writes_fail = 0;  // errno
    bool closed = false;

  private:
    void open(rtrs::ServerOp& op) const {
        const std::uint32_t zeroes_bytes = zeroes_asked_for == 0 ? volume_bytes / 2 : 0;
        OpenResponse{.device_id = 1 + zeroes_asked_for,
                     .sectors = volume_bytes / sector_bytes,
                     .max_hw_sectors = 8,
                     .max_write_zeroes_sectors = zeroes_bytes / sector_bytes,
                     .physical_block_bytes = sector_bytes,
                     .logical_block_bytes = sector_bytes}
            .emit(op.data());
        op.respond({}, OpenResponse::wire_bytes);
    }
    void io(rtrs::ServerOp& op) {
        const auto message = IoMessage::parse(op.message());
        if (message->operation == Operation::write_zeroes) {
            ++zeroes_asked_for;
            return op.respond(from_errno(ENOTCONN));
        }
        if (message->operation == Operation::write) {
            ++writes;
            if (writes_fail != 0) return op.respond(from_errno(writes_fail));
            std::memcpy(content.data() + message->sector * sector_bytes, op.data().data(),
                        message->bytes);
        }
        op.respond({});
    }
};

struct World {
    World() {
        server.emplace(rtrs::SessionEnvironment{*reactor, random, tracer},
                       rtrs::ServerOptions{.queue_depth = 8, .chunk_bytes = 36u << 10}, disk);
        const auto address = server->listen(*fabric, "127.0.0.1:0");
        REQUIRE(address);
        REQUIRE(rnbd_session_new(&session) == 0);
        REQUIRE(rnbd_session_set(session, "name", "unit-librnbd-zeroes") == 0);
        REQUIRE(rnbd_session_add_path(session, address->c_str()) == 0);
        REQUIRE(rnbd_session_start(session) == 0);
        REQUIRE(rnbd_volume_open(session, "vol", 0, &volume) == 0);
        until([&] { return rnbd_volume_wait(volume, 0) == 0; });
    }
    // A server that is there to answer the last words is not needed for them.
    ~World() {
        server->close();
        while (!disk.closed) turn();
        rnbd_session_free(session);
    }

    void turn() {
        rnbd_session_process(session, 0);
        reactor->run_once(std::chrono::milliseconds(1));
    }
    template <typename Done>
    void until(Done done) {
        while (!done()) turn();
    }
    int zeroed(std::uint64_t offset, std::uint64_t bytes, unsigned flags) {
        int result = 1;
        const auto answered = [](void* to, int error) { *static_cast<int*>(to) = error; };
        REQUIRE(rnbd_write_zeroes(volume, offset, bytes, flags, answered, &result) == 0);
        until([&] { return result != 1; });
        return result;
    }

    std::unique_ptr<rtrs::Reactor> reactor = std::move(*rtrs::Reactor::create());
    rtrs::Random random = rtrs::Random::from_entropy();
    rtrs::NullTracer tracer;
    std::unique_ptr<rtrs::Fabric> fabric = rtrs::make_tcp_fabric(*reactor, {});
    Disk disk;
    std::optional<rtrs::Server> server;
    rnbd_session* session = nullptr;
    rnbd_volume* volume = nullptr;
};

}  // namespace

TEST_CASE("librnbd: zeroes that a volume does not make any more are written") {
    World world;
    Disk& disk = world.disk;
    const std::uint32_t length = volume_bytes - 2 * sector_bytes;
    const auto flags = GENERATE(0u, unsigned{RNBD_FUA}, unsigned{RNBD_NO_HOLE});
    CHECK(world.zeroed(sector_bytes, length, flags) == 0);
    CHECK(disk.zeroes_asked_for == 2);
    CHECK(disk.writes > 2);
    const auto first = disk.content.begin() + sector_bytes;
    CHECK(std::all_of(first, first + length, [](std::byte b) { return b == std::byte{0}; }));
    CHECK(std::all_of(disk.content.begin(), first, [](std::byte b) { return b == old; }));
    CHECK(std::all_of(first + length, disk.content.end(), [](std::byte b) { return b == old; }));
}

TEST_CASE("librnbd: zeroes that cannot be written, either, have failed") {
    World world;
    world.disk.writes_fail = ENOSPC;
    CHECK(world.zeroed(0, volume_bytes, 0) == -ENOSPC);
    CHECK(world.disk.writes <= 2);
}
