// What was wrong with a message of the peer. Callers act only on the fact that something was wrong;
// the text is for logs.
#pragma once

#include <cstdint>

namespace rtrs {

enum class ParseError : std::uint8_t {
    too_short = 1,
    bad_magic,
    bad_version,
    bad_type,
    too_many_connections,
    connection_id_out_of_range,
    queue_depth_out_of_range,
    chunk_size_out_of_range,
    name_unterminated,
    name_empty,
    name_too_long,
    name_forbidden_character,
    no_descriptors,
    descriptors_do_not_divide_queue_depth,
    descriptor_length_not_whole_chunks,
    descriptors_do_not_cover_chunks,
    immediate_type_unknown,
    permit_out_of_range,
    offset_out_of_range,
    message_crosses_chunk_end,
    user_message_before_chunk,
    user_message_too_long,
    too_many_descriptors,
    descriptor_empty,
    descriptor_longer_than_data,
    invalidate_without_descriptor,
    sequence_zero,
    reserved_not_zero,
    freed_above_received,
    tag_limits_out_of_range,
};

// One line that names the field and what was expected, without a final period. Never null.
const char* text(ParseError error) noexcept;

}  // namespace rtrs
