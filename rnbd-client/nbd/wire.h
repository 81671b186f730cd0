// The NBD protocol's bytes: numbers, layouts, emit and parse. No state, no I/O.
//
// Source: the NBD protocol document (doc/proto.md of the NetworkBlockDevice project), fixed
// newstyle handshake and structured replies. Every number is big-endian.
//
//   greeting (S)        0 magic "NBDMAGIC" 8 | 8 "IHAVEOPT" 8 | 16 handshake flags 2
//   client flags (C)    0 flags 4
//   option (C)          0 "IHAVEOPT" 8 | 8 option 4 | 12 length 4 | 16 data
//   option reply (S)    0 magic 8 | 8 option 4 | 12 reply type 4 | 16 length 4 | 20 data
//   EXPORT_NAME end (S) 0 size 8 | 8 transmission flags 2 | 10 zeroes 124 (unless NO_ZEROES)
//   request (C)         0 magic 4 | 4 flags 2 | 6 type 2 | 8 cookie 8 | 16 offset 8 | 24 length 4
//   simple reply (S)    0 magic 4 | 4 error 4 | 8 cookie 8 | 16 data
//   reply chunk (S)     0 magic 4 | 4 flags 2 | 6 type 2 | 8 cookie 8 | 16 length 4 | 20 payload
//
// ASSUMES: the caller has checked that there are enough bytes (each size is a constant below).
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/base/error.h"

namespace rnbd::nbd {

using rtrs::Bytes;
using rtrs::MutableBytes;

// ---- handshake ----

inline constexpr std::uint64_t greeting_magic = 0x4e42444d41474943;  // "NBDMAGIC"
inline constexpr std::uint64_t option_magic = 0x49484156454f5054;    // "IHAVEOPT"
inline constexpr std::uint64_t option_reply_magic = 0x0003e889045565a9;

inline constexpr std::size_t greeting_bytes = 18;
inline constexpr std::size_t client_flags_bytes = 4;
inline constexpr std::size_t option_header_bytes = 16;
inline constexpr std::size_t option_reply_header_bytes = 20;
inline constexpr std::size_t export_name_reply_bytes = 10;
inline constexpr std::size_t export_name_padding_bytes = 124;

// The longest string that the protocol allows.
inline constexpr std::size_t string_bytes_max = 4096;

namespace handshake_flag {
inline constexpr std::uint16_t fixed_newstyle = 1u << 0;
inline constexpr std::uint16_t no_zeroes = 1u << 1;
}  // namespace handshake_flag

namespace client_flag {
inline constexpr std::uint32_t fixed_newstyle = 1u << 0;
inline constexpr std::uint32_t no_zeroes = 1u << 1;
}  // namespace client_flag

namespace transmission_flag {
inline constexpr std::uint16_t has_flags = 1u << 0;
inline constexpr std::uint16_t read_only = 1u << 1;
inline constexpr std::uint16_t send_flush = 1u << 2;
inline constexpr std::uint16_t send_fua = 1u << 3;
inline constexpr std::uint16_t rotational = 1u << 4;
inline constexpr std::uint16_t send_trim = 1u << 5;
inline constexpr std::uint16_t send_write_zeroes = 1u << 6;
inline constexpr std::uint16_t send_df = 1u << 7;
inline constexpr std::uint16_t can_multi_conn = 1u << 8;
inline constexpr std::uint16_t send_cache = 1u << 10;
inline constexpr std::uint16_t send_fast_zero = 1u << 11;
}  // namespace transmission_flag

enum class Option : std::uint32_t {
    export_name = 1,
    abort = 2,
    list = 3,
    start_tls = 5,
    info = 6,
    go = 7,
    structured_reply = 8,
    list_meta_context = 9,
    set_meta_context = 10,
};

enum class OptionReply : std::uint32_t {
    ack = 1,
    server = 2,
    info = 3,
    meta_context = 4,
    error_unsupported = 0x80000001,
    error_policy = 0x80000002,
    error_invalid = 0x80000003,
    error_unknown = 0x80000006,
    error_too_big = 0x80000009,
};

enum class Info : std::uint16_t {
    export_ = 0,
    name = 1,
    description = 2,
    block_size = 3,
};

struct OptionHeader {
    std::uint64_t magic = 0;
    std::uint32_t option = 0;  // an Option, or a value that is not known here
    std::uint32_t data_bytes = 0;
};

inline OptionHeader parse_option_header(Bytes bytes) noexcept {
    return {rtrs::load_be64(bytes.data()), rtrs::load_be32(bytes.data() + 8),
            rtrs::load_be32(bytes.data() + 12)};
}

inline void emit_greeting(std::byte* to) noexcept {
    rtrs::store_be64(to, greeting_magic);
    rtrs::store_be64(to + 8, option_magic);
    rtrs::store_be16(to + 16, handshake_flag::fixed_newstyle | handshake_flag::no_zeroes);
}

inline void emit_option_reply_header(std::byte* to, std::uint32_t option, OptionReply type,
                                     std::uint32_t data_bytes) noexcept {
    rtrs::store_be64(to, option_reply_magic);
    rtrs::store_be32(to + 8, option);
    rtrs::store_be32(to + 12, static_cast<std::uint32_t>(type));
    rtrs::store_be32(to + 16, data_bytes);
}

// ---- transmission ----

inline constexpr std::uint32_t request_magic = 0x25609513;
inline constexpr std::uint32_t simple_reply_magic = 0x67446698;
inline constexpr std::uint32_t chunk_magic = 0x668e33ef;

inline constexpr std::size_t request_bytes = 28;
inline constexpr std::size_t simple_reply_bytes = 16;
inline constexpr std::size_t chunk_header_bytes = 20;
inline constexpr std::size_t data_chunk_header_bytes = chunk_header_bytes + 8;
inline constexpr std::size_t extent_bytes = 8;

enum class Command : std::uint16_t {
    read = 0,
    write = 1,
    disconnect = 2,
    flush = 3,
    trim = 4,
    cache = 5,
    write_zeroes = 6,
    block_status = 7,
};

namespace command_flag {
inline constexpr std::uint16_t fua = 1u << 0;
inline constexpr std::uint16_t no_hole = 1u << 1;
inline constexpr std::uint16_t df = 1u << 2;
inline constexpr std::uint16_t req_one = 1u << 3;
inline constexpr std::uint16_t fast_zero = 1u << 4;
}  // namespace command_flag

enum class Chunk : std::uint16_t {
    none = 0,
    offset_data = 1,
    block_status = 5,
    error = 0x8001,
    error_offset = 0x8002,
};
inline constexpr std::uint16_t chunk_flag_done = 1u << 0;

namespace state_flag {  // of base:allocation
inline constexpr std::uint32_t hole = 1u << 0;
inline constexpr std::uint32_t zero = 1u << 1;
}  // namespace state_flag

// The only errors that the protocol can carry.
enum class NbdError : std::uint32_t {
    none = 0,
    perm = 1,
    io = 5,
    nomem = 12,
    inval = 22,
    nospc = 28,
    overflow = 75,
    notsup = 95,
    shutdown = 108,
};

struct Request {
    std::uint16_t flags = 0;
    Command command = Command::read;  // may hold a value that is not listed
    std::uint64_t cookie = 0;         // the client's, returned unchanged
    std::uint64_t offset = 0;
    std::uint32_t length = 0;

