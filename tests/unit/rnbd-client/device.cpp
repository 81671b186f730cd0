// Devices as their clients see them, with a volume in memory below.
#include "rnbd-client/device.h"

#include <catch2/catch.hpp>

#include "tests/unit/rnbd-client/nbd_world.h"

using namespace nbdtest;

TEST_CASE("device: the first error wins and is answered once, with its place") {
    fake::Settings settings = small_depth(64);
    settings.fails = [](const VolumeIo& io) {
        if (io.offset == 8192) return rtrs::from_errno(ENOSPC);
        return io.offset == 12288 ? rtrs::from_errno(EIO) : std::error_code();
    };
    Server server(settings);
    Client simple(server), structured(server);
    simple.greet();
    structured.greet(Style::structured);
    CHECK(simple.run(Command::read, 0, 32768).error == number(NbdError::nospc));
    const Reply reply = structured.run(Command::write, 0, 32768, 0, pattern(32768, 1));
    CHECK(reply.error == number(NbdError::nospc));
    CHECK(reply.type == Chunk::error_offset);
    CHECK(reply.error_offset == 8192);
    CHECK(structured.run(Command::read, 12288, 4096).type == Chunk::error);
    CHECK(server.device->counters().of(Command::read).errors == 2);
    CHECK(server.device->counters().of(Command::write).errors == 1);
    // The first by its place, whichever comes first.
    fake::settings().shuffled = true;
    for (int i = 0; i < 20; ++i) {
        CHECK(structured.run(Command::write, 0, 32768, 0, pattern(32768, 1)) == reply);
    }
}

TEST_CASE("device: the smallest blocks that a client was told of limit the volume's") {
    struct Told final : DeviceClient {
        explicit Told(std::uint32_t bytes) : DeviceClient(Kind::nbd) { block_bytes = bytes; }
        bool leaving() noexcept override { return false; }
        void on_other_left() override {}
        void end_leaving() override {}
        void add_stalls(std::vector<DeviceStall>&) const override {}
    };
    Server server(small_depth(64));
    const auto limit = [] { return fake::settings().blocks_limit; };
    Told large(4096), small(512);
    server.device->join(large);
    CHECK(limit() == 4096);
    server.device->join(small);
    CHECK(limit() == 512);
    server.device->set_kernel_blocks(1024);
    server.device->leave(small);
    CHECK(limit() == 1024);
    server.device->set_kernel_blocks(0);
    CHECK(limit() == 4096);
    server.device->leave(large);
    CHECK(limit() == 0);
}

TEST_CASE("device: FUA is the volume's, or a flush after the write") {
    for (const bool native : {true, false}) {
        fake::Settings settings = small_depth(64);
        settings.geometry.force_unit_access = native;
        settings.held = true;
        Server server(settings);
        Client client(server);
        client.greet();
        client.ask(Command::write, 0, 8192, command_flag::fua, pattern(8192, 1));
        server.until([] { return fake::waiting() == 2; });
        CHECK(fake::log()[0].io.force_unit_access == native);
        fake::complete();
        CHECK(fake::waiting() == (native ? 0 : 1));
        if (!native) CHECK(fake::log()[2].io.operation == VolumeOperation::flush);
        fake::complete();
        CHECK(client.next()->second.error == 0);
    }
}

TEST_CASE("device: TRIM and WRITE_ZEROES go over the whole range in the volume's steps") {
    fake::Settings settings = small_depth(4);
    Server server(settings);
    Client client(server);
    client.greet();
    std::memset(fake::memory(), 0x55, 64u << 20);
    CHECK(client.run(Command::write_zeroes, 512, (40u << 20) + 512).error == 0);
    CHECK(fake::memory()[511] == std::byte{0x55});
    CHECK(std::all_of(fake::memory() + 512, fake::memory() + (40u << 20) + 1024,
                      [](std::byte b) { return b == std::byte{0}; }));
    CHECK(fake::memory()[(40u << 20) + 1024] == std::byte{0x55});
    CHECK(client.run(Command::trim, 0, 64u << 20, command_flag::fua).error == 0);
    fake::settings().held = true;
    client.ask(Command::write_zeroes, 0, 512, command_flag::no_hole | command_flag::fast_zero);
    server.until([] { return fake::waiting() == 1; });
    CHECK(fake::log().back().io.no_unmap);
    CHECK(fake::log().back().io.fast_only);
}

