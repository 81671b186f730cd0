// P6: remote access is checked on every operation.
#include <catch2/catch.hpp>

#include "tests/contract/fabric/pair.h"
#include "tests/skip.h"

using namespace rtrs;
using namespace rtrs::contract;

namespace {

constexpr std::byte untouched{0x5a};

// A connected pair whose server offers the middle one of three pages in several ways.
struct Offer : Pair {
    Offer() : memory(3 * Memory::page) {
        memory.fill(untouched);
        const MutableBytes middle = memory.part(Memory::page, Memory::page);
        readable = got(server_domain->register_memory(middle, Access::remote_read));
        writable = got(server_domain->register_memory(middle, Access::remote_write));
        local = got(server_domain->register_memory(middle, Access::local));
        all = got(server_domain->register_memory(memory.all(), Access::local));
        client_memory.pattern(0, Memory::page * 2, 1);
        connect();
    }
    ~Offer() {
        // Regions end after the connection that might use them.
        for (Peer* peer : {&client, &server}) {
            if (peer->endpoint && peer->drained == 0) peer->disconnect();
        }
        under->pump_until(
            [&] { return client.drained == 1 && (!server.endpoint || server.drained == 1); });
    }

    // Posts one access and something harmless behind it: the access must be refused, the
    // connection fail, and no byte change on either side.
    void refused(WorkOpcode opcode, RemoteBuffer remote, std::uint32_t bytes) {
        const Segment segment = client_memory.segment(0, bytes);
        const WorkRequest chain[] = {
            {.opcode = opcode, .context = 1, .local = {&segment, 1}, .remote = remote},
            {.opcode = WorkOpcode::write_immediate, .signal = Signal::completion, .context = 2}};
        REQUIRE(!client.post(chain));
        pump_drained();
        // A write may be complete when it is on its way; a read cannot be.
        for (const Completion& each : client.of(CompletionOpcode::send)) {
            CHECK((opcode != WorkOpcode::read || each.status != CompletionStatus::success));
        }
        CHECK(client.reason);
        CHECK(server.reason);
        CHECK(server.receives == 0);
        CHECK(memory.all_are(untouched));
        CHECK(client_memory.has_pattern(0, Memory::page * 2, 1));
    }

    void accepted(RemoteBuffer remote, std::uint32_t bytes) {
        const Segment segment = client_memory.segment(0, bytes);
        const std::size_t before = client.sends;
        REQUIRE(!client.post({.opcode = WorkOpcode::write,
                              .signal = Signal::completion,
                              .local = {&segment, 1},
                              .remote = remote}));
        pump([&] { return client.sends == before + 1 || client.disconnected > 0; });
        CHECK(client.disconnected == 0);
    }

    std::unique_ptr<MemoryWindows> windows_on(MemoryRegion& region, std::uint32_t count = 1) {
        auto windows = server_domain->create_windows(region, count);
        REQUIRE(windows.has_value());
        return std::move(*windows);
    }

    void bind(MemoryWindow window, MutableBytes range) {
        const Segment segment{range.data(), static_cast<std::uint32_t>(range.size())};
        const std::size_t before = server.sends;
        REQUIRE(!server.post({.opcode = WorkOpcode::bind_window,
                              .signal = Signal::completion,
                              .local = {&segment, 1},
                              .window = window}));
        pump([&] { return server.sends == before + 1; });
    }

    void revoke(MemoryWindow window) {
        server.revoke(window);
        pump([&] { return server.revokes_pending == 0; });
    }

    Memory memory;
    std::unique_ptr<MemoryRegion> readable, writable, local, all;
};

RemoteBuffer moved(RemoteBuffer remote, std::int64_t by) {
    remote.address += static_cast<std::uint64_t>(by);
    return remote;
}

}  // namespace

TEST_CASE("P6: access inside the range and right is granted, to the last byte") {
    Offer offer;
    offer.accepted(offer.writable->remote(0, 0), Memory::page);
    offer.accepted(offer.writable->remote(Memory::page - 1, 0), 1);
    CHECK(offer.memory.data()[Memory::page - 1] == untouched);
    CHECK(offer.memory.data()[2 * Memory::page] == untouched);
}

TEST_CASE("P6: an unknown key is refused") {
    const WorkOpcode opcode =
        GENERATE(WorkOpcode::write, WorkOpcode::write_immediate, WorkOpcode::read);
    const Key key = GENERATE(Key{0}, Key{1}, Key{0x12345678}, Key{0xffffffff});
    Offer offer;
    RemoteBuffer remote = offer.writable->remote(0, 0);
    remote.key = key;
    offer.refused(opcode, remote, 64);
}

TEST_CASE("P6: a key is refused after its region was deregistered") {
    Offer offer;
    const RemoteBuffer remote = offer.writable->remote(0, 0);
    offer.writable.reset();
    offer.refused(WorkOpcode::write, remote, 64);
}