    friend bool operator==(const Request&, const Request&) = default;
};

// bytes: request_bytes long.
// ERRORS: Error::protocol (wrong magic: the stream cannot be trusted any more).
inline std::expected<Request, std::error_code> parse_request(const std::byte* bytes) noexcept {
    if (rtrs::load_be32(bytes) != request_magic) {
        return std::unexpected(make_error_code(rtrs::Error::protocol));
    }
    return Request{.flags = rtrs::load_be16(bytes + 4),
                   .command = static_cast<Command>(rtrs::load_be16(bytes + 6)),
                   .cookie = rtrs::load_be64(bytes + 8),
                   .offset = rtrs::load_be64(bytes + 16),
                   .length = rtrs::load_be32(bytes + 24)};
}

inline void emit_simple_reply(std::byte* to, std::uint64_t cookie, NbdError error) noexcept {
    rtrs::store_be32(to, simple_reply_magic);
    rtrs::store_be32(to + 4, static_cast<std::uint32_t>(error));
    rtrs::store_be64(to + 8, cookie);
}

// The final chunk of a reply; all replies here have one chunk.
inline void emit_chunk_header(std::byte* to, std::uint64_t cookie, Chunk type,
                              std::uint32_t payload_bytes) noexcept {
    rtrs::store_be32(to, chunk_magic);
    rtrs::store_be16(to + 4, chunk_flag_done);
    rtrs::store_be16(to + 6, static_cast<std::uint16_t>(type));
    rtrs::store_be64(to + 8, cookie);
    rtrs::store_be32(to + 16, payload_bytes);
}

}  // namespace rnbd::nbd
