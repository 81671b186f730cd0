// Unaligned loads and stores of fixed-width integers in wire byte order.
//
// RTRS and RNBD messages are little-endian; the immediate and NBD are big-endian.
// ASSUMES: the caller has checked that the bytes are there.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rtrs {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

namespace detail {

template <typename T>
T load(const std::byte* from, std::endian order) noexcept {
    T value;
    std::memcpy(&value, from, sizeof value);
    if (order != std::endian::native) {
        if constexpr (sizeof(T) == 2) value = __builtin_bswap16(value);
        if constexpr (sizeof(T) == 4) value = __builtin_bswap32(value);
        if constexpr (sizeof(T) == 8) value = __builtin_bswap64(value);
    }
    return value;
}

template <typename T>
void store(std::byte* to, T value, std::endian order) noexcept {
    if (order != std::endian::native) {
        if constexpr (sizeof(T) == 2) value = __builtin_bswap16(value);
        if constexpr (sizeof(T) == 4) value = __builtin_bswap32(value);
        if constexpr (sizeof(T) == 8) value = __builtin_bswap64(value);
    }
    std::memcpy(to, &value, sizeof value);
}

}  // namespace detail

inline std::uint8_t load_u8(const std::byte* p) noexcept {
    return std::to_integer<std::uint8_t>(*p);
}
inline std::uint16_t load_le16(const std::byte* p) noexcept {
    return detail::load<std::uint16_t>(p, std::endian::little);
}
inline std::uint32_t load_le32(const std::byte* p) noexcept {
    return detail::load<std::uint32_t>(p, std::endian::little);
}
inline std::uint64_t load_le64(const std::byte* p) noexcept {
    return detail::load<std::uint64_t>(p, std::endian::little);
}
inline std::uint16_t load_be16(const std::byte* p) noexcept {
    return detail::load<std::uint16_t>(p, std::endian::big);
}
inline std::uint32_t load_be32(const std::byte* p) noexcept {
    return detail::load<std::uint32_t>(p, std::endian::big);
}
inline std::uint64_t load_be64(const std::byte* p) noexcept {
    return detail::load<std::uint64_t>(p, std::endian::big);
}

inline void store_u8(std::byte* p, std::uint8_t v) noexcept { *p = std::byte{v}; }
inline void store_le16(std::byte* p, std::uint16_t v) noexcept {
    detail::store(p, v, std::endian::little);
}
inline void store_le32(std::byte* p, std::uint32_t v) noexcept {
    detail::store(p, v, std::endian::little);
}
inline void store_le64(std::byte* p, std::uint64_t v) noexcept {
    detail::store(p, v, std::endian::little);
}
inline void store_be16(std::byte* p, std::uint16_t v) noexcept {
    detail::store(p, v, std::endian::big);
}
inline void store_be32(std::byte* p, std::uint32_t v) noexcept {
    detail::store(p, v, std::endian::big);
}
inline void store_be64(std::byte* p, std::uint64_t v) noexcept {
    detail::store(p, v, std::endian::big);
}

}  // namespace rtrs
