#include "rnbd-client/nbd/transmission.h"

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>

#include "tests/unit/rnbd-client/nbd_bytes.h"

using namespace rnbd::nbd;
namespace offered = rnbd::nbd::transmission_flag;

namespace {

constexpr std::uint16_t everything =
    offered::has_flags | offered::send_flush | offered::send_fua | offered::send_trim |
    offered::send_write_zeroes | offered::send_df | offered::send_cache | offered::send_fast_zero;
constexpr Session full{.size_bytes = 1u << 20,
                       .block_bytes_min = 512,
                       .payload_bytes_max = 1u << 16,
                       .transmission_flags = everything,
                       .structured_replies = true,
                       .allocation_context = true};
constexpr Session bare{.size_bytes = 1u << 20,
                       .block_bytes_min = 1,
                       .payload_bytes_max = 1u << 16,
                       .transmission_flags = offered::has_flags};

Request request(Command command, std::uint64_t offset, std::uint32_t length,
                std::uint16_t flags = 0) {
    return {flags, command, 0x1122334455667788, offset, length};
}

NbdError verdict(Command command, std::uint64_t offset, std::uint32_t length,
                 std::uint16_t flags = 0, const Session& session = full) {
    return check(request(command, offset, length, flags), session).error;
}

template <typename Emit>
std::vector<std::byte> emitted(Emit emit) {
    std::array<std::byte, 512> space{};
    const std::size_t bytes = emit(MutableBytes(space));
    return {space.begin(), space.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

}  // namespace

TEST_CASE("transmission: a request is parsed as the protocol lays it out") {
    const auto bytes =
        ByteString().hex("25609513 0001 0006 1122334455667788 0000000100000200 00001000");
    const auto parsed = parse_request(bytes.bytes().data());
    REQUIRE(parsed);
    CHECK(*parsed == Request{1, Command::write_zeroes, 0x1122334455667788, 0x100000200, 0x1000});
    std::array<std::byte, request_bytes> again{};
    emit_request(again.data(), *parsed);
    CHECK(std::vector<std::byte>(again.begin(), again.end()) == bytes.bytes());
}

TEST_CASE("transmission: a wrong magic cannot be survived") {
    const auto bytes = ByteString().u32(request_magic ^ 1).zeroes(24);
    CHECK(parse_request(bytes.bytes().data()).error() == rtrs::Error::protocol);
}

TEST_CASE("transmission: legal requests pass") {
    using namespace command_flag;
    CHECK(verdict(Command::read, 0, 512, fua | df) == NbdError::none);
    CHECK(verdict(Command::read, (1u << 20) - 512, 512) == NbdError::none);
    CHECK(verdict(Command::read, 0, 0) == NbdError::none);
    CHECK(verdict(Command::read, 1u << 20, 0) == NbdError::none);
    CHECK(verdict(Command::write, 512, 1u << 16, fua) == NbdError::none);
    CHECK(verdict(Command::flush, 0, 0, fua) == NbdError::none);
    CHECK(verdict(Command::trim, 0, 1u << 20, fua) == NbdError::none);
    CHECK(verdict(Command::write_zeroes, 0, 1u << 20, fua | no_hole | fast_zero) == NbdError::none);
    CHECK(verdict(Command::cache, 0, 512) == NbdError::none);
    CHECK(verdict(Command::block_status, 0, 1u << 20, req_one) == NbdError::none);
    CHECK(verdict(Command::disconnect, 7, 7, 0xffff) == NbdError::none);
    CHECK(verdict(Command::read, 1, 3, 0, bare) == NbdError::none);
}

TEST_CASE("transmission: beyond the end is ENOSPC for writers, EINVAL for the others") {
    for (const Command c : {Command::write, Command::write_zeroes}) {
        CHECK(verdict(c, (1u << 20) - 512, 1024) == NbdError::nospc);
        CHECK(verdict(c, ~0ull - 511, 512) == NbdError::nospc);
    }
    for (const Command c : {Command::read, Command::trim, Command::cache, Command::block_status}) {
        CHECK(verdict(c, (1u << 20) - 512, 1024) == NbdError::inval);
        CHECK(verdict(c, ~0ull - 511, 512) == NbdError::inval);
        CHECK(verdict(c, 1u << 21, 512) == NbdError::inval);
    }
}

TEST_CASE("transmission: unaligned, oversize, unknown and empty requests are EINVAL") {
    CHECK(verdict(Command::read, 1, 512) == NbdError::inval);
    CHECK(verdict(Command::write, 0, 100) == NbdError::inval);
    CHECK(verdict(Command::trim, 512, 100) == NbdError::inval);
    CHECK(verdict(Command::read, 0, (1u << 16) + 512) == NbdError::inval);
    CHECK(verdict(Command::read, 0, (1u << 16) + 512, command_flag::df) == NbdError::overflow);
    CHECK(verdict(Command::write, 0, (1u << 16) + 512) == NbdError::inval);
    CHECK(verdict(Command::write, 0, 0xffffffff) == NbdError::inval);
    CHECK(verdict(Command::block_status, 0, 0) == NbdError::inval);
    CHECK(verdict(Command::flush, 512, 0) == NbdError::inval);
    CHECK(verdict(Command::flush, 0, 512) == NbdError::inval);
    CHECK(verdict(static_cast<Command>(8), 0, 512) == NbdError::inval);
    CHECK(verdict(static_cast<Command>(0xffff), 0, 0) == NbdError::inval);
}

TEST_CASE("transmission: what was not offered is EINVAL") {
    using namespace command_flag;
    for (const Command c : {Command::flush, Command::trim, Command::cache, Command::write_zeroes,
                            Command::block_status}) {
        CHECK(verdict(c, 0, c == Command::flush ? 0 : 512, 0, bare) == NbdError::inval);
    }
    CHECK(verdict(Command::read, 0, 512, df, bare) == NbdError::inval);
    CHECK(verdict(Command::write, 0, 512, fua, bare) == NbdError::inval);
    // Flags of other commands, and flags that nobody knows.
    CHECK(verdict(Command::write, 0, 512, df) == NbdError::inval);
    CHECK(verdict(Command::write, 0, 512, no_hole) == NbdError::inval);
    CHECK(verdict(Command::read, 0, 512, req_one) == NbdError::inval);
    CHECK(verdict(Command::trim, 0, 512, fast_zero) == NbdError::inval);
    CHECK(verdict(Command::read, 0, 512, 1u << 5) == NbdError::inval);
    CHECK(verdict(Command::write_zeroes, 0, 512, 1u << 15) == NbdError::inval);
}

TEST_CASE("transmission: changes on a read-only export are EPERM") {
    Session session = full;
    session.transmission_flags |= offered::read_only;
    for (const Command c : {Command::write, Command::trim, Command::write_zeroes}) {
        CHECK(verdict(c, 0, 512, 0, session) == NbdError::perm);
    }
    CHECK(verdict(Command::read, 0, 512, 0, session) == NbdError::none);
    CHECK(verdict(Command::flush, 0, 0, 0, session) == NbdError::none);
    // Such an export does not offer them, either.
    Session real = bare;
    real.transmission_flags |= offered::read_only;
    for (const Command c : {Command::write, Command::trim, Command::write_zeroes}) {
        CHECK(verdict(c, 0, 512, 0, real) == NbdError::perm);
    }
}

TEST_CASE("transmission: only errors that the protocol knows are told") {
    const Request read = request(Command::read, 0, 512);
    const Request fast = request(Command::write_zeroes, 0, 512, command_flag::fast_zero);
    const auto told = [&](int value, const Request& to) {
        return to_nbd_error(rtrs::from_errno(value), to);
    };
    CHECK(told(0, read) == NbdError::none);
    CHECK(told(EPERM, read) == NbdError::perm);
    CHECK(told(EROFS, read) == NbdError::perm);
    CHECK(told(EIO, read) == NbdError::io);
    CHECK(told(ENOMEM, read) == NbdError::nomem);
    CHECK(told(EINVAL, read) == NbdError::inval);
    CHECK(told(ENOSPC, read) == NbdError::nospc);
    CHECK(told(EDQUOT, read) == NbdError::nospc);
    CHECK(told(EFBIG, read) == NbdError::nospc);
    CHECK(told(EOVERFLOW, read) == NbdError::overflow);
    CHECK(told(ESHUTDOWN, read) == NbdError::shutdown);
    CHECK(told(EOPNOTSUPP, fast) == NbdError::notsup);
    CHECK(told(EOPNOTSUPP, read) == NbdError::inval);
    CHECK(told(ENODEV, read) == NbdError::io);
    CHECK(told(EREMOTEIO, read) == NbdError::io);
    CHECK(to_nbd_error(make_error_code(rtrs::Error::path_lost), read) == NbdError::io);
    CHECK(to_nbd_error(make_error_code(rtrs::Error::closed), read) == NbdError::shutdown);
}

TEST_CASE("transmission: golden simple replies") {
    const Request read = request(Command::read, 0x200, 0x400);
    CHECK(emitted([&](MutableBytes to) { return emit_read(to, read, bare); }) ==
          ByteString().hex("67446698 00000000 1122334455667788").bytes());
    CHECK(emitted([&](MutableBytes to) { return emit_done(to, read, bare); }) ==
          ByteString().hex("67446698 00000000 1122334455667788").bytes());
    CHECK(emitted([&](MutableBytes to) {
              return emit_error(to, read, bare, NbdError::nospc, "text");
          }) == ByteString().hex("67446698 0000001c 1122334455667788").bytes());
    const Request write = request(Command::write, 0, 512);
    CHECK(emitted([&](MutableBytes to) { return emit_done(to, write, full); }) ==
          ByteString().hex("67446698 00000000 1122334455667788").bytes());
}

TEST_CASE("transmission: golden structured replies") {
    const Request read = request(Command::read, 0x200, 0x400);
    CHECK(
        emitted([&](MutableBytes to) { return emit_read(to, read, full); }) ==
        ByteString().hex("668e33ef 0001 0001 1122334455667788 00000408 0000000000000200").bytes());
    CHECK(emitted([&](MutableBytes to) { return emit_done(to, read, full); }) ==
          ByteString().hex("668e33ef 0001 0000 1122334455667788 00000000").bytes());
    CHECK(emitted([&](MutableBytes to) {
              return emit_error(to, read, full, NbdError::io, "ab");
          }) == ByteString()
                    .hex("668e33ef 0001 8001 1122334455667788 00000008 00000005 0002 6162")
                    .bytes());
    CHECK(emitted([&](MutableBytes to) {
              return emit_error_at(to, read, NbdError::io, 0x300, "ab");
          }) == ByteString()
                    .hex("668e33ef 0001 8002 1122334455667788 00000010 00000005 0002 6162")
                    .hex("0000000000000300")
                    .bytes());
}

TEST_CASE("transmission: golden block status, cut and merged") {
    const Request asked = request(Command::block_status, 0x200, 0x400);
    const auto status = [&](std::size_t most, auto... extents) {
        return emitted([&](MutableBytes to) {
            BlockStatusWriter writer(to, most, asked);
            (void)(writer.add(extents.first, extents.second) && ...);
            return writer.finish();
        });
    };
    const auto extent = [](std::uint64_t bytes, std::uint32_t flags) {
        return std::pair(bytes, flags);
    };
    const auto header = [](std::uint32_t payload) {
        return ByteString().hex("668e33ef 0001 0005 1122334455667788").u32(payload).u32(1);
    };
    const auto whole = header(12).hex("00000400 00000000").bytes();
    CHECK(status(8) == whole);
    CHECK(status(8, extent(0x100, 0), extent(1ull << 40, 0)) == whole);
    CHECK(status(8, extent(0x200, 0), extent(0x200, state_flag::hole | state_flag::zero)) ==
          header(20).hex("00000200 00000000 00000200 00000003").bytes());
    CHECK(status(8, extent(0x200, 0), extent(0x800, 2), extent(0x800, 1)) ==
          header(20).hex("00000200 00000000 00000200 00000002").bytes());
    CHECK(status(1, extent(0x200, 1), extent(0x200, 0)) ==
          header(12).hex("00000200 00000001").bytes());
    // What is known ends early: so does the answer.
    CHECK(status(8, extent(0x200, 1)) == header(12).hex("00000200 00000001").bytes());
}

TEST_CASE("transmission: a long error text is cut") {
    const Request read = request(Command::read, 0, 512);
    const std::string text(500, 'x');
    const auto bytes =
        emitted([&](MutableBytes to) { return emit_error_at(to, read, NbdError::io, 0, text); });
    CHECK(bytes.size() == reply_header_bytes_max);
}
