#include "rtrs/wire/connect.h"

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/limits.h"

namespace rtrs {

namespace {

constexpr std::byte first_connection_bit{0x01};
constexpr std::byte messages_bit{0x02};
constexpr std::uint32_t new_rkey_flag = 0x2;

bool version_fits(std::uint16_t version) noexcept { return version >> 8 == wire_version_major; }

MutableBytes zeroed(MutableBytes to, std::size_t bytes) noexcept {
    RTRS_ASSERT(to.size() >= bytes);
    std::fill_n(to.begin(), bytes, std::byte{});
    return to;
}

}  // namespace

std::expected<ConnectRequestMessage, ParseError> ConnectRequestMessage::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    if (load_le16(p + 2) != wire_magic) return std::unexpected(ParseError::bad_magic);
    if (!version_fits(load_le16(p + 4))) return std::unexpected(ParseError::bad_version);
    ConnectRequestMessage message;
    message.connection_id = load_le16(p + 6);
    message.connection_count = load_le16(p + 8);
    if (message.connection_count > limits::connections_max) {
        return std::unexpected(ParseError::too_many_connections);
    }
    if (message.connection_id >= message.connection_count) {
        return std::unexpected(ParseError::connection_id_out_of_range);
    }
    message.reconnect_count = load_le16(p + 10);
    std::copy_n(p + 12, 16, message.path_uuid.bytes.begin());
    std::copy_n(p + 28, 16, message.session_uuid.bytes.begin());
    const bool first = (p[44] & first_connection_bit) != std::byte{};
    message.first_connection = first ? FirstConnection::yes : FirstConnection::no;
    // Without the feature the bit means nothing.
    const bool messages =
        (p[44] & messages_bit) != std::byte{} && has(load_le32(p + 48), Feature::messages);
    message.purpose = messages ? ConnectionPurpose::messages : ConnectionPurpose::path;
    message.features = load_le32(p + 48);
    return message;
}

void ConnectRequestMessage::emit(MutableBytes to) const noexcept {
    std::byte* p = zeroed(to, wire_bytes).data();
    store_le16(p + 2, wire_magic);
    store_le16(p + 4, wire_version);
    store_le16(p + 6, connection_id);
    store_le16(p + 8, connection_count);
    store_le16(p + 10, reconnect_count);
    std::copy_n(path_uuid.bytes.begin(), 16, p + 12);
    std::copy_n(session_uuid.bytes.begin(), 16, p + 28);
    if (first_connection == FirstConnection::yes) p[44] |= first_connection_bit;
    if (purpose == ConnectionPurpose::messages) p[44] |= messages_bit;
    store_le32(p + 48, features);
}

ConnectResponseMessage ConnectResponseMessage::accept(const ChunkGeometry& geometry,
                                                      KeyRenewal key_renewal,
                                                      std::uint32_t features) noexcept {
    RTRS_ASSERT(geometry.queue_depth <= limits::queue_depth_max);
    ConnectResponseMessage message;
    message.queue_depth = static_cast<std::uint16_t>(geometry.queue_depth);
    message.io_bytes_max = geometry.io_bytes_max;
    message.header_bytes_max = geometry.header_bytes_max;
    message.key_renewal = key_renewal;
    message.features = features;
    return message;
}

ConnectResponseMessage ConnectResponseMessage::reject(int error) noexcept {
    ConnectResponseMessage message;
    message.error = error;
    return message;
}

std::expected<ConnectResponseMessage, ParseError> ConnectResponseMessage::parse(
    Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    if (load_le16(p) != wire_magic) return std::unexpected(ParseError::bad_magic);
    if (!version_fits(load_le16(p + 2))) return std::unexpected(ParseError::bad_version);
    ConnectResponseMessage message;
    const int error = static_cast<std::int16_t>(load_le16(p + 4));
    message.error = error < 0 ? -error : error;
    message.queue_depth = load_le16(p + 6);
    message.io_bytes_max = load_le32(p + 8);
    message.header_bytes_max = load_le32(p + 12);
    const bool renews = (load_le32(p + 16) & new_rkey_flag) != 0;
    message.key_renewal = renews ? KeyRenewal::every_answer : KeyRenewal::no;
    message.features = load_le32(p + 20);
    return message;
}

void ConnectResponseMessage::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(error >= 0 && error <= 32768);
    std::byte* p = zeroed(to, wire_bytes).data();
    store_le16(p, wire_magic);
    store_le16(p + 2, wire_version);
    store_le16(p + 4, static_cast<std::uint16_t>(-error));
    store_le16(p + 6, queue_depth);
    store_le32(p + 8, io_bytes_max);
    store_le32(p + 12, header_bytes_max);
    store_le32(p + 16, key_renewal == KeyRenewal::every_answer ? new_rkey_flag : 0);
    store_le32(p + 20, features);
}

std::expected<ChunkGeometry, ParseError> ConnectResponseMessage::geometry() const noexcept {
    if (queue_depth < limits::queue_depth_min) {
        return std::unexpected(ParseError::queue_depth_out_of_range);
    }
    // In 64 bits: a kernel client adds them in 32 and can be made to wrap.
    const std::uint64_t chunk_bytes = std::uint64_t{io_bytes_max} + header_bytes_max;
    if (io_bytes_max == 0 || header_bytes_max == 0 ||
        !limits::geometry_possible(queue_depth, chunk_bytes)) {
        return std::unexpected(ParseError::chunk_size_out_of_range);
    }
    return ChunkGeometry{.queue_depth = queue_depth,
                         .chunk_bytes = static_cast<std::uint32_t>(chunk_bytes),
                         .io_bytes_max = io_bytes_max,
                         .header_bytes_max = header_bytes_max};
}

}  // namespace rtrs
