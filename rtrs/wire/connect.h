// Private data of connection requests and answers: layout, parse, emit. No I/O, no state.
// Source: Linux drivers/infiniband/ulp/rtrs/rtrs-pri.h. All integers little-endian.
//
// Request, client to server, 56 bytes
//    0   1  cma version   0, belongs to the connection manager on AF_IB
//    1   1  ip version    0, belongs to the connection manager on AF_IB
//    2   2  magic         0x1bbd
//    4   2  version       0x0200: major in the high byte, minor ignored
//    6   2  cid           0 .. cid_num - 1
//    8   2  cid_num       1 .. 4096
//   10   2  recon_cnt     attempts to establish this path so far; no kernel compares it
//   12  16  sess_uuid     the path, for life
//   28  16  paths_uuid    the session
//   44   1  flags         bit 0 first_conn: a new session may be made
//                         bit 1, ours: a connection for messages of a path that is there
//   45   3  reserved      zero
//   48   4  features      ours; zero from a kernel
//   52   4  reserved      zero
//
// Answer, in accept and reject alike, 56 bytes
//    0   2  magic         0x1bbd
//    2   2  version       0x0200
//    4   2  errno         0 or negative, two's complement
//    6   2  queue_depth   0 in a reject, like all that follow
//    8   4  max_io_size   chunk size - max_hdr_size
//   12   4  max_hdr_size
//   16   4  flags         0x2 NEW_RKEY: every answer carries the chunk's next key
//   20   4  features      ours; zero from a kernel
//   24  32  reserved      zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>

#include "rtrs/base/bytes.h"
#include "rtrs/base/uuid.h"
#include "rtrs/wire/parse_error.h"

namespace rtrs {

inline constexpr std::uint16_t wire_magic = 0x1bbd;
inline constexpr std::uint16_t wire_version = 0x0200;
inline constexpr unsigned wire_version_major = wire_version >> 8;

// Our extensions of the protocol. The client offers bits, and the server answers with those of them
// that it grants; a bit is in force only if it is in both. A kernel leaves the field zero and
// ignores it, so with a kernel peer no bit is ever in force. Unknown bits are ignored.
enum class Feature : std::uint32_t {
    none = 0,
    // Requests carry sequence numbers, INFO_REQ an identity; ESTALE rejects a session that was
    // taken over. docs/reference/wire-failover.md
    failover = 1u << 0,
    // A further connection of each path carries messages with tags. docs/reference/wire-tags.md
    messages = 1u << 1,
    // A heartbeat may come over any connection of a path, and is answered over the same one.
    // docs/reference/wire-failover.md
    connection_heartbeats = 1u << 2,
};
inline constexpr std::uint32_t features_known =
    static_cast<std::uint32_t>(Feature::failover) | static_cast<std::uint32_t>(Feature::messages) |
    static_cast<std::uint32_t>(Feature::connection_heartbeats);
constexpr bool has(std::uint32_t features, Feature feature) noexcept {
    return (features & static_cast<std::uint32_t>(feature)) != 0;
}

// The set of these features' bits.
template <typename... Features>
constexpr std::uint32_t features_of(Features... features) noexcept {
    return (0u | ... | static_cast<std::uint32_t>(features));
}

// What the connection is for.
enum class ConnectionPurpose : std::uint8_t {
    path,      // one of the path's own connections, with a cid
    messages,  // messages with tags; cid 0 of 1, the rest as in the path's newest
};

// Whether this connection may create the session, or the session must exist.
enum class FirstConnection : std::uint8_t { no = 0, yes = 1 };

struct ConnectRequestMessage {
    static constexpr std::size_t wire_bytes = 56;

    std::uint16_t connection_id = 0;     // cid
    std::uint16_t connection_count = 1;  // cid_num
    std::uint16_t reconnect_count = 1;   // recon_cnt
    Uuid path_uuid{};                    // sess_uuid on the wire
    Uuid session_uuid{};                 // paths_uuid on the wire
    FirstConnection first_connection = FirstConnection::yes;
    ConnectionPurpose purpose = ConnectionPurpose::path;
    std::uint32_t features = 0;

    // Checks length, magic, major version, cid_num, cid, in this order; if any check fails a server
    // rejects with ECONNRESET. Longer input is allowed (P5 of fabric.h), bytes after 56 are
    // ignored.
    static std::expected<ConnectRequestMessage, ParseError> parse(Bytes data) noexcept;
    // to: at least wire_bytes; writes exactly those, padding zero.
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const ConnectRequestMessage&, const ConnectRequestMessage&) = default;
};

// The checked geometry of a session's chunks: limits::geometry_possible() holds.
struct ChunkGeometry {
    std::uint32_t queue_depth = 0;
    std::uint32_t chunk_bytes = 0;   // io_bytes_max + header_bytes_max
    std::uint32_t io_bytes_max = 0;  // payload of one request
    // Room for the user message, request message and descriptors of one request.
    std::uint32_t header_bytes_max = 0;

    friend bool operator==(const ChunkGeometry&, const ChunkGeometry&) = default;
};

// Whether every answer carries a fresh key of the chunk (SEND with RKEY_RSP).
enum class KeyRenewal : std::uint8_t { no = 0, every_answer = 1 };

struct ConnectResponseMessage {
    static constexpr std::size_t wire_bytes = 56;

    int error = 0;  // positive errno, 0 is accepted
    std::uint16_t queue_depth = 0;
    std::uint32_t io_bytes_max = 0;      // max_io_size
    std::uint32_t header_bytes_max = 0;  // max_hdr_size
    KeyRenewal key_renewal = KeyRenewal::no;
    std::uint32_t features = 0;

    static ConnectResponseMessage accept(const ChunkGeometry& geometry, KeyRenewal key_renewal,
                                         std::uint32_t features) noexcept;
    // error: positive errno.
    static ConnectResponseMessage reject(int error) noexcept;

    // Checks length, magic, major version, in this order. Longer input is allowed: rdma_cm shows
    // 196 bytes of an accept and 148 of a reject.
    static std::expected<ConnectResponseMessage, ParseError> parse(Bytes data) noexcept;
    // to: at least wire_bytes; writes exactly those, padding zero. ASSUMES error within 0..32768.
    void emit(MutableBytes to) const noexcept;

    // The chunk geometry that the answer announces, if it is possible. Meaningful on cid 0 and for
    // an accept only. ERRORS: queue_depth_out_of_range, chunk_size_out_of_range (also if depth and
    // size together break the 28-bit rule).
    std::expected<ChunkGeometry, ParseError> geometry() const noexcept;

    friend bool operator==(const ConnectResponseMessage&, const ConnectResponseMessage&) = default;
};

}  // namespace rtrs
