// The 32-bit immediate of requests, answers and heartbeats. No I/O, no state.
// Source: Linux drivers/infiniband/ulp/rtrs/rtrs-pri.h.
//
// The value here is in host order; a fabric carries it big-endian, as verbs do.
//   bits 31..28  type
//   bits 27..0   payload
// Request: permit in bits 27..M, offset of the request message in its chunk in bits M-1..0, with
//   M = 28 - ceil(log2(queue depth)). Answer: errno magnitude in bits 27..19, permit in 18..0.
#pragma once

#include <cerrno>
#include <cstdint>
#include <expected>

#include "rtrs/base/assert.h"
#include "rtrs/limits.h"
#include "rtrs/wire/parse_error.h"

namespace rtrs {

enum class ImmediateType : std::uint8_t {
    request = 0,
    response = 1,
    response_invalidated = 2,  // the client's key was invalidated first (SEND_WITH_INV)
    heartbeat = 8,
    heartbeat_ack = 9,
};

struct Immediate {
    ImmediateType type{};
    std::uint32_t permit = 0;  // request, responses; < queue depth
    std::uint32_t offset = 0;  // request: where the request message starts in the chunk
    int error = 0;             // responses: positive errno or 0

    friend bool operator==(const Immediate&, const Immediate&) = default;
};

class ImmediateCodec {
  public:
    // queue_depth: 1..65535.
    explicit constexpr ImmediateCodec(std::uint32_t queue_depth) noexcept
        : queue_depth_(queue_depth),
          offset_bits_(limits::immediate_payload_bits - limits::ceil_log2(queue_depth)) {}

    // M: width of the offset in a request.
    constexpr unsigned offset_bits() const noexcept { return offset_bits_; }
    constexpr std::uint32_t offset_max() const noexcept { return (1u << offset_bits_) - 1; }

    // permit < queue depth; offset <= offset_max().
    constexpr std::uint32_t request(std::uint32_t permit, std::uint32_t offset) const noexcept {
        RTRS_ASSERT(permit < queue_depth_ && offset <= offset_max());
        return permit << offset_bits_ | offset;
    }
    // permit < queue depth; error: positive errno or 0. An errno that the field cannot carry
    // becomes EIO: truncating it to 9 bits, as the kernel does, can turn it into success.
    constexpr std::uint32_t response(std::uint32_t permit, int error) const noexcept {
        return answer(ImmediateType::response, permit, error);
    }
    constexpr std::uint32_t response_invalidated(std::uint32_t permit, int error) const noexcept {
        return answer(ImmediateType::response_invalidated, permit, error);
    }
    static constexpr std::uint32_t heartbeat() noexcept { return head(ImmediateType::heartbeat); }
    static constexpr std::uint32_t heartbeat_ack() noexcept {
        return head(ImmediateType::heartbeat_ack);
    }

    static constexpr bool is_heartbeat(std::uint32_t value) noexcept {
        return value >> limits::immediate_payload_bits ==
               static_cast<std::uint32_t>(ImmediateType::heartbeat);
    }

    // ERRORS: immediate_type_unknown (ignore the message, repost the receive);
    //   permit_out_of_range (the path is dropped).
    // The offset of a request is not compared with the chunk size here, see request.h.
    constexpr std::expected<Immediate, ParseError> decode(std::uint32_t value) const noexcept {
        const auto type = static_cast<ImmediateType>(value >> limits::immediate_payload_bits);
        const std::uint32_t payload = value & ((1u << limits::immediate_payload_bits) - 1);
        Immediate result{.type = type};
        switch (type) {
            case ImmediateType::request:
                result.permit = payload >> offset_bits_;
                result.offset = payload & offset_max();
                break;
            case ImmediateType::response:
            case ImmediateType::response_invalidated:
                result.permit = payload & ((1u << limits::immediate_response_permit_bits) - 1);
                result.error = static_cast<int>(payload >> limits::immediate_response_permit_bits);
                break;
            case ImmediateType::heartbeat:
            case ImmediateType::heartbeat_ack:
                return result;
            default:
                return std::unexpected(ParseError::immediate_type_unknown);
        }
        if (result.permit >= queue_depth_) return std::unexpected(ParseError::permit_out_of_range);
        return result;
    }

  private:
    static constexpr std::uint32_t head(ImmediateType type) noexcept {
        return static_cast<std::uint32_t>(type) << limits::immediate_payload_bits;
    }
    constexpr std::uint32_t answer(ImmediateType type, std::uint32_t permit,
                                   int error) const noexcept {
        RTRS_ASSERT(permit < queue_depth_ && error >= 0);
        const auto code = static_cast<std::uint32_t>(error > limits::errno_max ? EIO : error);
        return head(type) | code << limits::immediate_response_permit_bits | permit;
    }

    std::uint32_t queue_depth_;
    unsigned offset_bits_;
};

}  // namespace rtrs
