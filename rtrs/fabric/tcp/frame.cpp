#include "rtrs/fabric/tcp/frame.h"

#include <algorithm>
#include <cerrno>

#include "rtrs/fabric/tcp/crc32c.h"

namespace rtrs::tcp {
namespace {

// A header as it is read and written: whole words, of which no part is written by itself before
// the checksum reads them.
struct HeaderWords {
    std::uint64_t bytes_0 = 0;
    std::uint64_t bytes_8 = 0;
    std::uint64_t bytes_16 = 0;
    std::uint32_t bytes_24 = 0;

    static HeaderWords load(const std::byte* p) noexcept {
        return {load_le64(p), load_le64(p + 8), load_le64(p + 16), load_le32(p + 24)};
    }
    std::uint16_t magic() const noexcept { return static_cast<std::uint16_t>(bytes_0); }
    std::uint32_t crc() const noexcept {
        return crc32c_of_28(bytes_0, bytes_8, bytes_16, bytes_24);
    }
};

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

void take_fields(const HeaderWords& words, FrameHeader& header) noexcept {
    header.opcode = static_cast<Opcode>(words.bytes_0 >> 16 & 0xff);
    header.flags = static_cast<std::uint8_t>(words.bytes_0 >> 24);
    header.payload_bytes = static_cast<std::uint32_t>(words.bytes_0 >> 32);
    header.address = words.bytes_8;
    header.key = static_cast<Key>(words.bytes_16);
    header.immediate = __builtin_bswap32(static_cast<std::uint32_t>(words.bytes_16 >> 32));
    header.payload_crc = words.bytes_24;
}

std::string found(const std::string& field, std::uint64_t is, const std::string& expected) {
    return field + ": found " + std::to_string(is) + ", expected " + expected;
}

// As bytes: those of a text tell which other protocol it is.
std::string wrong_magic(std::uint16_t is) {
    std::string text = "magic of a frame: found";
    for (const unsigned byte : {is & 0xffu, static_cast<unsigned>(is) >> 8}) {
        const bool printable = byte >= ' ' && byte <= '~';
        text += printable ? std::string(" '") + static_cast<char>(byte) + "'"
                          : " byte " + std::to_string(byte);
    }
    return text + ", expected 'R' 'F'";
}

}  // namespace

std::optional<Error> parse_header(std::span<const std::byte, header_bytes> bytes,
                                  FrameHeader& header) noexcept {
    const HeaderWords words = HeaderWords::load(bytes.data());
    if (words.magic() != frame_magic) return Error::protocol;
    if (load_le32(bytes.data() + header_crc_offset) != words.crc()) return Error::checksum;
    take_fields(words, header);
    if (!fields_allowed(header)) return Error::protocol;
    return std::nullopt;
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
    const HeaderWords words = HeaderWords::load(bytes.data());
    if (words.magic() != frame_magic) return wrong_magic(words.magic());
    if (const std::uint32_t says = load_le32(bytes.data() + header_crc_offset); says != words.crc())
        return found("checksum of a frame's header", says, std::to_string(words.crc()));
    FrameHeader header;
    take_fields(words, header);
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
    HeaderWords words;
    words.bytes_0 = frame_magic | std::uint64_t{static_cast<std::uint8_t>(header.opcode)} << 16 |
                    std::uint64_t{header.flags} << 24 | std::uint64_t{header.payload_bytes} << 32;
    words.bytes_8 = header.address;
    words.bytes_16 = header.key | std::uint64_t{__builtin_bswap32(header.immediate)} << 32;
    words.bytes_24 = header.payload_crc;
    store_le64(target, words.bytes_0);
    store_le64(target + 8, words.bytes_8);
    store_le64(target + 16, words.bytes_16);
    store_le64(target + 24, words.bytes_24 | std::uint64_t{words.crc()} << 32);
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
    if (error == Error::name_in_use) return DisconnectReason::name_in_use;
    if (error == Error::rejected) return DisconnectReason::turned_away;
    if (error == Error::former_session) return DisconnectReason::former_session;
    if (error == from_errno(ETIMEDOUT)) return DisconnectReason::takes_nothing;
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
        case DisconnectReason::name_in_use:
            return Error::name_in_use;
        case DisconnectReason::turned_away:
            return Error::rejected;
        case DisconnectReason::former_session:
            return Error::former_session;
        case DisconnectReason::takes_nothing:
            return from_errno(ETIMEDOUT);
    }
    return from_errno(ECONNRESET);
}

}  // namespace rtrs::tcp
