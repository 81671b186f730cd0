#include "rtrs/wire/request.h"

#include <cerrno>

#include "rtrs/base/assert.h"

namespace rtrs {

namespace {

constexpr std::uint16_t type_key_response = 4;
constexpr std::uint16_t need_invalidation_flag = 0x1;

RequestRefusal drop_path(ParseError why) noexcept { return {.why = why}; }

// What read and write have in common. Everything that has to hold before an answer can be trusted
// to be an answer to a request.
std::optional<RequestRefusal> parse_preamble(Bytes copy, const RequestPlace& place,
                                             RequestMessage& message) noexcept {
    if (place.offset >= place.chunk_bytes) return drop_path(ParseError::offset_out_of_range);
    RTRS_ASSERT(copy.size() >= place.copy_bytes());
    const std::size_t available = place.copy_bytes();
    if (available < WriteMessage::wire_bytes) {
        return drop_path(ParseError::message_crosses_chunk_end);
    }
    const std::uint16_t type = load_le16(copy.data());
    message.user_bytes = load_le16(copy.data() + 2);
    if (type == static_cast<std::uint16_t>(RequestKind::write)) {
        message.kind = RequestKind::write;
        return std::nullopt;
    }
    if (type != static_cast<std::uint16_t>(RequestKind::read)) {
        return drop_path(ParseError::bad_type);
    }
    if (available < ReadMessage::header_bytes) {
        return drop_path(ParseError::message_crosses_chunk_end);
    }
    message.kind = RequestKind::read;
    return std::nullopt;
}

// Fills what only a read has. On error the refusal still tells which key the client wants dead.
std::optional<RequestRefusal> parse_read(Bytes copy, RequestMessage& message) noexcept {
    const std::uint16_t flags = load_le16(copy.data() + 4);
    const std::uint16_t count = load_le16(copy.data() + 6);
    const bool wants_invalidation = (flags & need_invalidation_flag) != 0;
    if (count == 0) {
        if (!wants_invalidation) return std::nullopt;
        return RequestRefusal{.why = ParseError::invalidate_without_descriptor,
                              .answer_errno = EINVAL};
    }
    if (copy.size() < ReadMessage::wire_bytes_max) {
        return drop_path(ParseError::message_crosses_chunk_end);
    }
    const auto destination = BufferDescriptor::load(copy.data() + ReadMessage::header_bytes);
    if (count > limits::read_descriptors_max) {
        RequestRefusal refusal{.why = ParseError::too_many_descriptors, .answer_errno = EINVAL};
        if (wants_invalidation) refusal.invalidate = destination.key;
        return refusal;
    }
    message.destination = destination;
    message.invalidation = wants_invalidation ? Invalidation::needed : Invalidation::none;
    return std::nullopt;
}

std::optional<RequestRefusal> check_lengths(const RequestMessage& message,
                                            const RequestPlace& place) noexcept {
    RequestRefusal refusal{.answer_errno = EINVAL};
    if (message.invalidation == Invalidation::needed) refusal.invalidate = message.destination->key;
    if (message.user_bytes > place.offset) {
        refusal.why = ParseError::user_message_before_chunk;
        return refusal;
    }
    if (message.user_bytes > place.user_bytes_max) {
        refusal.why = ParseError::user_message_too_long;
        refusal.answer_errno = EMSGSIZE;
        return refusal;
    }
    if (!message.destination) return std::nullopt;
    if (message.destination->bytes == 0) {
        refusal.why = ParseError::descriptor_empty;
        return refusal;
    }
    if (message.destination->bytes > place.offset - message.user_bytes) {
        refusal.why = ParseError::descriptor_longer_than_data;
        return refusal;
    }
    return std::nullopt;
}

// Behind the message, wherever it ends.
std::optional<RequestRefusal> parse_sequence(Bytes copy, RequestMessage& message) noexcept {
    std::size_t at = WriteMessage::wire_bytes;
    if (message.kind == RequestKind::read) {
        at = message.destination ? ReadMessage::wire_bytes_max : ReadMessage::header_bytes;
    }
    if (copy.size() < at + sequence_bytes) return drop_path(ParseError::message_crosses_chunk_end);
    message.sequence = load_le64(copy.data() + at);
    if (message.sequence == 0) return drop_path(ParseError::sequence_zero);
    return std::nullopt;
}

}  // namespace

void emit_sequence(Sequence sequence, std::byte* to) noexcept { store_le64(to, sequence); }

void WriteMessage::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    store_le16(to.data(), static_cast<std::uint16_t>(RequestKind::write));
    store_le16(to.data() + 2, user_bytes);
}

void ReadMessage::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes());
    const bool invalidates = invalidation == Invalidation::needed;
    RTRS_ASSERT(destination || !invalidates);
    store_le16(to.data(), static_cast<std::uint16_t>(RequestKind::read));
    store_le16(to.data() + 2, user_bytes);
    store_le16(to.data() + 4, invalidates ? need_invalidation_flag : std::uint16_t{0});
    store_le16(to.data() + 6, destination ? 1 : 0);
    if (destination) destination->store(to.data() + header_bytes);
}

std::optional<RequestRefusal> RequestMessage::parse(Bytes copy, const RequestPlace& place,
                                                    RequestMessage& message) noexcept {
    message.destination.reset();
    message.invalidation = Invalidation::none;
    message.sequence = 0;
    if (const auto refusal = parse_preamble(copy, place, message)) return refusal;
    const Bytes whole = copy.first(place.copy_bytes());
    if (message.kind == RequestKind::read) {
        if (const auto refusal = parse_read(whole, message)) return refusal;
    }
    if (place.sequenced) {
        if (const auto refusal = parse_sequence(whole, message)) return refusal;
    }
    if (const auto refusal = check_lengths(message, place)) return refusal;
    message.data_bytes = place.offset - message.user_bytes;
    return std::nullopt;
}

std::optional<ParseError> KeyResponseMessage::parse(Bytes data, std::uint32_t queue_depth,
                                                    KeyResponseMessage& message) noexcept {
    if (data.size() < wire_bytes) return ParseError::too_short;
    if (load_le16(data.data()) != type_key_response) return ParseError::bad_type;
    message.permit = load_le16(data.data() + 2);
    message.key = load_le32(data.data() + 4);
    if (message.permit >= queue_depth) return ParseError::permit_out_of_range;
    return std::nullopt;
}

void KeyResponseMessage::emit(MutableBytes to) const noexcept {
    RTRS_ASSERT(to.size() >= wire_bytes);
    store_le16(to.data(), type_key_response);
    store_le16(to.data() + 2, permit);
    store_le32(to.data() + 4, key);
}

}  // namespace rtrs
