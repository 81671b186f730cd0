#include "rnbd-client/nbd/transmission.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "rnbd-client/nbd/handshake.h"
#include "rtrs/base/assert.h"

namespace rnbd::nbd {
namespace {

// What a command needs to have been offered, and the flags that it may carry.
struct Rule {
    std::uint16_t needs;  // transmission flag, 0: always there
    std::uint16_t flags;
    bool changes_data;
    bool limited_by_payload;
};

std::optional<Rule> rule_of(Command command) noexcept {
    using namespace command_flag;
    namespace offered = transmission_flag;
    switch (command) {
        case Command::read:
            return Rule{0, fua | df, false, true};
        case Command::write:
            return Rule{0, fua, true, true};
        case Command::disconnect:
            return std::nullopt;
        case Command::flush:
            return Rule{offered::send_flush, fua, false, false};
        case Command::trim:
            return Rule{offered::send_trim, fua, true, false};
        case Command::cache:
            return Rule{offered::send_cache, fua, false, false};
        case Command::write_zeroes:
            return Rule{offered::send_write_zeroes, fua | no_hole | fast_zero, true, false};
        case Command::block_status:
            return Rule{0, fua | req_one, false, false};
    }
    return std::nullopt;
}

// The command flags that depend on an offer.
std::uint16_t offered_flags(const Session& session) noexcept {
    std::uint16_t flags = command_flag::no_hole | command_flag::req_one;
    if (session.transmission_flags & transmission_flag::send_fua) flags |= command_flag::fua;
    if (session.transmission_flags & transmission_flag::send_df) flags |= command_flag::df;
    if (session.transmission_flags & transmission_flag::send_fast_zero) {
        flags |= command_flag::fast_zero;
    }
    return flags;
}

Refusal check_range(const Request& request, const Session& session) noexcept {
    if (too_long(request, session)) {
        return {request.flags & command_flag::df ? NbdError::overflow : NbdError::inval,
                "request is larger than the maximum block size"};
    }
    if (request.offset > session.size_bytes ||
        request.length > session.size_bytes - request.offset) {
        const bool wants_space =
            request.command == Command::write || request.command == Command::write_zeroes;
        return {wants_space ? NbdError::nospc : NbdError::inval,
                "request is beyond the end of the device"};
    }
    if (((request.offset | request.length) & (session.block_bytes_min - 1)) != 0) {
        return {NbdError::inval, "request is not aligned to the minimum block size"};
    }
    return {};
}

std::size_t put_error(std::byte* to, NbdError error, std::string_view text) noexcept {
    rtrs::store_be32(to, static_cast<std::uint32_t>(error));
    rtrs::store_be16(to + 4, static_cast<std::uint16_t>(text.size()));
    if (!text.empty()) std::memcpy(to + 6, text.data(), text.size());
    return 6 + text.size();
}

}  // namespace

bool changes_data(Command command) noexcept {
    const auto rule = rule_of(command);
    return rule && rule->changes_data;
}

bool too_long(const Request& request, const Session& session) noexcept {
    const auto rule = rule_of(request.command);
    return rule && rule->limited_by_payload && request.length > session.payload_bytes_max;
}

Refusal check(const Request& request, const Session& session) noexcept {
    if (request.command == Command::disconnect) return {};
    const auto rule = rule_of(request.command);
    if (!rule) return {NbdError::inval, "unknown command"};
    if (rule->changes_data && (session.transmission_flags & transmission_flag::read_only)) {
        return {NbdError::perm, "device is read-only"};
    }
    if (rule->needs != 0 && (session.transmission_flags & rule->needs) == 0) {
        return {NbdError::inval, "command was not offered"};
    }
    if ((request.flags & ~(rule->flags & offered_flags(session))) != 0) {
        return {NbdError::inval, "flag is unknown or was not offered for this command"};
    }
    if (request.command == Command::flush) {
        const bool reserved_used = request.offset != 0 || request.length != 0;
        return reserved_used ? Refusal{NbdError::inval, "flush with offset or length"} : Refusal{};
    }
    if (request.command == Command::block_status) {
        if (!session.structured_replies || !session.allocation_context) {
            return {NbdError::inval, "no metadata context was selected"};
        }
        // The answer has at least one extent, and no extent is empty.
        if (request.length == 0) return {NbdError::inval, "block status of nothing"};
    }
    return check_range(request, session);
}

NbdError to_nbd_error(std::error_code error, const Request& request) noexcept {
    switch (rtrs::to_errno(error)) {
        case 0:
            return NbdError::none;
        case EPERM:
        case EACCES:
        case EROFS:
            return NbdError::perm;
        case ENOMEM:
            return NbdError::nomem;
        case EINVAL:
            return NbdError::inval;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return NbdError::nospc;
        case EOVERFLOW:
            return NbdError::overflow;
        case EOPNOTSUPP:
            return request.flags & command_flag::fast_zero ? NbdError::notsup : NbdError::inval;
        case ESHUTDOWN:
            return NbdError::shutdown;
        default:
            return NbdError::io;
    }
}

std::size_t emit_done(MutableBytes to, const Request& request, const Session& session) noexcept {
    if (session.structured_replies && request.command == Command::read) {
        RTRS_ASSERT(to.size() >= chunk_header_bytes);
        emit_chunk_header(to.data(), request.cookie, Chunk::none, 0);
        return chunk_header_bytes;
    }
    RTRS_ASSERT(to.size() >= simple_reply_bytes);
    emit_simple_reply(to.data(), request.cookie, NbdError::none);
    return simple_reply_bytes;
}

std::size_t emit_read(MutableBytes to, const Request& request, const Session& session) noexcept {
    if (!session.structured_replies) return emit_done(to, request, session);
    RTRS_ASSERT(to.size() >= data_chunk_header_bytes);
    emit_chunk_header(to.data(), request.cookie, Chunk::offset_data, request.length + 8);
    rtrs::store_be64(to.data() + chunk_header_bytes, request.offset);
    return data_chunk_header_bytes;
}

std::size_t emit_error(MutableBytes to, const Request& request, const Session& session,
                       NbdError error, std::string_view text) noexcept {
    RTRS_ASSERT(error != NbdError::none);
    if (!session.structured_replies) {
        RTRS_ASSERT(to.size() >= simple_reply_bytes);
        emit_simple_reply(to.data(), request.cookie, error);
        return simple_reply_bytes;
    }
    text = text.substr(0, error_text_bytes_max);
    RTRS_ASSERT(to.size() >= chunk_header_bytes + 6 + text.size());
    const std::size_t payload = put_error(to.data() + chunk_header_bytes, error, text);
    emit_chunk_header(to.data(), request.cookie, Chunk::error, static_cast<std::uint32_t>(payload));
    return chunk_header_bytes + payload;
}

std::size_t emit_error_at(MutableBytes to, const Request& request, NbdError error,
                          std::uint64_t offset, std::string_view text) noexcept {
    RTRS_ASSERT(error != NbdError::none);
    text = text.substr(0, error_text_bytes_max);
    RTRS_ASSERT(to.size() >= chunk_header_bytes + 14 + text.size());
    const std::size_t payload = put_error(to.data() + chunk_header_bytes, error, text);
    rtrs::store_be64(to.data() + chunk_header_bytes + payload, offset);
    emit_chunk_header(to.data(), request.cookie, Chunk::error_offset,
                      static_cast<std::uint32_t>(payload + 8));
    return chunk_header_bytes + payload + 8;
}

BlockStatusWriter::BlockStatusWriter(MutableBytes to, std::size_t extents_max,
                                     const Request& request) noexcept
    : to_(to), extents_max_(extents_max), request_(request), left_(request.length) {
    RTRS_ASSERT(extents_max > 0 && request.length > 0);
    RTRS_ASSERT(to.size() >= block_status_bytes(extents_max));
}

bool BlockStatusWriter::add(std::uint64_t bytes, std::uint32_t flags) noexcept {
    if (bytes_ > 0 && flags != flags_) {
        if (written_ + 1 == extents_max_) return false;
        put();
    }
    const auto now = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, left_));
    flags_ = flags;
    bytes_ += now;
    left_ -= now;
    return left_ > 0;
}

void BlockStatusWriter::put() noexcept {
    std::byte* at = to_.data() + block_status_bytes(written_);
    rtrs::store_be32(at, bytes_);
    rtrs::store_be32(at + 4, flags_);
    ++written_;
    bytes_ = 0;
}

std::size_t BlockStatusWriter::finish() noexcept {
    if (written_ == 0 && bytes_ == 0) bytes_ = left_;
    if (bytes_ > 0) put();
    emit_chunk_header(to_.data(), request_.cookie, Chunk::block_status,
                      static_cast<std::uint32_t>(4 + written_ * extent_bytes));
    rtrs::store_be32(to_.data() + chunk_header_bytes, allocation_context_id);
    return block_status_bytes(written_);
}

}  // namespace rnbd::nbd
