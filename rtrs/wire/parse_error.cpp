#include "rtrs/wire/parse_error.h"

namespace rtrs {

const char* text(ParseError error) noexcept {
    switch (error) {
        case ParseError::too_short:
            return "message is shorter than its type needs";
        case ParseError::bad_magic:
            return "magic is not 0x1bbd";
        case ParseError::bad_version:
            return "major version is not 2";
        case ParseError::bad_type:
            return "message type is not the expected one";
        case ParseError::too_many_connections:
            return "cid_num is above 4096";
        case ParseError::connection_id_out_of_range:
            return "cid is not below cid_num";
        case ParseError::queue_depth_out_of_range:
            return "queue_depth is not within 1..65535";
        case ParseError::chunk_size_out_of_range:
            return "max_io_size, max_hdr_size and queue_depth do not make possible chunks";
        case ParseError::name_unterminated:
            return "session name has no NUL within its field";
        case ParseError::name_empty:
            return "session name is empty";
        case ParseError::name_too_long:
            return "session name is longer than 254 bytes";
        case ParseError::name_forbidden_character:
            return "session name contains '/', '.' or NUL";
        case ParseError::no_descriptors:
            return "sg_cnt is 0";
        case ParseError::descriptors_do_not_divide_queue_depth:
            return "sg_cnt does not divide the queue depth";
        case ParseError::descriptor_length_not_whole_chunks:
            return "descriptor length is 0 or not a multiple of the chunk size";
        case ParseError::descriptors_do_not_cover_chunks:
            return "descriptors do not add up to queue depth times chunk size";
        case ParseError::immediate_type_unknown:
            return "immediate has an unknown type";
        case ParseError::permit_out_of_range:
            return "permit is not below the queue depth";
        case ParseError::offset_out_of_range:
            return "request offset is outside of the chunk";
        case ParseError::message_crosses_chunk_end:
            return "request message does not end inside the chunk";
        case ParseError::user_message_before_chunk:
            return "usr_len is larger than the offset of the request message";
        case ParseError::user_message_too_long:
            return "usr_len is longer than this server accepts";
        case ParseError::too_many_descriptors:
            return "sg_cnt of a read is neither 0 nor 1";
        case ParseError::descriptor_empty:
            return "descriptor of a read has length 0";
        case ParseError::descriptor_longer_than_data:
            return "descriptor of a read is longer than its data";
        case ParseError::invalidate_without_descriptor:
            return "NEED_INVAL is set on a read without descriptor";
        case ParseError::sequence_zero:
            return "sequence of a request is 0";
        case ParseError::reserved_not_zero:
            return "reserved bytes of a tag-matching header are not zero";
        case ParseError::freed_above_received:
            return "more messages are freed than received";
        case ParseError::tag_limits_out_of_range:
            return "window, eager size, longest size or life of a hello is out of range";
    }
    return "unknown parse error";
}

}  // namespace rtrs
