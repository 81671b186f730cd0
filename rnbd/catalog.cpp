#include "rnbd/catalog.h"

#include <cstring>
#include <iterator>

#include "rnbd/message_frame.h"
#include "rtrs/base/assert.h"

namespace rnbd {

namespace {

using namespace rtrs;  // load_*, store_*

constexpr std::uint16_t request_type_code = 32;
constexpr std::uint16_t picture_type_code = 33;
constexpr std::uint16_t event_type_code = 34;
constexpr std::size_t picture_header_bytes = 24;
constexpr std::size_t event_header_bytes = 16;
constexpr std::size_t entry_header_bytes = 24;
constexpr std::uint16_t picture_draining = 1;
constexpr std::uint8_t mode_read = 1;
constexpr std::uint8_t mode_write = 2;

std::size_t bytes_of(const CatalogEntry& entry) noexcept {
    return entry_header_bytes + (entry.name.size() + 7) / 8 * 8;
}

std::byte* emit_entry(const CatalogEntry& entry, std::byte* to) noexcept {
    const std::size_t bytes = bytes_of(entry);
    std::memset(to, 0, bytes);
    store_le64(to, entry.size_bytes);
    store_le32(to + 8, entry.block_bytes);
    store_le32(to + 12, entry.in_use);
    store_u8(to + 16, entry.writable ? mode_read | mode_write : mode_read);
    store_u8(to + 17, entry.waiting ? 1 : 0);
    store_le16(to + 18, static_cast<std::uint16_t>(entry.name.size()));
    std::memcpy(to + entry_header_bytes, entry.name.data(), entry.name.size());
    return to + bytes;
}

// Takes an entry from the front of data.
std::expected<CatalogEntry, ParseError> parse_entry(Bytes& data) {
    if (data.size() < entry_header_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    const std::size_t name_bytes = load_le16(p + 18);
    if (name_bytes == 0) return std::unexpected(ParseError::name_empty);
    if (name_bytes > device_name_bytes_max) return std::unexpected(ParseError::name_too_long);
    const std::size_t bytes = entry_header_bytes + (name_bytes + 7) / 8 * 8;
    if (data.size() < bytes) return std::unexpected(ParseError::too_short);
    CatalogEntry entry{.name = {reinterpret_cast<const char*>(p + entry_header_bytes), name_bytes},
                       .size_bytes = load_le64(p),
                       .block_bytes = load_le32(p + 8),
                       .in_use = load_le32(p + 12),
                       .writable = (load_u8(p + 16) & mode_write) != 0,
                       .waiting = load_u8(p + 17) != 0};
    if (entry.name.find('\0') != std::string::npos)
        return std::unexpected(ParseError::name_has_nul);
    data = data.subspan(bytes);
    return entry;
}

}  // namespace

std::expected<CatalogRequest, ParseError> CatalogRequest::parse(Bytes data) noexcept {
    const auto p = check_message(data, wire_bytes, request_type_code);
    if (!p) return std::unexpected(p.error());
    return CatalogRequest{.follow = (load_le16(*p + 2) & 1) != 0};
}

void CatalogRequest::emit(MutableBytes to) const noexcept {
    store_le16(begin_message(to, wire_bytes, request_type_code) + 2, follow ? 1 : 0);
}

std::expected<CatalogPicture, ParseError> CatalogPicture::parse(Bytes data) {
    const auto p = check_message(data, picture_header_bytes, picture_type_code);
    if (!p) return std::unexpected(p.error());
    CatalogPicture picture{.generation = load_le64(*p + 8),
                           .draining = (load_le16(*p + 2) & picture_draining) != 0};
    const std::uint32_t count = load_le32(*p + 4);
    if (count > catalog_entries_max) return std::unexpected(ParseError::too_many_exports);
    data = data.subspan(picture_header_bytes);
    // The count may be larger than what follows, so no memory is reserved for it.
    for (std::uint32_t i = 0; i < count; ++i) {
        auto entry = parse_entry(data);
        if (!entry) return std::unexpected(entry.error());
        picture.entries.push_back(std::move(*entry));
    }
    return picture;
}

std::string CatalogPicture::complaint(Bytes data, ParseError error) {
    if (error != ParseError::too_many_exports) return text(error);
    return "found " + std::to_string(load_le32(data.data() + 4)) + " exports, expected at most " +
           std::to_string(catalog_entries_max);
}

std::size_t CatalogPicture::wire_bytes() const noexcept {
    std::size_t bytes = picture_header_bytes;
    for (const CatalogEntry& entry : entries) bytes += bytes_of(entry);
    return bytes;
}

void CatalogPicture::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes());
    std::byte* p = begin_message(to, picture_header_bytes, picture_type_code);
    store_le16(p + 2, draining ? picture_draining : 0);
    store_le32(p + 4, static_cast<std::uint32_t>(entries.size()));
    store_le64(p + 8, generation);
    p += picture_header_bytes;
    for (const CatalogEntry& entry : entries) p = emit_entry(entry, p);
}

const char* to_string(ServerIntent intent) noexcept {
    switch (intent) {
        case ServerIntent::serve:
            return "serving";
        case ServerIntent::drain:
            return "draining";
        case ServerIntent::end:
            return "ending";
    }
    return "?";
}

const char* to_string(CatalogEventKind kind) noexcept {
    static constexpr const char* names[] = {"?",         "added",   "removed", "resized",
                                            "access",    "waiting", "ready",   "draining",
                                            "accepting", "ending",  "taken"};
    const auto index = static_cast<std::size_t>(kind);
    return index < std::size(names) ? names[index] : names[0];
}

std::expected<CatalogEvent, ParseError> CatalogEvent::parse(Bytes data) {
    const auto p = check_message(data, event_header_bytes, event_type_code);
    if (!p) return std::unexpected(p.error());
    const std::uint16_t kind = load_le16(*p + 2);
    if (kind < static_cast<std::uint16_t>(CatalogEventKind::added) ||
        kind > static_cast<std::uint16_t>(CatalogEventKind::taken)) {
        return std::unexpected(ParseError::unknown_type);
    }
    CatalogEvent event{.kind = static_cast<CatalogEventKind>(kind),
                       .generation = load_le64(*p + 8)};
    if (!has_entry(event.kind)) return event;
    data = data.subspan(event_header_bytes);
    auto entry = parse_entry(data);
    if (!entry) return std::unexpected(entry.error());
    event.entry = std::move(*entry);
    return event;
}

std::size_t CatalogEvent::wire_bytes() const noexcept {
    return event_header_bytes + (has_entry(kind) ? bytes_of(entry) : 0);
}

void CatalogEvent::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes());
    std::byte* p = begin_message(to, event_header_bytes, event_type_code);
    store_le16(p + 2, static_cast<std::uint16_t>(kind));
    store_le64(p + 8, generation);
    if (has_entry(kind)) emit_entry(entry, p + event_header_bytes);
}

}  // namespace rnbd
