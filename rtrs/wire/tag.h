// Messages with tags: layout, parse, emit. No I/O, no state. All integers big-endian.
// Source: rdma-core, Documentation/tag_matching.md and infiniband/tm_types.h; the two notices are
// ours. docs/reference/wire-tags.md says how they are used.
//
// Tag-matching header, 16 bytes, at the start of every message
//    0   1  operation   0 no tag, 1 rendezvous, 2 finished, 3 eager
//    1   3  reserved    zero
//    4   4  user data   ours: low 32 bits of the message's number; in a notice: which one
//    8   8  tag
// Rendezvous header, 16 bytes, behind it if the operation is 1
//    0   8  address     of the message in the sender's memory
//    8   4  key
//   12   4  length
// Hello, behind a header of operation 0 and user data 1, 48 bytes
//    0   4  window      messages that its sender takes without having handed them out
//    4   4  eager       bytes of the longest eager message that it takes
//    8   4  longest     bytes of the longest message that it takes
//   12   4  reserved    zero
//   16   8  life        of its sender's end of the session: a new life knows nothing; not 0
//   24   8  known       the life that it knows of the other end; 0 none
//   32   8  received   } as in progress; about the life that it knows
//   40   8  freed      }
// Progress, behind a header of operation 0 and user data 2, 16 bytes
//    0   8  received    number of the last message that has arrived; 0 none
//    8   8  freed       how many of those messages do not count for the window any more
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>

#include "rtrs/base/bytes.h"
#include "rtrs/wire/parse_error.h"

namespace rtrs {

enum class TagHeaderOperation : std::uint8_t {
    no_tag = 0,      // one of our notices
    rendezvous = 1,  // the content is to be read from the sender's memory
    finished = 2,    // the sender's memory is free; user data and tag as in the rendezvous
    eager = 3,       // the content follows
};

struct TagHeader {
    static constexpr std::size_t wire_bytes = 16;

    TagHeaderOperation operation = TagHeaderOperation::no_tag;
    std::uint32_t user_data = 0;
    std::uint64_t tag = 0;

    // ERRORS: too_short, bad_type (unknown operation), reserved_not_zero.
    static std::expected<TagHeader, ParseError> parse(Bytes data) noexcept;
    // to: at least wire_bytes; writes exactly those.
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const TagHeader&, const TagHeader&) = default;
};

struct RendezvousHeader {
    static constexpr std::size_t wire_bytes = 16;

    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;

    // data: what follows the tag-matching header. ERRORS: too_short.
    static std::expected<RendezvousHeader, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const RendezvousHeader&, const RendezvousHeader&) = default;
};

enum class TagNotice : std::uint32_t { hello = 1, progress = 2 };

struct TagProgress {
    static constexpr std::size_t wire_bytes = 16;

    std::uint64_t received = 0;
    std::uint64_t freed = 0;

    // ERRORS: too_short, freed_above_received.
    static std::expected<TagProgress, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const TagProgress&, const TagProgress&) = default;
};

struct TagHello {
    static constexpr std::size_t wire_bytes = 48;
    static constexpr std::uint32_t window_max = 1024;
    static constexpr std::uint32_t eager_bytes_min = 64;
    static constexpr std::uint32_t eager_bytes_max = 1 << 20;
    // The most that one work request of a fabric moves.
    static constexpr std::uint32_t longest_bytes_max = 64 << 20;

    std::uint32_t window = 1;
    std::uint32_t eager_bytes = eager_bytes_min;
    std::uint32_t longest_bytes = eager_bytes_min;
    std::uint64_t life = 1;
    std::uint64_t known = 0;
    TagProgress progress{};

    // ERRORS: too_short, tag_limits_out_of_range (window 1..1024, eager 64..1 MiB, longest from
    // eager to 64 MiB, life not 0), freed_above_received.
    static std::expected<TagHello, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const TagHello&, const TagHello&) = default;
};

}  // namespace rtrs
