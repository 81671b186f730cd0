// The info exchange: 2 bytes of queue depth and 1 of chunk size (as a power of two from 8192 on),
// then the message, taken as a request and as an answer.
#include "rtrs/wire/info.h"

#include <array>
#include <vector>

#include "rtrs/base/assert.h"

using namespace rtrs;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    const Bytes all = std::as_bytes(std::span(data, size));
    const Bytes bytes = all.subspan(3);
    if (const auto request = InfoRequestMessage::parse(bytes)) {
        RTRS_ASSERT(check_session_name(request->session_name));
        std::array<std::byte, InfoRequestMessage::wire_bytes> again;
        request->emit(again);
        RTRS_ASSERT(InfoRequestMessage::parse(again) == request);
    }
    const std::uint16_t depth = load_le16(all.data());
    const std::uint32_t chunk_bytes = limits::chunk_bytes_min << (data[2] % 16);
    const auto response = InfoResponseView::parse(bytes);
    if (!response || !limits::geometry_possible(depth, chunk_bytes)) return 0;
    std::vector<BufferDescriptor> chunks(depth);
    if (!response->chunks(chunks, chunk_bytes)) return 0;
    for (const BufferDescriptor& chunk : chunks) RTRS_ASSERT(chunk.bytes == chunk_bytes);
    RTRS_ASSERT(chunks.front().key == response->descriptor(0).key);
    RTRS_ASSERT(chunks.back().key == response->descriptor(response->count() - 1).key);
    return 0;
}
