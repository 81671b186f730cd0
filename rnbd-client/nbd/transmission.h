// The rules of the transmission phase: which requests may run, and the form of the answers. Pure.
// Requests that are refused here never reach a volume.
//
// OWNER: none, these are functions on values. THREAD: any.
#pragma once

#include <cstdint>
#include <string_view>
#include <system_error>

#include "rnbd-client/nbd/wire.h"

namespace rnbd::nbd {

// What was negotiated with one client, and the present properties of the export.
struct Session {
    std::uint64_t size_bytes = 0;
    std::uint32_t block_bytes_min = 1;  // a power of two
    std::uint32_t payload_bytes_max = 32u << 20;
    std::uint16_t transmission_flags = 0;  // as told to the client
    bool structured_replies = false;
    bool allocation_context = false;
};

// The payload of a WRITE that is refused still follows in the stream. Up to this much is read and
// dropped; for more, the connection is ended.
inline constexpr std::uint32_t drained_bytes_max = 64u << 20;

struct Refusal {
    NbdError error = NbdError::none;  // none: the request may run
    std::string_view text{};          // why, for people

    friend bool operator==(const Refusal&, const Refusal&) = default;
};

// Whether a request may run. Command::disconnect is never refused.
// ERRORS: inval (unknown command; a flag or command that was not offered; unaligned; READ, WRITE
// or CACHE over payload_bytes_max; beyond the end), overflow (READ with DF over payload_bytes_max),
// nospc (WRITE or WRITE_ZEROES beyond the end), perm (changes on a read-only export).
Refusal check(const Request& request, const Session& session) noexcept;

// Whether the request is of a kind that payload_bytes_max limits, and is longer than that.
bool too_long(const Request& request, const Session& session) noexcept;

// Whether the command is refused on a read-only export. False for unknown commands.
bool changes_data(Command command) noexcept;

// Bytes of payload that follow this request in the stream.
inline std::uint32_t payload_bytes(const Request& request) noexcept {
    return request.command == Command::write ? request.length : 0;
}

// The error by which the client is told of a failed operation. What the protocol allows depends on
// the request: notsup is only an answer to FAST_ZERO.
NbdError to_nbd_error(std::error_code error, const Request& request) noexcept;

// ---- replies: each returns the bytes written to the front of the target ----

inline constexpr std::size_t error_text_bytes_max = 80;
inline constexpr std::size_t reply_header_bytes_max =
    chunk_header_bytes + 4 + 2 + error_text_bytes_max + 8;

// Success without data: a simple reply, or, for a READ of length zero with structured replies, the
// final empty chunk that they need.
std::size_t emit_done(MutableBytes to, const Request& request, const Session& session) noexcept;
// READ: the header; request.length bytes of data follow it.
// ASSUMES: the length is not zero.
std::size_t emit_read(MutableBytes to, const Request& request, const Session& session) noexcept;
// text: cut at error_text_bytes_max; left out of simple replies.
std::size_t emit_error(MutableBytes to, const Request& request, const Session& session,
                       NbdError error, std::string_view text) noexcept;
// The same with the offset of the first failure, for requests that have one.
// ASSUMES: structured replies; the offset is within the request.
std::size_t emit_error_at(MutableBytes to, const Request& request, NbdError error,
                          std::uint64_t offset, std::string_view text) noexcept;

// Writes the single chunk that answers BLOCK_STATUS, including its header, to the front of a
// target. Neighbouring extents with equal flags become one; what is beyond the request is cut off.
class BlockStatusWriter {
  public:
    // ASSUMES: extents_max >= 1; to holds block_status_bytes(extents_max); request.length > 0.
    BlockStatusWriter(MutableBytes to, std::size_t extents_max, const Request& request) noexcept;

    // Adds the next extent, which begins where the last one ended. Returns false once more extents
    // are of no use.
    bool add(std::uint64_t bytes, std::uint32_t flags) noexcept;
    // Returns the length of the chunk in bytes. If nothing was added, the chunk has one extent of
    // data for the whole request.
    std::size_t finish() noexcept;

  private:
    void put() noexcept;

    MutableBytes to_;
    std::size_t extents_max_;
    Request request_;
    std::uint32_t left_;  // of the request
    std::size_t written_ = 0;
    std::uint32_t bytes_ = 0;  // the extent that may still grow
    std::uint32_t flags_ = 0;
};

constexpr std::size_t block_status_bytes(std::size_t extents) noexcept {
    return chunk_header_bytes + 4 + extents * extent_bytes;
}
// How many extents fit.
constexpr std::size_t block_status_extents_max(std::size_t bytes) noexcept {
    return bytes < block_status_bytes(0) ? 0 : (bytes - block_status_bytes(0)) / extent_bytes;
}

}  // namespace rnbd::nbd
