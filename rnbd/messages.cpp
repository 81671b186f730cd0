#include "rnbd/messages.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rnbd/message_frame.h"
#include "rtrs/base/assert.h"

namespace rnbd {

namespace {

using namespace rtrs;  // load_*, store_*

// "rnbdREQ\0" and "rnbdRSP\0" in their byte order on the wire. They differ in the two directions,
// so that a request that is still in a kernel server's buffer cannot be mistaken for its answer.
constexpr std::uint64_t request_mark = 0x00'51'45'52'64'62'6e'72;
constexpr std::uint64_t response_mark = 0x00'50'53'52'64'62'6e'72;

constexpr std::uint8_t fua_policy = 1;
constexpr std::uint8_t write_back_policy = 2;

constexpr std::size_t writer_offset = 264;          // of OPEN
constexpr std::size_t medium_offset = 272;          // of OPEN
constexpr std::size_t response_medium_offset = 56;  // of OPEN_RSP

std::byte* begin(MutableBytes to, std::size_t bytes, MessageType type) noexcept {
    return begin_message(to, bytes, static_cast<std::uint16_t>(type));
}

std::expected<const std::byte*, ParseError> check(Bytes data, std::size_t bytes,
                                                  MessageType type) noexcept {
    return check_message(data, bytes, static_cast<std::uint16_t>(type));
}

Feature load_features(const std::byte* message, std::uint64_t mark) noexcept {
    return load_le64(message + 12) == mark ? Feature{load_le32(message + 8)} : Feature::none;
}

void store_features(std::byte* message, Feature features, std::uint64_t mark) noexcept {
    if (features == Feature::none) return;
    store_le32(message + 8, static_cast<std::uint32_t>(features));
    store_le64(message + 12, mark);
}

}  // namespace

const char* text(ParseError error) noexcept {
    switch (error) {
        case ParseError::too_short:
            return "message is shorter than its type needs";
        case ParseError::unknown_type:
            return "message type is not that of a request";
        case ParseError::wrong_type:
            return "message type is not the expected one";
        case ParseError::bad_access_mode:
            return "access_mode is not 0, 1 or 2";
        case ParseError::name_unterminated:
            return "device name has no NUL within its field";
        case ParseError::name_empty:
            return "device name is empty";
        case ParseError::name_too_long:
            return "device name is longer than 254 bytes";
        case ParseError::name_has_nul:
            return "device name contains NUL";
        case ParseError::name_has_dot_dot:
            return "device name contains \"..\"";
        case ParseError::unsupported_operation:
            return "operation is not 0..5";
        case ParseError::size_is_not_data:
            return "bi_size differs from the length of the data";
        case ParseError::data_missing:
            return "read or write without data";
        case ParseError::data_unexpected:
            return "data with an operation that has none";
        case ParseError::logical_block_size_zero:
            return "logical_block_size is 0";
        case ParseError::extent_empty:
            return "extent has length 0";
        case ParseError::too_many_exports:
            return "catalog has more than 65536 exports";
    }
    return "unknown parse error";
}

int to_errno(ParseError error) noexcept {
    return error == ParseError::unsupported_operation ? EOPNOTSUPP : EINVAL;
}

std::expected<MessageType, ParseError> request_type(Bytes message) noexcept {
    if (message.size() < 2) return std::unexpected(ParseError::too_short);
    const auto type = static_cast<MessageType>(load_le16(message.data()));
    switch (type) {
        case MessageType::session_info:
        case MessageType::open:
        case MessageType::io:
        case MessageType::close:
        case MessageType::extents:
            return type;
        case MessageType::session_info_response:
        case MessageType::open_response:
        case MessageType::extents_response:
            break;
    }
    return std::unexpected(ParseError::unknown_type);
}

std::expected<SessionInfoMessage, ParseError> SessionInfoMessage::parse(Bytes data) noexcept {
    const auto p = check(data, wire_bytes, MessageType::session_info);
    if (!p) return std::unexpected(p.error());
    return SessionInfoMessage{.version = load_u8(*p + 4),
                              .features = load_features(*p, request_mark)};
}

void SessionInfoMessage::emit(MutableBytes to) const noexcept {
    std::byte* p = begin(to, wire_bytes, MessageType::session_info);
    store_u8(p + 4, version);
    store_features(p, features, request_mark);
}

SessionInfoResponse SessionInfoResponse::to(const SessionInfoMessage& request,
                                            Feature offered) noexcept {
    return {.version = std::min(request.version, protocol_version),
            .features = request.features & offered};
}

std::expected<SessionInfoResponse, ParseError> SessionInfoResponse::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    return SessionInfoResponse{.version = load_u8(data.data() + 4),
                               .features = load_features(data.data(), response_mark)};
}

