// RNBD messages, which RTRS carries as user messages: layout, parse, emit. No I/O, no state. Only
// OPEN allocates, and it is not on the data path.
// Source: Linux drivers/block/rnbd/rnbd-proto.h. All integers are little-endian, sizes are in
// bytes, sectors have 512 bytes. Padding is zero when sent and ignored when received, because
// kernel clients build messages on the stack and do not clear them. A message that is longer than
// its type needs is accepted.
//
// Every message starts with:   0  2  type      2  2  padding
//
// 0 SESS_INFO, 1 SESS_INFO_RSP, 36 bytes     2 OPEN, 264 bytes, 272 with a writer, 304 with a
//                                              medium
//    4   1  ver        2; answer: the           4    1  access_mode  0 ro, 1 rw, 2 migration
//                      smaller one              5    1  reserved
//    5   3  reserved                            6  255  dev_name     NUL terminated
//    8   4  features   ours                   261    3  reserved
//   12   8  mark       ours, see below        264    8  writer       ours: Feature::writer
//   20  16  reserved                         272   32  medium       ours: Feature::medium
//
// 3 OPEN_RSP, 56 or 88 bytes                 4 IO, 32 bytes
//    4   4  device_id                           4  4  device_id
//    8   8  nsectors                            8  8  sector    ignored for flush
//   16   4  max_hw_sectors                     16  4  rw        bits 7..0 operation, 31..8 flags
//   20   4  max_write_zeroes_sectors           20  4  bi_size   bytes affected
//   24   4  max_discard_sectors                24  2  prio      Linux ioprio
//   28   4  discard_granularity                26  6  padding
//   32   4  discard_alignment
//   36   2  physical_block_size              5 CLOSE, 8 bytes
//   38   2  logical_block_size                  4  4  device_id
//   40   2  max_segments
//   42   2  secure_discard
//   44   1  obsolete (rotational)
//   45   1  cache_policy  1 FUA, 2 write back
//   46   2  reserved
//   48   8  epoch     ours, if Feature::epoch is in force
//   56  32  medium    ours, if Feature::medium is in force (rnbd/medium_id.h)
//
// Our extension, used only after both sides have announced Feature::extents:
// 16 EXTENTS, 32 bytes, an RTRS read         17 EXTENTS_RSP, 16 + 16 * count bytes
//    4  4  device_id                            4  4  count
//    8  8  offset                               8  8  reserved
//   16  8  length                              16     count extents, each:
//   24  8  reserved                                +0  8  length
//                                                  +8  4  flags  1 hole, 2 reads as zeroes
//                                                 +12  4  reserved
//
// The features field is believed only if the mark beside it is right, because a kernel peer has
// reserved bytes there, which can contain whatever was in memory. Requests and answers have
// different marks.
//
// The errno that a server answers with:
//   bad or unknown message EINVAL; unknown operation EOPNOTSUPP; unknown device ENOTCONN; session
//   gone ENODEV; OPEN: no such path ENOENT, access mode taken EPERM, bad name or mode EINVAL;
//   ours: another writer has written ESTALE, another medium than expected EMEDIUMTYPE.
//   Storage: not supported EOPNOTSUPP, timeout ETIMEDOUT, no space ENOSPC, transport ENOLINK,
//   target EREMOTEIO, reservation EBADE, medium ENODATA, protection EILSEQ, resource ENOMEM,
//   busy EBUSY, again EAGAIN, offline ENODEV, everything else EIO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "rnbd/medium_id.h"
#include "rtrs/base/bytes.h"

