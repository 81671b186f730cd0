// The info exchange on cid 0: layout, parse, emit. No I/O, no state.
// Source: Linux drivers/infiniband/ulp/rtrs/rtrs-pri.h. All integers little-endian.
//
// INFO_REQ, client to server, 272 bytes
//    0    2  type       0
//    2  255  pathname   session name, NUL padded
//  257    8  identity   ours, with Feature::failover: the client's machine, 0 none; else zero
//  265    7  life       ours, with Feature::failover: the client's run, greater is newer; else zero
//
// INFO_RSP, server to client, 8 + 16 * sg_cnt bytes
//    0    2  type       1
//    2    2  sg_cnt     descriptors that follow
//    4    4  reserved   zero
//    8       sg_cnt descriptors, each:
//         +0  8  addr   opaque to the client
//         +8  4  key
//        +12  4  len    a multiple of the chunk size
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "rtrs/base/bytes.h"
#include "rtrs/limits.h"
#include "rtrs/wire/parse_error.h"

namespace rtrs {

// A region of the sender's memory (addr, key, len), 16 bytes.
struct BufferDescriptor {
    static constexpr std::size_t wire_bytes = 16;

    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;

    // from, to: at least wire_bytes.
    static BufferDescriptor load(const std::byte* from) noexcept;
    void store(std::byte* to) const noexcept;

    friend bool operator==(const BufferDescriptor&, const BufferDescriptor&) = default;
};

// The rules of a session name: not empty, at most 254 bytes, no '/', no '.', no NUL.
// (An empty name makes a kernel server drop a reference too many: never send one.)
std::expected<void, ParseError> check_session_name(std::string_view name) noexcept;

struct InfoRequestMessage {
    static constexpr std::size_t wire_bytes = 272;

    std::string session_name;
    // As found in the message: trust these two only if the extension is in force.
    std::uint64_t identity = 0;
    std::uint64_t life = 0;  // 56 bits

    // Checks length, type, termination and the rules of a session name. The wire has no negative
    // answer: a server drops the path.
    static std::expected<InfoRequestMessage, ParseError> parse(Bytes data);
    // to: at least wire_bytes; writes exactly that many, padding with zeros. ASSUMES: the name has
    // been checked.
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const InfoRequestMessage&, const InfoRequestMessage&) = default;
};

// A checked view of an INFO_RSP. It refers to the bytes that it was made from, which must outlive
// it.
class InfoResponseView {
  public:
    // Checks length, type, and that all descriptors are there.
    static std::expected<InfoResponseView, ParseError> parse(Bytes data) noexcept;

    std::size_t count() const noexcept {
        return descriptors_.size() / BufferDescriptor::wire_bytes;
    }
    // index < count()
    BufferDescriptor descriptor(std::size_t index) const noexcept;

    // Lays the regions out as chunks: in descriptor order, ascending inside a region.
    // chunks: one per permit; written completely on success, each with bytes == chunk_bytes.
    // ERRORS: no_descriptors; descriptors_do_not_divide_queue_depth;
    //   descriptor_length_not_whole_chunks; descriptors_do_not_cover_chunks (too few, too many).
    // ASSUMES: limits::geometry_possible(chunks.size(), chunk_bytes).
    std::expected<void, ParseError> chunks(std::span<BufferDescriptor> chunks,
                                           std::uint32_t chunk_bytes) const noexcept;

  private:
    explicit InfoResponseView(Bytes descriptors) noexcept : descriptors_(descriptors) {}
    Bytes descriptors_;
};

struct InfoResponseMessage {
    static constexpr std::size_t header_bytes = 8;
    static constexpr std::size_t wire_bytes(std::size_t descriptors) noexcept {
        return header_bytes + BufferDescriptor::wire_bytes * descriptors;
    }
    // Size of the receive that a client posts for it.
    static constexpr std::size_t wire_bytes_max(std::uint32_t queue_depth) noexcept {
        return wire_bytes(queue_depth);
    }

    // to: at least wire_bytes(descriptors.size()). ASSUMES: 1..65535 descriptors.
    static void emit(std::span<const BufferDescriptor> descriptors, MutableBytes to) noexcept;
    // The same in pieces, for a caller that keeps no array: header first, then each descriptor.
    static void emit_header(std::uint16_t descriptors, MutableBytes to) noexcept;
    static void emit_descriptor(std::size_t index, const BufferDescriptor& descriptor,
                                MutableBytes to) noexcept;
};

static_assert(InfoResponseMessage::wire_bytes(limits::queue_depth_default) == 8200);

}  // namespace rtrs