TEST_CASE("device: a TRIM that the volume cannot do any more is done") {
    fake::Settings settings = small_depth(4);
    int discards = 0;
    settings.fails = [&](const VolumeIo& io) {
        if (io.operation != VolumeOperation::discard) return std::error_code();
        ++discards;
        return rtrs::from_errno(EOPNOTSUPP);
    };
    Server server(settings);
    Client client(server);
    client.greet();
    CHECK(client.run(Command::trim, 0, 64u << 20).error == 0);
    CHECK(discards <= 4);
    // What the flush behind it says is no hint.
    fake::settings().fails = [](const VolumeIo& io) {
        return io.operation == VolumeOperation::flush ? rtrs::from_errno(EOPNOTSUPP)
                                                      : std::error_code();
    };
    CHECK(client.run(Command::trim, 0, 4096, command_flag::fua).error != 0);
}

TEST_CASE("device: zeroes that the volume does not make any more are written") {
    fake::Settings settings = small_depth(4);
    int asked = 0, written = 0, written_max = 1 << 30;
    settings.fails = [&](const VolumeIo& io) {
        if (io.operation == VolumeOperation::write) {
            ++written;
            return written > written_max ? rtrs::from_errno(ENOSPC) : std::error_code();
        }
        if (io.operation != VolumeOperation::write_zeroes) return std::error_code();
        ++asked;
        return rtrs::from_errno(EOPNOTSUPP);
    };
    Server server(settings);
    Client client(server);
    client.greet(Style::structured);
    // Used permits, so that their memory is not zero by chance.
    const std::uint32_t used = 3 * settings.max_io_bytes;
    CHECK(client.run(Command::write, 0, used, 0, pattern(used, 2)).error == 0);
    const std::uint32_t length = (4u << 20) + 512;
    std::memset(fake::memory(), 0x55, length + 1024);
    CHECK(client.run(Command::write_zeroes, 512, length, command_flag::fua).error == 0);
    CHECK(asked == 5);
    CHECK(fake::memory()[511] == std::byte{0x55});
    CHECK(std::all_of(fake::memory() + 512, fake::memory() + 512 + length,
                      [](std::byte b) { return b == std::byte{0}; }));
    CHECK(fake::memory()[512 + length] == std::byte{0x55});
    // Fast ones are not written, and what fails for another reason has failed.
    const int before = written;
    CHECK(client.run(Command::write_zeroes, 0, 512, command_flag::fast_zero).error ==
          number(NbdError::notsup));
    CHECK(written == before);
    written_max = before + 10;
    CHECK(client.run(Command::write_zeroes, 0, 1u << 20).error == number(NbdError::nospc));
    CHECK(written == written_max + 1);
}

TEST_CASE("device: a volume without write-zeroes gets written zeroes, and is never fast") {
    fake::Settings settings = small_depth(4);
    settings.geometry.write_zeroes_bytes_max = 0;
    settings.geometry.discard_bytes_max = 0;
    settings.geometry.fast_zero = false;
    Server server(settings);
    Client client(server);
    client.greet();
    std::memset(fake::memory(), 0x55, 1u << 20);
    CHECK(client.run(Command::write_zeroes, 512, 100 * 512).error == 0);
    CHECK(std::all_of(fake::memory() + 512, fake::memory() + 101 * 512,
                      [](std::byte b) { return b == std::byte{0}; }));
    CHECK(fake::memory()[101 * 512] == std::byte{0x55});
    CHECK(client.run(Command::write_zeroes, 0, 512, command_flag::fast_zero).error ==
          number(NbdError::notsup));
    CHECK(client.run(Command::trim, 0, 512).error == number(NbdError::inval));
}