TEST_CASE("P6: a key of a deregistered region stays dead when its place is taken again") {
    Offer offer;
    const RemoteBuffer remote = offer.writable->remote(0, 0);
    offer.writable.reset();
    offer.writable = got(offer.server_domain->register_memory(
        offer.memory.part(Memory::page, Memory::page), Access::remote_write));
    CHECK(offer.writable->key() != remote.key);
    offer.refused(WorkOpcode::write, remote, 64);
}

TEST_CASE("P6: a write without the right is refused") {
    const WorkOpcode opcode = GENERATE(WorkOpcode::write, WorkOpcode::write_immediate);
    SECTION("into readable memory") {
        Offer offer;
        offer.refused(opcode, offer.readable->remote(0, 0), 64);
    }
    SECTION("into local memory") {
        Offer offer;
        offer.refused(opcode, offer.local->remote(0, 0), 64);
    }
}

TEST_CASE("P6: a read without the right is refused") {
    SECTION("from writable memory") {
        Offer offer;
        offer.refused(WorkOpcode::read, offer.writable->remote(0, 0), 64);
    }
    SECTION("from local memory") {
        Offer offer;
        offer.refused(WorkOpcode::read, offer.local->remote(0, 0), 64);
    }
}

TEST_CASE("P6: one byte out of range is refused at both ends") {
    const WorkOpcode opcode =
        GENERATE(WorkOpcode::write, WorkOpcode::write_immediate, WorkOpcode::read);
    Offer offer;
    MemoryRegion& region = opcode == WorkOpcode::read ? *offer.readable : *offer.writable;
    SECTION("below") { offer.refused(opcode, moved(region.remote(0, 0), -1), 64); }
    SECTION("above") { offer.refused(opcode, region.remote(Memory::page - 63, 0), 64); }
    SECTION("longer than the region") { offer.refused(opcode, region.remote(0, 0), 4097); }
    SECTION("just behind it") { offer.refused(opcode, region.remote(Memory::page, 0), 1); }
}

TEST_CASE("P6: an address that wraps around is refused") {
    const WorkOpcode opcode = GENERATE(WorkOpcode::write, WorkOpcode::read);
    Offer offer;
    RemoteBuffer remote =
        (opcode == WorkOpcode::read ? *offer.readable : *offer.writable).remote(0, 0);
    remote.address = ~std::uint64_t{0} - 31;
    offer.refused(opcode, remote, 64);
}

TEST_CASE("P6: keys of another domain are refused") {
    Offer offer;
    auto domain = got(offer.under->server().create_domain());
    auto region = got(domain->register_memory(offer.memory.part(Memory::page, Memory::page),
                                              Access::remote_write | Access::remote_read));
    SECTION("write") { offer.refused(WorkOpcode::write, region->remote(0, 0), 64); }
    SECTION("read") { offer.refused(WorkOpcode::read, region->remote(0, 0), 64); }
}

TEST_CASE("P6: a window opens its range for writing and nothing else") {
    Offer offer;
    auto windows = offer.windows_on(*offer.writable);
    const MemoryWindow window{windows.get()};
    const MutableBytes range = offer.memory.part(Memory::page + 100, 200);
    offer.bind(window, range);
    const RemoteBuffer remote{reinterpret_cast<std::uint64_t>(range.data()), window.key(), 200};
    SECTION("inside") {
        offer.accepted(remote, 200);
        CHECK(offer.memory.data()[Memory::page + 99] == untouched);
        CHECK(offer.memory.data()[Memory::page + 300] == untouched);
    }
    if (offer.under->enforces_window_bounds()) {
        SECTION("below") { offer.refused(WorkOpcode::write, moved(remote, -1), 10); }
        SECTION("above") { offer.refused(WorkOpcode::write, moved(remote, 191), 10); }
    } else {
        rnbd::testing::skip_part(
            "this device checks a window's key, but not its bounds inside the region");
    }
    SECTION("read") { offer.refused(WorkOpcode::read, remote, 10); }
}

TEST_CASE("P6: a revoked window is refused") {
    Offer offer;
    auto windows = offer.windows_on(*offer.writable);
    const MemoryWindow window{windows.get()};
    offer.bind(window, offer.memory.part(Memory::page, Memory::page));
    RemoteBuffer remote = offer.writable->remote(0, 0);
    remote.key = window.key();
    offer.revoke(window);
    offer.refused(WorkOpcode::write, remote, 64);
}

