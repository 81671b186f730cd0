#include "rtrs/fabric/tcp/complaints.h"

namespace rtrs::tcp::complaints {
namespace {

std::string of(const FrameHeader& frame) {
    return "a frame with opcode " + text_of(frame.opcode) + ": ";
}

std::string text(std::uint64_t number) { return std::to_string(number); }

}  // namespace

std::string out_of_place(const FrameHeader& frame) {
    return of(frame) + "found it on an established connection, expected it in a handshake";
}

std::string no_receive(const FrameHeader& frame) {
    return of(frame) + "found more than receives were posted for, expected no more";
}

std::string longer_than_receive(const FrameHeader& frame, std::uint32_t bytes_max) {
    return of(frame) + "found " + text(frame.payload_bytes) +
           " bytes of payload, expected at most " + text(bytes_max);
}

std::string payload_checksum(const FrameHeader& frame, std::uint32_t is) {
    return of(frame) + "found payload checksum " + text(frame.payload_crc) + ", expected " +
           text(is);
}

std::string has_checksum_or_not(const FrameHeader& frame, bool agreed) {
    return of(frame) + (agreed ? "found no payload checksum, expected one, as was agreed"
                               : "found a payload checksum, expected none, as was agreed");
}

std::string no_such_memory(const FrameHeader& frame, std::uint32_t bytes) {
    return of(frame) + "found key " + text(frame.key) + ", address " + text(frame.address) +
           " and " + text(bytes) +
           " bytes, expected a key that is in use and a range inside of its memory";
}

std::string no_such_key(const FrameHeader& frame) {
    return of(frame) + "found key " + text(frame.key) + ", expected one that is in use";
}

std::string too_many_empty_writes(std::uint32_t count) {
    return "writes of no bytes in a row: found " + text(count) + ", expected at most " +
           text(empty_writes_max);
}

std::string too_much_to_read(const ReadRequest& request, std::uint32_t unanswered,
                             std::uint32_t unanswered_max) {
    return "a read request: found " + text(request.bytes) + " bytes, beside " + text(unanswered) +
           " that are unanswered, expected at most " + text(Endpoint::payload_bytes_max) +
           " bytes, and fewer than " + text(unanswered_max) + " others";
}

std::string no_such_read(const FrameHeader& frame) {
    return of(frame) + "found id " + text(frame.address) +
           ", expected none, as nothing was asked for";
}

std::string another_read(const FrameHeader& frame, const ReadRequest& expected) {
    return of(frame) + "found id " + text(frame.address) + " with " + text(frame.payload_bytes) +
           " bytes, expected id " + text(expected.id) + " with " + text(expected.bytes);
}

}  // namespace rtrs::tcp::complaints
