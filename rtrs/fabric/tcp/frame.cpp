#include "rtrs/fabric/tcp/frame.h"

#include <algorithm>
#include <cerrno>

#include "rtrs/fabric/tcp/crc32c.h"

namespace rtrs::tcp {
namespace {

constexpr std::size_t header_crc_offset = 28;

// What an opcode uses of the header; everything else is zero.
struct Use {
    bool known = false;
    std::uint32_t payload_min = 0;
    std::uint32_t payload_max = 0;
    bool address = false;
    bool key = false;
    bool immediate = false;
};

constexpr std::array<Use, 12> make_uses() {
    constexpr std::uint32_t request_max = hello_bytes + private_data_request_max;
    constexpr std::uint32_t reply_max = hello_bytes + private_data_reply_max;
    constexpr std::uint32_t data_max = Endpoint::payload_bytes_max;
    std::array<Use, 12> uses{};
    uses[1] = {true, hello_bytes, request_max, false, false, false};
    uses[2] = {true, hello_bytes, reply_max, false, false, false};
    uses[3] = {true, hello_bytes, reply_max, false, false, false};
    uses[4] = {true, 0, data_max, false, false, false};
    uses[5] = {true, 0, data_max, false, false, true};
    uses[6] = {true, 0, data_max, false, true, false};
    uses[7] = {true, 0, data_max, true, true, false};
    uses[8] = {true, 0, data_max, true, true, true};
    uses[9] = {true, read_request_bytes, read_request_bytes, true, true, false};
    uses[10] = {true, 0, data_max, true, false, false};
    uses[11] = {true, 0, 0, false, false, true};
    return uses;
}
constexpr std::array<Use, 12> uses = make_uses();

bool fields_allowed(const FrameHeader& header) noexcept {
    const auto opcode = static_cast<std::size_t>(header.opcode);
    if (opcode >= uses.size() || !uses[opcode].known) return false;
    const Use& use = uses[opcode];
    if (header.payload_bytes < use.payload_min || header.payload_bytes > use.payload_max) {
        return false;
    }
    if ((header.flags & ~flag_payload_crc) != 0) return false;
    if (header.has_payload_crc() ? header.payload_bytes == 0 : header.payload_crc != 0) {
        return false;
    }
    return (use.address || header.address == 0) && (use.key || header.key == 0) &&
           (use.immediate || header.immediate == 0);
}

FrameHeader unchecked_header(const std::byte* p) noexcept {
    FrameHeader header;
    header.opcode = static_cast<Opcode>(load_u8(p + 2));
    header.flags = load_u8(p + 3);
    header.payload_bytes = load_le32(p + 4);
    header.address = load_le64(p + 8);
    header.key = load_le32(p + 16);
    header.immediate = load_be32(p + 20);
    header.payload_crc = load_le32(p + 24);
    return header;
}

std::string found(const std::string& field, std::uint64_t is, const std::string& expected) {
    return field + ": found " + std::to_string(is) + ", expected " + expected;
}

}  // namespace

std::expected<FrameHeader, std::error_code> parse_header(
    std::span<const std::byte, header_bytes> bytes) noexcept {
    const std::byte* p = bytes.data();
    if (load_le16(p) != frame_magic) return std::unexpected(make_error_code(Error::protocol));
    if (load_le32(p + header_crc_offset) != crc32c_of_28(bytes.first<header_crc_offset>())) {
        return std::unexpected(make_error_code(Error::checksum));
    }
    const FrameHeader header = unchecked_header(p);
    if (!fields_allowed(header)) return std::unexpected(make_error_code(Error::protocol));
    return header;
}

std::string text_of(Opcode opcode) {
    static constexpr std::array<const char*, 12> names{
        "none",           "connect_request", "accept", "reject",          "send",
        "send_immediate", "send_invalidate", "write",  "write_immediate", "read_request",
        "read_response",  "disconnect"};
    const auto number = static_cast<std::size_t>(opcode);
    return std::to_string(number) + " (" + (number < names.size() ? names[number] : "unknown") +
           ")";
}

std::string wrong_with_header(std::span<const std::byte, header_bytes> bytes) {
    const std::byte* p = bytes.data();
    if (load_le16(p) != frame_magic)
        return found("magic of a frame", load_le16(p), std::to_string(frame_magic));
    if (const std::uint32_t is = crc32c_of_28(bytes.first<header_crc_offset>());
        load_le32(p + header_crc_offset) != is)
        return found("checksum of a frame's header", load_le32(p + header_crc_offset),
                     std::to_string(is));
    const FrameHeader header = unchecked_header(p);
    const auto opcode = static_cast<std::size_t>(header.opcode);
    if (opcode >= uses.size() || !uses[opcode].known)
        return found("opcode of a frame", opcode, "1 to " + std::to_string(uses.size() - 1));
    const Use& use = uses[opcode];
    const std::string of = " of a frame with opcode " + text_of(header.opcode);
    if (header.payload_bytes < use.payload_min || header.payload_bytes > use.payload_max)
        return found("payload length" + of, header.payload_bytes,
                     std::to_string(use.payload_min) + " to " + std::to_string(use.payload_max));
    if ((header.flags & ~flag_payload_crc) != 0) return found("flags" + of, header.flags, "0 or 1");
    if (header.has_payload_crc() && header.payload_bytes == 0)
        return found("flags" + of, header.flags, "0, as it has no payload");
    if (!header.has_payload_crc() && header.payload_crc != 0)
        return found("payload checksum" + of, header.payload_crc,
                     "0, as its flags say that there is none");
    if (!use.address && header.address != 0) return found("address" + of, header.address, "0");
    if (!use.key && header.key != 0) return found("key" + of, header.key, "0");
    return found("immediate" + of, header.immediate, "0");
}

void emit_header(const FrameHeader& header, std::byte* target) noexcept {
    store_le16(target, frame_magic);
    store_u8(target + 2, static_cast<std::uint8_t>(header.opcode));
    store_u8(target + 3, header.flags);
    store_le32(target + 4, header.payload_bytes);
    store_le64(target + 8, header.address);
    store_le32(target + 16, header.key);
    store_be32(target + 20, header.immediate);
    store_le32(target + 24, header.payload_crc);
    store_le32(
        target + header_crc_offset,
        crc32c_of_28(std::span<const std::byte, header_crc_offset>(target, header_crc_offset)));
}

std::expected<Hello, std::error_code> parse_hello(Bytes payload) noexcept {
    const auto refused = std::unexpected(make_error_code(Error::protocol));
    if (payload.size() < hello_bytes) return refused;
    const std::byte* p = payload.data();
    Hello hello;
    hello.version = load_le16(p);
    if (hello.version != fabric_version) return hello;
    const std::uint16_t flags = load_le16(p + 2);
    if ((flags & ~hello_flag_payload_crc) != 0) return refused;
    hello.payload_crc = (flags & hello_flag_payload_crc) != 0;
    hello.reads_max = load_le16(p + 4);
    hello.reason = static_cast<RejectReason>(load_le16(p + 6));
    hello.private_bytes = load_le16(p + 8);
    if (load_le32(p + 10) != 0 || load_le16(p + 14) != 0) return refused;
    if (payload.size() != hello_bytes + hello.private_bytes) return refused;
    return hello;
}

std::string wrong_with_hello(Bytes payload) {
    const std::byte* p = payload.data();
    if (payload.size() < hello_bytes)
        return found("length of a hello", payload.size(), std::to_string(hello_bytes));
    if ((load_le16(p + 2) & ~hello_flag_payload_crc) != 0)
        return found("flags of a hello", load_le16(p + 2), "0 or 1");
    if (load_le32(p + 10) != 0 || load_le16(p + 14) != 0)
        return "reserved bytes of a hello: found others than zeroes, expected zeroes";
    return found("private length of a hello", load_le16(p + 8),
                 std::to_string(payload.size() - hello_bytes) + ", as the frame has left");
}

HandshakeFrame emit_handshake(Opcode opcode, Hello hello, Bytes private_data) noexcept {
    HandshakeFrame frame;
    frame.size = header_bytes + hello_bytes + private_data.size();
    std::byte* p = frame.bytes.data() + header_bytes;
    store_le16(p, hello.version);
    store_le16(p + 2, hello.payload_crc ? hello_flag_payload_crc : std::uint16_t{0});
    store_le16(p + 4, hello.reads_max);
    store_le16(p + 6, static_cast<std::uint16_t>(hello.reason));
    store_le16(p + 8, static_cast<std::uint16_t>(private_data.size()));
    std::ranges::copy(private_data, p + hello_bytes);
    FrameHeader header;
    header.opcode = opcode;
    header.flags = flag_payload_crc;
    header.payload_bytes = static_cast<std::uint32_t>(frame.size - header_bytes);
    header.payload_crc = crc32c({p, header.payload_bytes});
    emit_header(header, frame.bytes.data());
    return frame;
}

ReadRequest parse_read_request(std::span<const std::byte, read_request_bytes> payload) noexcept {
    return {load_le32(payload.data()), load_le32(payload.data() + 4)};
}

void emit_read_request(const ReadRequest& request, std::byte* target) noexcept {
    store_le32(target, request.bytes);
    store_le32(target + 4, request.id);
}

DisconnectReason disconnect_reason(std::error_code error) noexcept {
    if (error == Error::protocol) return DisconnectReason::protocol;
    if (error == Error::remote_access) return DisconnectReason::remote_access;
    if (error == Error::checksum) return DisconnectReason::checksum;
    return DisconnectReason::closed;
}

std::error_code disconnect_error(std::uint32_t immediate) noexcept {
    switch (static_cast<DisconnectReason>(immediate)) {
        case DisconnectReason::closed:
            return Error::closed_by_peer;
        case DisconnectReason::protocol:
            return Error::protocol;
        case DisconnectReason::remote_access:
            return Error::remote_access;
        case DisconnectReason::checksum:
            return Error::checksum;
    }
    return from_errno(ECONNRESET);
}

}  // namespace rtrs::tcp