TEST_CASE("P6: a window that is bound again has a new key, and the old one is refused") {
    Offer offer;
    auto windows = offer.windows_on(*offer.writable);
    const MemoryWindow window{windows.get()};
    const MutableBytes middle = offer.memory.part(Memory::page, Memory::page);
    offer.bind(window, middle);
    RemoteBuffer before = offer.writable->remote(0, 0);
    before.key = window.key();
    offer.revoke(window);
    offer.bind(window, middle);
    RemoteBuffer after = before;
    after.key = window.key();
    REQUIRE(after.key != before.key);
    SECTION("new key") { offer.accepted(after, 64); }
    SECTION("old key") { offer.refused(WorkOpcode::write, before, 64); }
}

TEST_CASE("P6: windows of one set live and die apart") {
    Offer offer;
    auto windows = offer.windows_on(*offer.writable, 3);
    RemoteBuffer remotes[3];
    for (std::uint32_t i = 0; i < 3; ++i) {
        const MemoryWindow window{windows.get(), i};
        offer.bind(window, offer.memory.part(Memory::page + i * 256, 256));
        remotes[i] = offer.writable->remote(i * 256, 0);
        remotes[i].key = window.key();
    }
    CHECK(remotes[0].key != remotes[1].key);
    CHECK(remotes[1].key != remotes[2].key);
    offer.revoke({windows.get(), 1});
    SECTION("its neighbours") {
        offer.accepted(remotes[0], 256);
        offer.accepted(remotes[2], 256);
    }
    SECTION("itself") { offer.refused(WorkOpcode::write, remotes[1], 64); }
}

TEST_CASE("P6: a destroyed window is refused") {
    Offer offer;
    auto windows = offer.windows_on(*offer.writable);
    const MemoryWindow window{windows.get()};
    offer.bind(window, offer.memory.part(Memory::page, Memory::page));
    RemoteBuffer remote = offer.writable->remote(0, 0);
    remote.key = window.key();
    windows.reset();
    offer.refused(WorkOpcode::write, remote, 64);
}

TEST_CASE("P2: a window is open before the message posted after its bind is seen") {
    Offer offer;
    auto windows = offer.windows_on(*offer.writable);
    const MemoryWindow window{windows.get()};
    for (std::uint64_t round = 0; round < 10; ++round) {
        const Segment range = offer.memory.segment(Memory::page, Memory::page);
        REQUIRE(!offer.server.post(
            {.opcode = WorkOpcode::bind_window, .local = {&range, 1}, .window = window}));
        REQUIRE(!offer.server.post({.opcode = WorkOpcode::write_immediate,
                                    .signal = Signal::completion,
                                    .immediate = window.key()}));
        offer.pump([&] { return offer.client.receives == round + 1; });
        RemoteBuffer remote = offer.writable->remote(0, 0);
        remote.key = offer.client.of(CompletionOpcode::receive_immediate).back().immediate;
        offer.accepted(remote, Memory::page);
        offer.pump([&] { return offer.server.sends == round + 1; });
        offer.revoke(window);
    }
}

TEST_CASE("send with invalidate: the window is dead before the message is seen") {
    Offer offer;
    if (!offer.under->has_remote_invalidation()) {
        rnbd::testing::skip("this fabric's windows cannot be invalidated by the peer");
        return;
    }
    // The client invalidates the server's window.
    auto windows = offer.windows_on(*offer.writable);
    const MemoryWindow window{windows.get()};
    offer.bind(window, offer.memory.part(Memory::page, Memory::page));
    RemoteBuffer remote = offer.writable->remote(0, 0);
    remote.key = window.key();
    const Segment segment = offer.client_memory.segment(0, 32);
    REQUIRE(!offer.client.post({.opcode = WorkOpcode::send_invalidate,
                                .signal = Signal::completion,
                                .local = {&segment, 1},
                                .invalidate = remote.key}));
    offer.pump([&] { return offer.server.receives == 1 && offer.client.sends == 1; });
    const Completion completion = offer.server.completions.back();
    CHECK(completion.opcode == CompletionOpcode::receive_invalidate);
    CHECK(completion.invalidated == remote.key);
    CHECK(completion.bytes == 32);
    const Segment target = offer.client_memory.segment(0, 64);
    REQUIRE(!offer.client.post({.opcode = WorkOpcode::write,
                                .signal = Signal::completion,
                                .local = {&target, 1},
                                .remote = remote}));
    offer.pump_drained();
    CHECK(offer.client.reason);
    CHECK(offer.memory.all_are(untouched));
}

TEST_CASE("P6: a send with invalidate of an unknown key fails the connection") {
    Offer offer;
    REQUIRE(!offer.client.post({.opcode = WorkOpcode::send_invalidate,
                                .signal = Signal::completion,
                                .invalidate = 0x12345678}));
    offer.pump_drained();
    CHECK(offer.client.reason);
    CHECK(offer.server.receives == 0);
}

TEST_CASE("register_memory: an empty range is refused with EINVAL") {
    Offer offer;
    auto region = offer.server_domain->register_memory({}, Access::local);
    REQUIRE(!region);
    CHECK(region.error() == from_errno(EINVAL));
}
