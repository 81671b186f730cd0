#include "rtrs/wire/tag.h"

#include "rtrs/base/assert.h"

namespace rtrs {

std::expected<TagHeader, ParseError> TagHeader::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    const std::uint8_t operation = load_u8(p);
    if (operation > static_cast<std::uint8_t>(TagHeaderOperation::eager)) {
        return std::unexpected(ParseError::bad_type);
    }
    if ((load_be32(p) & 0x00ffffff) != 0) return std::unexpected(ParseError::reserved_not_zero);
    return TagHeader{.operation = static_cast<TagHeaderOperation>(operation),
                     .user_data = load_be32(p + 4),
                     .tag = load_be64(p + 8)};
}

void TagHeader::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    store_be32(to.data(), std::uint32_t{static_cast<std::uint8_t>(operation)} << 24);
    store_be32(to.data() + 4, user_data);
    store_be64(to.data() + 8, tag);
}

std::expected<RendezvousHeader, ParseError> RendezvousHeader::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    return RendezvousHeader{
        .address = load_be64(p), .key = load_be32(p + 8), .bytes = load_be32(p + 12)};
}

void RendezvousHeader::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    store_be64(to.data(), address);
    store_be32(to.data() + 8, key);
    store_be32(to.data() + 12, bytes);
}

std::expected<TagProgress, ParseError> TagProgress::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const TagProgress progress{.received = load_be64(data.data()),
                               .freed = load_be64(data.data() + 8)};
    if (progress.freed > progress.received) {
        return std::unexpected(ParseError::freed_above_received);
    }
    return progress;
}

void TagProgress::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    store_be64(to.data(), received);
    store_be64(to.data() + 8, freed);
}

std::expected<TagHello, ParseError> TagHello::parse(Bytes data) noexcept {
    if (data.size() < wire_bytes) return std::unexpected(ParseError::too_short);
    const std::byte* p = data.data();
    const auto progress = TagProgress::parse(data.subspan(32));
    if (!progress) return std::unexpected(progress.error());
    const TagHello hello{.window = load_be32(p),
                         .eager_bytes = load_be32(p + 4),
                         .longest_bytes = load_be32(p + 8),
                         .life = load_be64(p + 16),
                         .known = load_be64(p + 24),
                         .progress = *progress};
    const bool possible =
        hello.window >= 1 && hello.window <= window_max && hello.eager_bytes >= eager_bytes_min &&
        hello.eager_bytes <= eager_bytes_max && hello.longest_bytes >= hello.eager_bytes &&
        hello.longest_bytes <= longest_bytes_max && hello.life != 0;
    if (!possible) return std::unexpected(ParseError::tag_limits_out_of_range);
    return hello;
}

void TagHello::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    store_be32(to.data(), window);
    store_be32(to.data() + 4, eager_bytes);
    store_be32(to.data() + 8, longest_bytes);
    store_be32(to.data() + 12, 0);
    store_be64(to.data() + 16, life);
    store_be64(to.data() + 24, known);
    progress.emit(to.subspan(32));
}

}  // namespace rtrs