TEST_CASE("device: a volume that comes back with other abilities changes no promise") {
    fake::Settings settings = small_depth(4);
    settings.held = true;
    settings.geometry.force_unit_access = false;
    settings.geometry.discard_bytes_max = 0;
    Server server(settings);
    Client client(server);
    client.greet();
    // Sent without FUA: it is the flush that makes it durable, whatever the volume is by now.
    client.ask(Command::write, 0, 512, command_flag::fua, pattern(512, 1));
    server.until([] { return fake::waiting() == 1; });
    fake::settings().geometry.force_unit_access = true;
    fake::complete();
    REQUIRE(fake::waiting() == 1);
    CHECK(fake::log().back().io.operation == VolumeOperation::flush);
    fake::complete();
    CHECK(client.next()->second.error == 0);
    // Used permits, so that their memory is not zero by chance.
    const std::uint32_t length = 4 * fake::settings().max_io_bytes;
    client.ask(Command::write, 0, length / 2, 0, pattern(length / 2, 2));
    server.until([] { return fake::waiting() == 2; });
    fake::complete();
    CHECK(client.next()->second.error == 0);
    fake::settings().geometry.write_zeroes_bytes_max = 512;
    std::memset(fake::memory(), 0x55, length);
    client.ask(Command::write_zeroes, 0, length);
    server.until([] { return fake::waiting() > 0; });
    fake::complete();
    fake::settings().geometry.write_zeroes_bytes_max = 0;
    while (fake::waiting() > 0) fake::complete();
    CHECK(client.next()->second.error == 0);
    CHECK(std::all_of(fake::memory(), fake::memory() + length,
                      [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("device: block status is the volume's where it can tell, else data") {
    fake::Settings settings;
    settings.extents = {{8192, ExtentFlag::none}, {1u << 30, ExtentFlag::hole | ExtentFlag::zero}};
    Server server(settings);
    Client client(server);
    client.greet(Style::structured);
    CHECK(client.run(Command::block_status, 0, 65536).data ==
          ByteString().u32(1).u32(8192).u32(0).u32(57344).u32(3).bytes());
    CHECK(client.run(Command::block_status, 0, 65536, command_flag::req_one).data ==
          ByteString().u32(1).u32(8192).u32(0).bytes());
    fake::settings().extents.clear();  // an error
    CHECK(client.run(Command::block_status, 0, 65536).data ==
          ByteString().u32(1).u32(65536).u32(0).bytes());
    fake::settings().geometry.extents = false;
    CHECK(client.run(Command::block_status, 0, 65536).data ==
          ByteString().u32(1).u32(65536).u32(0).bytes());
}

TEST_CASE("device: requests are checked against the size of now") {
    Server server;
    Client client(server);
    client.greet();
    CHECK(client.run(Command::read, 64u << 20, 512).error == number(NbdError::inval));
    fake::settings().geometry.size_bytes = 32u << 20;
    CHECK(client.run(Command::read, 32u << 20, 512).error == number(NbdError::inval));
    CHECK(client.run(Command::write, 32u << 20, 512, 0, pattern(512, 1)).error ==
          number(NbdError::nospc));
}

TEST_CASE("device: a read-only volume says so and refuses changes") {
    fake::Settings settings;
    settings.access = AccessMode::read_only;
    Server server(settings);
    CHECK((server.device->describe().transmission_flags & transmission_flag::read_only) != 0);
    Client client(server);
    client.greet();
    CHECK(client.run(Command::write, 0, 512, 0, pattern(512, 1)).error == number(NbdError::perm));
    CHECK(client.run(Command::read, 0, 512).error == 0);
}

TEST_CASE("device: a volume that is not open refuses clients with the reason") {
    fake::Settings settings;
    settings.state = VolumeState::opening;
    settings.reason = "access denied";
    settings.open_error = rtrs::from_errno(EACCES);
    Server server(settings);
    Client client(server);
    client.push(ByteString().u32(3).option(Option::go, name_field("disk").u16(0)));
    client.pull(18);
    const auto expected =
        ByteString().answer(Option::go, OptionReply::error_policy,
                            ByteString().text("volume vol1 is not open: access denied"));
    CHECK(client.pull(expected.size()) == expected.bytes());
}
