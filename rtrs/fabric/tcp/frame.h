// The bytes of the TCP fabric: frame header and hello. Pure: layout, parse, emit.
// docs/reference/tcp-fabric.md is the description for other implementers.
//
// Frame header, 32 bytes, little-endian unless said:
//   offset size
//        0    2  magic 0x4652 (bytes 'R' 'F')
//        2    1  opcode
//        3    1  flags: bit 0 payload CRC present; others zero
//        4    4  payload bytes that follow the header
//        8    8  remote address (read_response: request id)
//       16    4  key
//       20    4  immediate, big-endian
//       24    4  CRC32C of the payload, or zero
//       28    4  CRC32C of bytes 0..27
//
// Hello, 16 bytes, first in the payload of connect_request, accept and reject:
//        0    2  version of the fabric protocol
//        2    2  flags: bit 0 payload checksums; others zero
//        4    2  read requests that this side holds at one time
//        6    2  reject: why; else zero
//        8    2  private data bytes that follow the hello
//       10    6  zero
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/base/error.h"
#include "rtrs/fabric.h"

namespace rtrs::tcp {

inline constexpr std::uint16_t frame_magic = 0x4652;
inline constexpr std::size_t header_bytes = 32;
inline constexpr std::size_t hello_bytes = 16;
inline constexpr std::size_t read_request_bytes = 8;
inline constexpr std::uint16_t fabric_version = 1;
// How many writes of no bytes, which have no effect, a peer may send in a row.
inline constexpr std::uint32_t empty_writes_max = 32;
inline constexpr std::uint8_t flag_payload_crc = 1;
inline constexpr std::uint16_t hello_flag_payload_crc = 1;

enum class Opcode : std::uint8_t {
    connect_request = 1,
    accept = 2,
    reject = 3,
    send = 4,
    send_immediate = 5,
    send_invalidate = 6,
    write = 7,
    write_immediate = 8,
    read_request = 9,
    read_response = 10,
    disconnect = 11,
};

struct FrameHeader {
    Opcode opcode = Opcode::send;
    std::uint8_t flags = 0;
    std::uint32_t payload_bytes = 0;
    std::uint64_t address = 0;
    Key key = 0;
    std::uint32_t immediate = 0;
    std::uint32_t payload_crc = 0;

    bool has_payload_crc() const noexcept { return (flags & flag_payload_crc) != 0; }
};

// Checks everything that needs no state: magic, checksum, known opcode and flags, payload within
// the opcode's limit, zero in every field that the opcode does not use. Returns Error::protocol or
// Error::checksum if it fails (`header` then means nothing), or neither.
//
// The result is written in place, because fields that were written one by one and are then copied
// as a whole make the processor wait until they, and a payload that was copied before, are in the
// cache.
std::optional<Error> parse_header(std::span<const std::byte, header_bytes> bytes,
                                  FrameHeader& header) noexcept;
// What is wrong with a header that parse_header() refuses, in words: the field, what was found and
// what was expected.
std::string wrong_with_header(std::span<const std::byte, header_bytes> bytes);
// "3 (reject)".
std::string text_of(Opcode opcode);
void emit_header(const FrameHeader& header, std::byte* target) noexcept;

enum class RejectReason : std::uint16_t { refused = 0, version = 1 };

struct Hello {
    std::uint16_t version = fabric_version;
    bool payload_crc = false;
    std::uint16_t reads_max = 0;
    RejectReason reason = RejectReason::refused;
    std::uint16_t private_bytes = 0;
};

// payload: the frame's whole payload. For an unknown version only the version is returned, with
// nothing else parsed.
// ERRORS: Error::protocol (lengths, reserved bits).
std::expected<Hello, std::error_code> parse_hello(Bytes payload) noexcept;
// As wrong_with_header(), for a hello.
std::string wrong_with_hello(Bytes payload);

// A whole handshake frame: header, hello, private data.
struct HandshakeFrame {
    static constexpr std::size_t bytes_max = header_bytes + hello_bytes + private_data_reply_max;
    std::array<std::byte, bytes_max> bytes{};
    std::size_t size = 0;
};
// ASSUMES: private_data fits private_data_reply_max. hello.private_bytes is set from it.
HandshakeFrame emit_handshake(Opcode opcode, Hello hello, Bytes private_data) noexcept;

struct ReadRequest {
    std::uint32_t bytes = 0;
    std::uint32_t id = 0;
};
ReadRequest parse_read_request(std::span<const std::byte, read_request_bytes> payload) noexcept;
void emit_read_request(const ReadRequest& request, std::byte* target) noexcept;

// Why a side ends the connection: the immediate of a disconnect frame.
enum class DisconnectReason : std::uint32_t {
    closed = 0,
    protocol = 1,
    remote_access = 2,
    checksum = 3,
    name_in_use = 4,
    turned_away = 5,
    former_session = 6,
    takes_nothing = 7,
};
DisconnectReason disconnect_reason(std::error_code error) noexcept;
// What the side that receives the frame reports. Unknown reasons are ECONNRESET.
std::error_code disconnect_error(std::uint32_t immediate) noexcept;

}  // namespace rtrs::tcp
