// The beginning of every message of RNBD and of its extensions: two bytes with its type. For the
// files that parse and emit messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <expected>

#include "rnbd/messages.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/bytes.h"

namespace rnbd {

// bytes: the length of the shortest message of that type.
// ERRORS: too_short, wrong_type.
inline std::expected<const std::byte*, ParseError> check_message(rtrs::Bytes data,
                                                                 std::size_t bytes,
                                                                 std::uint16_t type) noexcept {
    if (data.size() < bytes) return std::unexpected(ParseError::too_short);
    if (rtrs::load_le16(data.data()) != type) return std::unexpected(ParseError::wrong_type);
    return data.data();
}

// Zeroes the first `bytes` bytes of `to` and writes the type.
// ASSUMES: to has at least that many bytes.
inline std::byte* begin_message(rtrs::MutableBytes to, std::size_t bytes,
                                std::uint16_t type) noexcept {
    RTRS_ASSERT(to.size() >= bytes);
    std::fill_n(to.begin(), bytes, std::byte{});
    rtrs::store_le16(to.data(), type);
    return to.data();
}

}  // namespace rnbd