void SessionInfoResponse::emit(MutableBytes to) const noexcept {
    std::byte* p = begin(to, wire_bytes, MessageType::session_info_response);
    store_u8(p + 4, version);
    store_features(p, features, response_mark);
}

std::expected<void, ParseError> check_device_name(std::string_view name) noexcept {
    if (name.empty()) return std::unexpected(ParseError::name_empty);
    if (name.size() > device_name_bytes_max) return std::unexpected(ParseError::name_too_long);
    if (name.find('\0') != name.npos) return std::unexpected(ParseError::name_has_nul);
    // ".." anywhere is refused, as by the kernel; also in "a..b".
    if (name.find("..") != name.npos) return std::unexpected(ParseError::name_has_dot_dot);
    return {};
}

std::expected<OpenMessage, ParseError> OpenMessage::parse(Bytes data) {
    const auto p = check(data, wire_bytes, MessageType::open);
    if (!p) return std::unexpected(p.error());
    const std::uint8_t mode = load_u8(*p + 4);
    if (mode > static_cast<std::uint8_t>(AccessMode::migration)) {
        return std::unexpected(ParseError::bad_access_mode);
    }
    const auto* field = reinterpret_cast<const char*>(*p + 6);
    const std::size_t length = strnlen(field, device_name_field_bytes);
    if (length == device_name_field_bytes) return std::unexpected(ParseError::name_unterminated);
    const std::string_view name(field, length);
    if (auto checked = check_device_name(name); !checked) return std::unexpected(checked.error());
    return OpenMessage{
        .access_mode = AccessMode{mode},
        .device_name = std::string(name),
        .writer = data.size() < wire_bytes_with_writer ? 0 : load_le64(*p + writer_offset),
        .medium = data.size() < wire_bytes_max ? MediumId{} : MediumId::load(*p + medium_offset)};
}

void OpenMessage::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(check_device_name(device_name));
    std::byte* p = begin(to, size(), MessageType::open);
    store_u8(p + 4, static_cast<std::uint8_t>(access_mode));
    std::memcpy(p + 6, device_name.data(), device_name.size());
    if (size() > wire_bytes) store_le64(p + writer_offset, writer);
    if (medium.known()) medium.store(p + medium_offset);
}

std::expected<OpenResponse, ParseError> OpenResponse::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    OpenResponse message;
    message.device_id = load_le32(p + 4);
    message.sectors = load_le64(p + 8);
    message.max_hw_sectors = load_le32(p + 16);
    message.max_write_zeroes_sectors = load_le32(p + 20);
    message.max_discard_sectors = load_le32(p + 24);
    message.discard_granularity_bytes = load_le32(p + 28);
    message.discard_alignment_bytes = load_le32(p + 32);
    message.physical_block_bytes = load_le16(p + 36);
    message.logical_block_bytes = load_le16(p + 38);
    message.max_segments = load_le16(p + 40);
    message.secure_discard = load_le16(p + 42);
    const std::uint8_t policy = load_u8(p + 45);
    message.fua = (policy & fua_policy) != 0;
    message.write_back = (policy & write_back_policy) != 0;
    message.epoch = load_le64(p + 48);
    if (data.size() >= wire_bytes_with_medium) {
        message.medium = MediumId::load(p + response_medium_offset);
    }
    if (message.logical_block_bytes == 0) {
        return std::unexpected(ParseError::logical_block_size_zero);
    }
    return message;
}

void OpenResponse::emit(MutableBytes to) const noexcept {
    const bool whole = to.size() >= wire_bytes_with_medium;
    std::byte* p =
        begin(to, whole ? wire_bytes_with_medium : wire_bytes, MessageType::open_response);
    store_le32(p + 4, device_id);
    store_le64(p + 8, sectors);
    store_le32(p + 16, max_hw_sectors);
    store_le32(p + 20, max_write_zeroes_sectors);
    store_le32(p + 24, max_discard_sectors);
    store_le32(p + 28, discard_granularity_bytes);
    store_le32(p + 32, discard_alignment_bytes);
    store_le16(p + 36, physical_block_bytes);
    store_le16(p + 38, logical_block_bytes);
    store_le16(p + 40, max_segments);
    store_le16(p + 42, secure_discard);
    const int policy = (fua ? fua_policy : 0) | (write_back ? write_back_policy : 0);
    store_u8(p + 45, static_cast<std::uint8_t>(policy));
    store_le64(p + 48, epoch);
    if (whole) medium.store(p + response_medium_offset);
}

