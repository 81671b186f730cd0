// What is wrong with a frame in its context, in words for the log: what was found and what was
// expected. (What is wrong with a frame by itself: frame.h.)
#pragma once

#include <cstdint>
#include <string>

#include "rtrs/fabric/tcp/frame.h"

namespace rtrs::tcp::complaints {

// Cold, so that branches that lead to them are taken as unlikely.
[[gnu::cold]] std::string out_of_place(const FrameHeader& frame);
[[gnu::cold]] std::string no_receive(const FrameHeader& frame);
[[gnu::cold]] std::string longer_than_receive(const FrameHeader& frame, std::uint32_t bytes_max);
[[gnu::cold]] std::string payload_checksum(const FrameHeader& frame, std::uint32_t is);
// agreed: whether payloads have a checksum.
[[gnu::cold]] std::string has_checksum_or_not(const FrameHeader& frame, bool agreed);
[[gnu::cold]] std::string no_such_memory(const FrameHeader& frame, std::uint32_t bytes);
[[gnu::cold]] std::string no_such_key(const FrameHeader& frame);
[[gnu::cold]] std::string too_many_empty_writes(std::uint32_t count);
[[gnu::cold]] std::string too_much_to_read(const ReadRequest& request, std::uint32_t unanswered,
                                           std::uint32_t unanswered_max);
[[gnu::cold]] std::string no_such_read(const FrameHeader& frame);
[[gnu::cold]] std::string another_read(const FrameHeader& frame, const ReadRequest& expected);

}  // namespace rtrs::tcp::complaints