namespace rnbd {

using rtrs::Bytes;
using rtrs::MutableBytes;

inline constexpr std::uint32_t sector_bytes = 512;
// bytes: a length, an offset, or both ORed together. block: a power of two.
constexpr bool whole_blocks(std::uint64_t bytes, std::uint32_t block) noexcept {
    return (bytes & (block - 1)) == 0;
}
inline constexpr std::uint8_t protocol_version = 2;
inline constexpr std::size_t device_name_field_bytes = 255;
inline constexpr std::size_t device_name_bytes_max = device_name_field_bytes - 1;

enum class MessageType : std::uint16_t {
    session_info = 0,
    session_info_response = 1,
    open = 2,
    open_response = 3,
    io = 4,
    close = 5,
    extents = 16,
    extents_response = 17,
};

enum class ParseError : std::uint8_t {
    too_short = 1,
    unknown_type,
    wrong_type,
    bad_access_mode,
    name_unterminated,
    name_empty,
    name_too_long,
    name_has_nul,
    name_has_dot_dot,
    unsupported_operation,
    size_is_not_data,
    data_missing,
    data_unexpected,
    logical_block_size_zero,
    extent_empty,
    too_many_exports,
};

// One line that names the field and what was expected, without a final period. Never null.
const char* text(ParseError error) noexcept;
// The positive errno that a server answers with.
int to_errno(ParseError error) noexcept;

// The type of a request, for the server's dispatch. ERRORS: too_short; unknown_type for everything
// that is not a request (responses too).
std::expected<MessageType, ParseError> request_type(Bytes message) noexcept;

// What our peers add to RNBD. Each side announces its features in SESS_INFO; a feature is in force
// if both sides announced it.
enum class Feature : std::uint32_t {
    none = 0,
    // IoFlag::fast_zero is obeyed.
    fast_zero = 1u << 0,
    // EXTENTS is answered.
    extents = 1u << 1,
    // OPEN_RSP contains the epoch of the cache behind the volume.
    epoch = 1u << 2,
    // OPEN says which writer asks; it is refused if another writer has written in the meantime.
    writer = 1u << 3,
    // OPEN_RSP says which medium the volume stands for, and OPEN which one the client expects.
    medium = 1u << 4,
};
constexpr Feature operator|(Feature a, Feature b) noexcept {
    return static_cast<Feature>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr Feature operator&(Feature a, Feature b) noexcept {
    return static_cast<Feature>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
constexpr bool has(Feature set, Feature wanted) noexcept { return (set & wanted) == wanted; }
// All bits that this version knows.
inline constexpr Feature features_known =
    Feature::fast_zero | Feature::extents | Feature::epoch | Feature::writer | Feature::medium;

struct SessionInfoMessage {
    static constexpr std::size_t wire_bytes = 36;
    std::uint8_t version = protocol_version;
    // After parse(): none if the mark is not right. Unknown bits are kept; mask them with
    // features_known.
    Feature features = Feature::none;

    static std::expected<SessionInfoMessage, ParseError> parse(Bytes data) noexcept;
    // to: at least wire_bytes. With Feature::none the message is the same as a kernel's, byte for
    // byte.
    void emit(MutableBytes to) const noexcept;
    friend bool operator==(const SessionInfoMessage&, const SessionInfoMessage&) = default;
};

struct SessionInfoResponse {
    static constexpr std::size_t wire_bytes = 36;
    std::uint8_t version = protocol_version;
    Feature features = Feature::none;

    // The answer to a request: the smaller version, the features that both know and the server
    // offers.
    static SessionInfoResponse to(const SessionInfoMessage& request, Feature offered) noexcept;

    // Does not check the type, as kernel clients do not: the request says what the answer is.
    static std::expected<SessionInfoResponse, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;
    friend bool operator==(const SessionInfoResponse&, const SessionInfoResponse&) = default;
};

enum class AccessMode : std::uint8_t { read_only = 0, read_write = 1, migration = 2 };

// Checks a device name: it is not empty, has at most 254 bytes, and contains no NUL and no "..".
std::expected<void, ParseError> check_device_name(std::string_view name) noexcept;

struct OpenMessage {
    static constexpr std::size_t wire_bytes = 264;
    static constexpr std::size_t wire_bytes_with_writer = 272;
    static constexpr std::size_t wire_bytes_max = wire_bytes_with_writer + MediumId::wire_bytes;
    AccessMode access_mode = AccessMode::read_write;
    std::string device_name;
    // Ours (Feature::writer): a random number that identifies the writer. It stays the same in each
    // OPEN for as long as the writer may hold writes. 0: not said. Undefined if the feature is not
    // in force.
    std::uint64_t writer = 0;
    // Ours (Feature::medium): the medium that the data came from which the user of the volume has
    // read, or holds. If the volume stands for another medium, it is not opened. Not known: any
    // medium is accepted. Undefined if the feature is not in force.
    MediumId medium{};

    // The size of the message as emit() writes it.
    std::size_t size() const noexcept {
        if (medium.known()) return wire_bytes_max;
        return writer == 0 ? wire_bytes : wire_bytes_with_writer;
    }
    // Checks the length, the type, the access mode and the name.
    static std::expected<OpenMessage, ParseError> parse(Bytes data);
    // to: at least size().
    // ASSUMES: check_device_name() accepts the name.
    void emit(MutableBytes to) const noexcept;
    friend bool operator==(const OpenMessage&, const OpenMessage&) = default;
};

struct OpenResponse {
    static constexpr std::uint32_t wire_bytes = 56;
    static constexpr std::uint32_t wire_bytes_with_medium = wire_bytes + MediumId::wire_bytes;
    std::uint32_t device_id = 0;
    std::uint64_t sectors = 0;
    std::uint32_t max_hw_sectors = 0;
    std::uint32_t max_write_zeroes_sectors = 0;  // 0: never send write_zeroes
    std::uint32_t max_discard_sectors = 0;       // 0: never send discard
    std::uint32_t discard_granularity_bytes = 0;
    std::uint32_t discard_alignment_bytes = 0;
    std::uint16_t physical_block_bytes = 0;
    std::uint16_t logical_block_bytes = 0;
    std::uint16_t max_segments = 0;
    std::uint16_t secure_discard = 0;  // 0: never send secure_erase
    bool fua = false;
    bool write_back = false;
    // Ours (Feature::epoch): identifies one life of the cache that keeps unflushed writes. Another
    // number means that they are gone. 0: not known. Undefined if the feature is not in force.
    std::uint64_t epoch = 0;
    // Ours (Feature::medium). Undefined if the feature is not in force.
    MediumId medium{};

    // The size of an answer when these features are in force.
    static constexpr std::uint32_t size(Feature features) noexcept {
        return has(features, Feature::medium) ? wire_bytes_with_medium : wire_bytes;
    }
    // Checks the length, and that logical_block_bytes is not 0; it does not check the type, as
    // kernel clients do not.
    static std::expected<OpenResponse, ParseError> parse(Bytes data) noexcept;
    // to: at least wire_bytes. The medium is emitted if `to` has at least wire_bytes_with_medium.
    void emit(MutableBytes to) const noexcept;
    friend bool operator==(const OpenResponse&, const OpenResponse&) = default;
};

struct CloseMessage {
    static constexpr std::size_t wire_bytes = 8;
    std::uint32_t device_id = 0;

    static std::expected<CloseMessage, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;
    friend bool operator==(const CloseMessage&, const CloseMessage&) = default;
};

enum class Operation : std::uint8_t {
    read = 0,
    write = 1,
    flush = 2,
    discard = 3,
    secure_erase = 4,
    write_zeroes = 5,
};

// Whether the operation carries its bytes as RTRS data (read, write).
constexpr bool carries_data(Operation operation) noexcept {
    return operation == Operation::read || operation == Operation::write;
}
// Whether kernel clients send the operation as an RTRS read: a flush is a read without a
// descriptor. Servers accept either direction for operations without data.
constexpr bool sent_as_read(Operation operation) noexcept {
    return operation == Operation::read || operation == Operation::flush;
}

// Bits of `rw` above the operation. Unknown bits are ignored by every server.
enum class IoFlag : std::uint32_t {
    none = 0,
    sync = 0x100,
    fua = 0x200,
    preflush = 0x400,
    no_unmap = 0x800,
    // Ours (Feature::fast_zero), with write_zeroes: fail with EOPNOTSUPP instead of writing slowly.
    fast_zero = 0x1000,
};
constexpr IoFlag operator|(IoFlag a, IoFlag b) noexcept {
    return static_cast<IoFlag>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr IoFlag operator&(IoFlag a, IoFlag b) noexcept {
    return static_cast<IoFlag>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
constexpr bool has(IoFlag set, IoFlag wanted) noexcept { return (set & wanted) == wanted; }

struct IoMessage {
    static constexpr std::size_t wire_bytes = 32;
    // The offset of device_id, for a message that is sent again after the device got another id.
    static constexpr std::size_t device_id_offset = 4;
    // The length without prio, as clients before protocol version 2 send it.
    static constexpr std::size_t wire_bytes_min = 24;
    static constexpr std::uint64_t sector_none = ~0ull;  // a kernel's flush

    std::uint32_t device_id = 0;
    std::uint64_t sector = 0;
    Operation operation = Operation::read;
    IoFlag flags = IoFlag::none;
    std::uint32_t bytes = 0;     // bi_size: bytes affected, also if no data is transferred
    std::uint16_t priority = 0;  // 0 if the message is shorter than wire_bytes

    // Checks the length, the type and the operation (unsupported_operation: EOPNOTSUPP). It does
    // not check the range, which needs the volume.
    static std::expected<IoMessage, ParseError> parse(Bytes data) noexcept;
    // to: at least wire_bytes.
    void emit(MutableBytes to) const noexcept;

    // data_bytes: the data of the RTRS request that carried the message. Reads and writes must have
    // exactly `bytes` of data, and not 0; the other operations must have none.
    std::expected<void, ParseError> check_data(std::uint64_t data_bytes) const noexcept;

    friend bool operator==(const IoMessage&, const IoMessage&) = default;
};

// Ours: asks which parts of a range hold data. Offset and length are in bytes.
struct ExtentsMessage {
    static constexpr std::size_t wire_bytes = 32;
    static constexpr std::size_t device_id_offset = IoMessage::device_id_offset;
    std::uint32_t device_id = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;

    static std::expected<ExtentsMessage, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;
    friend bool operator==(const ExtentsMessage&, const ExtentsMessage&) = default;
};

enum class ExtentFlag : std::uint32_t { none = 0, hole = 1, zero = 2 };
constexpr ExtentFlag operator|(ExtentFlag a, ExtentFlag b) noexcept {
    return static_cast<ExtentFlag>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr ExtentFlag operator&(ExtentFlag a, ExtentFlag b) noexcept {
    return static_cast<ExtentFlag>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
inline constexpr ExtentFlag known_extent_flags = ExtentFlag::hole | ExtentFlag::zero;

struct ExtentDescriptor {
    static constexpr std::size_t wire_bytes = 16;
    std::uint64_t length = 0;
    ExtentFlag flags = ExtentFlag::none;  // the bits of NBD's base:allocation, with equal values
    friend bool operator==(const ExtentDescriptor&, const ExtentDescriptor&) = default;
};

// The extents start at the requested offset and follow each other. They may end before the end of
// the requested range (the buffer was full) or after it.
class ExtentsResponseView {
  public:
    static constexpr std::size_t header_bytes = 16;
    static constexpr std::size_t wire_bytes(std::size_t extents) noexcept {
        return header_bytes + ExtentDescriptor::wire_bytes * extents;
    }
    // How many extents an answer of buffer_bytes can hold.
    static constexpr std::size_t capacity(std::size_t buffer_bytes) noexcept {
        return buffer_bytes < header_bytes
                   ? 0
                   : (buffer_bytes - header_bytes) / ExtentDescriptor::wire_bytes;
    }

    // Checks the length and the type, that all extents are there, and that none is empty. The view
    // reads from `data`, which must outlive it.
    static std::expected<ExtentsResponseView, ParseError> parse(Bytes data) noexcept;
    std::size_t count() const noexcept { return extents_.size() / ExtentDescriptor::wire_bytes; }
    // index < count()
    ExtentDescriptor extent(std::size_t index) const noexcept;

    // These emit an answer piece by piece: each extent at its index, then the header with the final
    // count.
    // to: at least wire_bytes(count).
    static void emit_header(std::uint32_t count, MutableBytes to) noexcept;
    static void emit_extent(std::size_t index, const ExtentDescriptor& extent,
                            MutableBytes to) noexcept;

  private:
    explicit ExtentsResponseView(Bytes extents) noexcept : extents_(extents) {}
    Bytes extents_;
};

}  // namespace rnbd