std::expected<CloseMessage, ParseError> CloseMessage::parse(Bytes data) noexcept {
    const auto p = check(data, wire_bytes, MessageType::close);
    if (!p) return std::unexpected(p.error());
    return CloseMessage{.device_id = load_le32(*p + 4)};
}

void CloseMessage::emit(MutableBytes to) const noexcept {
    store_le32(begin(to, wire_bytes, MessageType::close) + 4, device_id);
}

std::expected<IoMessage, ParseError> IoMessage::parse(Bytes data) noexcept {
    const auto p = check(data, wire_bytes_min, MessageType::io);
    if (!p) return std::unexpected(p.error());
    const std::uint32_t rw = load_le32(*p + 16);
    if ((rw & 0xff) > static_cast<std::uint32_t>(Operation::write_zeroes)) {
        return std::unexpected(ParseError::unsupported_operation);
    }
    IoMessage message;
    message.device_id = load_le32(*p + 4);
    message.sector = load_le64(*p + 8);
    message.operation = static_cast<Operation>(rw & 0xff);
    message.flags = static_cast<IoFlag>(rw & ~0xffu);
    message.bytes = load_le32(*p + 20);
    if (data.size() >= wire_bytes) message.priority = load_le16(*p + 24);
    return message;
}

void IoMessage::emit(MutableBytes to) const noexcept {
    std::byte* p = begin(to, wire_bytes, MessageType::io);
    RTRS_ASSERT((static_cast<std::uint32_t>(flags) & 0xff) == 0);
    store_le32(p + 4, device_id);
    store_le64(p + 8, sector);
    store_le32(p + 16, static_cast<std::uint32_t>(flags) | static_cast<std::uint32_t>(operation));
    store_le32(p + 20, bytes);
    store_le16(p + 24, priority);
}

std::expected<void, ParseError> IoMessage::check_data(std::uint64_t data_bytes) const noexcept {
    if (!carries_data(operation)) {
        if (data_bytes != 0) return std::unexpected(ParseError::data_unexpected);
        return {};
    }
    if (data_bytes == 0) return std::unexpected(ParseError::data_missing);
    if (data_bytes != bytes) return std::unexpected(ParseError::size_is_not_data);
    return {};
}

std::expected<ExtentsMessage, ParseError> ExtentsMessage::parse(Bytes data) noexcept {
    const auto p = check(data, wire_bytes, MessageType::extents);
    if (!p) return std::unexpected(p.error());
    return ExtentsMessage{
        .device_id = load_le32(*p + 4), .offset = load_le64(*p + 8), .length = load_le64(*p + 16)};
}

void ExtentsMessage::emit(MutableBytes to) const noexcept {
    std::byte* p = begin(to, wire_bytes, MessageType::extents);
    store_le32(p + 4, device_id);
    store_le64(p + 8, offset);
    store_le64(p + 16, length);
}

std::expected<ExtentsResponseView, ParseError> ExtentsResponseView::parse(Bytes data) noexcept {
    const auto p = check(data, header_bytes, MessageType::extents_response);
    if (!p) return std::unexpected(p.error());
    const std::uint32_t count = load_le32(*p + 4);
    if (capacity(data.size()) < count) return std::unexpected(ParseError::too_short);
    ExtentsResponseView view(data.subspan(header_bytes, count * ExtentDescriptor::wire_bytes));
    for (std::size_t i = 0; i < count; ++i) {
        if (view.extent(i).length == 0) return std::unexpected(ParseError::extent_empty);
    }
    return view;
}

ExtentDescriptor ExtentsResponseView::extent(std::size_t index) const noexcept {
    RTRS_ASSERT(index < count());
    const std::byte* p = extents_.data() + index * ExtentDescriptor::wire_bytes;
    // A newer server may send further flags.
    return {.length = load_le64(p),
            .flags = static_cast<ExtentFlag>(load_le32(p + 8)) & known_extent_flags};
}

void ExtentsResponseView::emit_header(std::uint32_t count, MutableBytes to) noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes(count));
    store_le32(begin(to, header_bytes, MessageType::extents_response) + 4, count);
}

void ExtentsResponseView::emit_extent(std::size_t index, const ExtentDescriptor& extent,
                                      MutableBytes to) noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes(index + 1));
    std::byte* p = to.data() + wire_bytes(index);
    store_le64(p, extent.length);
    store_le32(p + 8, static_cast<std::uint32_t>(extent.flags));
    store_le32(p + 12, 0);
}

}  // namespace rnbd
