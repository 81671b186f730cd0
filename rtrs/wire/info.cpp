#include "rtrs/wire/info.h"

#include <algorithm>
#include <cstring>

#include "rtrs/base/assert.h"

namespace rtrs {

namespace {

constexpr std::size_t identity_offset = 2 + limits::name_field_bytes;
constexpr std::uint16_t type_info_request = 0;
constexpr std::uint16_t type_info_response = 1;

}  // namespace

BufferDescriptor BufferDescriptor::load(const std::byte* from) noexcept {
    return {.address = load_le64(from), .key = load_le32(from + 8), .bytes = load_le32(from + 12)};
}

void BufferDescriptor::store(std::byte* to) const noexcept {
    store_le64(to, address);
    store_le32(to + 8, key);
    store_le32(to + 12, bytes);
}

std::expected<void, ParseError> check_session_name(std::string_view name) noexcept {
    using namespace std::string_view_literals;
    if (name.empty()) return std::unexpected(ParseError::name_empty);
    if (name.size() > limits::name_bytes_max) return std::unexpected(ParseError::name_too_long);
    if (name.find_first_of("/.\0"sv) != name.npos) {
        return std::unexpected(ParseError::name_forbidden_character);
    }
    return {};
}

std::expected<InfoRequestMessage, ParseError> InfoRequestMessage::parse(Bytes data) {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    if (load_le16(data.data()) != type_info_request) return std::unexpected(ParseError::bad_type);
    const auto* field = reinterpret_cast<const char*>(data.data() + 2);
    const std::size_t length = strnlen(field, limits::name_field_bytes);
    if (length == limits::name_field_bytes) return std::unexpected(ParseError::name_unterminated);
    const std::string_view name(field, length);
    if (auto checked = check_session_name(name); !checked) return std::unexpected(checked.error());
    return InfoRequestMessage{std::string(name), load_le64(data.data() + identity_offset),
                              load_le64(data.data() + identity_offset + 7) >> 8};
}

void InfoRequestMessage::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    RTRS_ASSERT(check_session_name(session_name));
    std::fill_n(to.begin(), wire_bytes, std::byte{});
    store_le16(to.data(), type_info_request);
    std::memcpy(to.data() + 2, session_name.data(), session_name.size());
    // The life first: its lowest byte overlaps the identity's highest.
    store_le64(to.data() + identity_offset + 7, life << 8);
    store_le64(to.data() + identity_offset, identity);
}

std::expected<InfoResponseView, ParseError> InfoResponseView::parse(Bytes data) noexcept {
    constexpr std::size_t header_bytes = InfoResponseMessage::header_bytes;
    if (data.size() < header_bytes) return std::unexpected(ParseError::too_short);
    if (load_le16(data.data()) != type_info_response) return std::unexpected(ParseError::bad_type);
    const std::size_t count = load_le16(data.data() + 2);
    if (data.size() < InfoResponseMessage::wire_bytes(count)) {
        return std::unexpected(ParseError::too_short);
    }
    return InfoResponseView(data.subspan(header_bytes, count * BufferDescriptor::wire_bytes));
}

BufferDescriptor InfoResponseView::descriptor(std::size_t index) const noexcept {
    RTRS_ASSERT(index < count());
    return BufferDescriptor::load(descriptors_.data() + index * BufferDescriptor::wire_bytes);
}

std::expected<void, ParseError> InfoResponseView::chunks(std::span<BufferDescriptor> chunks,
                                                         std::uint32_t chunk_bytes) const noexcept {
    RTRS_ASSERT(limits::geometry_possible(chunks.size(), chunk_bytes));
    if (count() == 0) return std::unexpected(ParseError::no_descriptors);
    if (chunks.size() % count() != 0) {
        return std::unexpected(ParseError::descriptors_do_not_divide_queue_depth);
    }
    std::size_t filled = 0;
    for (std::size_t i = 0; i < count(); ++i) {
        const BufferDescriptor region = descriptor(i);
        if (region.bytes == 0 || region.bytes % chunk_bytes != 0) {
            return std::unexpected(ParseError::descriptor_length_not_whole_chunks);
        }
        const std::size_t in_region = region.bytes / chunk_bytes;
        if (in_region > chunks.size() - filled) {
            return std::unexpected(ParseError::descriptors_do_not_cover_chunks);
        }
        for (std::size_t k = 0; k < in_region; ++k) {
            chunks[filled++] = {.address = region.address + k * chunk_bytes,
                                .key = region.key,
                                .bytes = chunk_bytes};
        }
    }
    if (filled != chunks.size()) {
        return std::unexpected(ParseError::descriptors_do_not_cover_chunks);
    }
    return {};
}

void InfoResponseMessage::emit(std::span<const BufferDescriptor> descriptors,
                               MutableBytes to) noexcept {
    RTRS_ASSERT(!descriptors.empty() && descriptors.size() <= limits::queue_depth_max);
    emit_header(static_cast<std::uint16_t>(descriptors.size()), to);
    for (std::size_t i = 0; i < descriptors.size(); ++i) emit_descriptor(i, descriptors[i], to);
}

void InfoResponseMessage::emit_header(std::uint16_t descriptors, MutableBytes to) noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes(descriptors));
    store_le16(to.data(), type_info_response);
    store_le16(to.data() + 2, descriptors);
    store_le32(to.data() + 4, 0);
}

void InfoResponseMessage::emit_descriptor(std::size_t index, const BufferDescriptor& descriptor,
                                          MutableBytes to) noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes(index + 1));
    descriptor.store(to.data() + wire_bytes(index));
}

}  // namespace rtrs
