// Messages of the data path: write, read, and the key answer. No I/O, no state, no allocation.
// Source: Linux drivers/infiniband/ulp/rtrs/rtrs-pri.h. All integers little-endian.
//
// A request in its chunk, without alignment or padding anywhere:
//   chunk + 0                  data (write), or room for the data that the server makes (read)
//   chunk + data               user message
//   chunk + data + user        request message; its place is the offset in the immediate
//
// Write message, 4 bytes             Read message, 8 + 16 * sg_cnt bytes
//    0  2  type     2                   0  2  type     3
//    2  2  usr_len                      2  2  usr_len
//                                       4  2  flags    0x1 NEED_INVAL
// RKEY_RSP, 8 bytes                     6  2  sg_cnt   0 (no data wanted) or 1
//    0  2  type     4                   8  16 descriptor: addr 8, key 4, len 4
//    2  2  buf_id   the permit
//    4  4  rkey     the chunk's key on this path from now on
//
// With Feature::failover 8 bytes follow a write or read message: le64 sequence, from 1
// (docs/reference/wire-failover.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "rtrs/base/bytes.h"
#include "rtrs/limits.h"
#include "rtrs/wire/info.h"
#include "rtrs/wire/parse_error.h"

namespace rtrs {

enum class RequestKind : std::uint8_t { write = 2, read = 3 };

// Whether the server must invalidate the descriptor's key before it answers.
enum class Invalidation : std::uint8_t { none = 0, needed = 1 };

// The sequence number of a request, which each of its attempts carries: from 1, one counter per
// session; 0: the peer has none.
using Sequence = std::uint64_t;
inline constexpr std::size_t sequence_bytes = 8;
// to: at least sequence_bytes.
void emit_sequence(Sequence sequence, std::byte* to) noexcept;

struct WriteMessage {
    static constexpr std::size_t wire_bytes = 4;
    std::uint16_t user_bytes = 0;
    // to: at least wire_bytes.
    void emit(MutableBytes to) const noexcept;
};

struct ReadMessage {
    static constexpr std::size_t header_bytes = 8;
    static constexpr std::size_t wire_bytes_max = header_bytes + BufferDescriptor::wire_bytes;
    std::uint16_t user_bytes = 0;
    Invalidation invalidation = Invalidation::none;  // needed only together with a destination
    std::optional<BufferDescriptor> destination{};   // empty: no data wanted (flush)

    std::size_t wire_bytes() const noexcept { return destination ? wire_bytes_max : header_bytes; }
    // to: at least wire_bytes().
    void emit(MutableBytes to) const noexcept;
};

// Where a request is, according to the peer, and what the receiver allows.
struct RequestPlace {
    std::uint32_t offset = 0;  // from the immediate
    std::uint32_t chunk_bytes = 0;
    std::uint32_t user_bytes_max = limits::user_message_bytes_max;  // what the server can copy
    bool sequenced = false;  // a sequence number follows the message

    // How many bytes of the chunk, from offset on, have to be copied for RequestMessage::parse(); 0
    // if the offset is outside.
    std::size_t copy_bytes() const noexcept {
        if (offset >= chunk_bytes) return 0;
        const std::size_t rest = chunk_bytes - offset;
        const std::size_t longest = ReadMessage::wire_bytes_max + (sequenced ? sequence_bytes : 0);
        return rest < longest ? rest : longest;
    }
};

// Why a request is refused, and what the client is owed.
struct RequestRefusal {
    ParseError why{};
    // The positive errno to answer with. 0: the path must be dropped, because nothing in this
    // request can be trusted.
    int answer_errno = 0;
    // Set if the client waits for this key to be invalidated before the (error) answer.
    std::optional<std::uint32_t> invalidate{};
};

// A request at the server, checked. The user message lies at chunk + data_bytes.
struct RequestMessage {
    RequestKind kind{};
    std::uint32_t data_bytes = 0;
    std::uint32_t user_bytes = 0;
    Invalidation invalidation = Invalidation::none;
    std::optional<BufferDescriptor> destination{};  // read: bytes within 1..data_bytes
    Sequence sequence = 0;                          // 0 if the place is not sequenced

    // copy: a PRIVATE copy of place.copy_bytes() bytes at chunk + place.offset; the client can
    // still write the chunk itself. Copy the user message the same way before looking at it.
    // Checks: the offset is in the chunk; the message ends in the chunk; the type is known; the
    // user message starts in the chunk and is not too long; at most one descriptor; a descriptor is
    // not empty and not longer than the data; a sequence number, if there must be one, is in the
    // chunk and not 0.
    // The result is written in place: what is assembled elsewhere and copied as a whole makes the
    // processor wait for its parts. Empty: message is complete. After a refusal it means nothing.
    static std::optional<RequestRefusal> parse(Bytes copy, const RequestPlace& place,
                                               RequestMessage& message) noexcept;
};

// The longest message behind a user message.
inline constexpr std::size_t request_message_bytes_max =
    ReadMessage::wire_bytes_max + sequence_bytes;

struct KeyResponseMessage {  // RKEY_RSP
    static constexpr std::size_t wire_bytes = 8;
    std::uint16_t permit = 0;
    std::uint32_t key = 0;

    // Checks length, type and permit < queue_depth. The caller compares the permit with the one in
    // the immediate; every violation drops the path. Writes in place, as RequestMessage::parse().
    static std::optional<ParseError> parse(Bytes data, std::uint32_t queue_depth,
                                           KeyResponseMessage& message) noexcept;
    // to: at least wire_bytes.
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const KeyResponseMessage&, const KeyResponseMessage&) = default;
};

}  // namespace rtrs
