// A request as a server meets it: le16 queue depth, le32 immediate, then the end of the chunk from
// the message on. The chunk is as long as its content here, so that the sanitizer sees every byte
// that is read beyond it. Also the key answer that a client gets.
#include "rtrs/wire/request.h"

#include <algorithm>
#include <memory>

#include "rtrs/base/assert.h"
#include "rtrs/wire/immediate.h"

using namespace rtrs;

namespace {

void check_request(const RequestMessage& request, const RequestPlace& place) {
    RTRS_ASSERT(request.data_bytes + request.user_bytes == place.offset);
    RTRS_ASSERT(request.user_bytes <= place.user_bytes_max);
    const bool needs = request.invalidation == Invalidation::needed;
    RTRS_ASSERT(!needs || request.destination);
    if (!request.destination) return;
    RTRS_ASSERT(request.kind == RequestKind::read);
    RTRS_ASSERT(request.destination->bytes >= 1);
    RTRS_ASSERT(request.destination->bytes <= request.data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 6) return 0;
    const Bytes all = std::as_bytes(std::span(data, size));
    const std::uint16_t depth = load_le16(all.data());
    const Bytes tail = all.subspan(6);
    if (KeyResponseMessage key; !KeyResponseMessage::parse(tail, depth, key)) {
        RTRS_ASSERT(key.permit < depth);
        std::byte again[KeyResponseMessage::wire_bytes];
        key.emit(again);
        KeyResponseMessage parsed;
        RTRS_ASSERT(!KeyResponseMessage::parse(again, depth, parsed) && parsed == key);
    }
    if (depth == 0) return 0;
    const ImmediateCodec codec(depth);
    const auto immediate = codec.decode(load_le32(all.data() + 2));
    if (!immediate) return 0;
    RTRS_ASSERT(immediate->permit < depth);
    RTRS_ASSERT(immediate->error >= 0 && immediate->error <= limits::errno_max);
    if (immediate->type != ImmediateType::request) return 0;
    RTRS_ASSERT(codec.request(immediate->permit, immediate->offset) == load_le32(all.data() + 2));
    const RequestPlace place{
        .offset = immediate->offset,
        .chunk_bytes = immediate->offset + static_cast<std::uint32_t>(tail.size())};
    const auto copy = std::make_unique<std::byte[]>(place.copy_bytes());
    std::copy_n(tail.data(), place.copy_bytes(), copy.get());
    RequestMessage request;
    const auto refusal = RequestMessage::parse({copy.get(), place.copy_bytes()}, place, request);
    if (!refusal) {
        check_request(request, place);
    } else {
        RTRS_ASSERT(refusal->answer_errno != 0 || !refusal->invalidate);
        RTRS_ASSERT(text(refusal->why) != nullptr);
    }
    return 0;
}
