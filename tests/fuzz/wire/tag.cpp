// A message with a tag, as it arrives: the header, and what its operation puts behind it.
#include "rtrs/wire/tag.h"

#include <array>

#include "rtrs/base/assert.h"

using namespace rtrs;

namespace {

// What was parsed is emitted as it was.
template <typename Message>
void check(Bytes bytes) {
    const auto message = Message::parse(bytes);
    if (!message) {
        RTRS_ASSERT(text(message.error()) != nullptr);
        return;
    }
    std::array<std::byte, Message::wire_bytes> again;
    message->emit(again);
    RTRS_ASSERT(Message::parse(again) == message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Bytes bytes = std::as_bytes(std::span(data, size));
    check<TagHeader>(bytes);
    if (size < TagHeader::wire_bytes) return 0;
    const Bytes body = bytes.subspan(TagHeader::wire_bytes);
    check<RendezvousHeader>(body);
    check<TagHello>(body);
    check<TagProgress>(body);
    return 0;
}
