// A server's catalog as it arrives at a client, and a client's question as it arrives at a server.
#include "rnbd/catalog.h"

#include <vector>

#include "rtrs/base/assert.h"

using namespace rnbd;

namespace {

template <typename Message>
std::vector<std::byte> bytes_of(const Message& message) {
    std::vector<std::byte> bytes(message.wire_bytes());
    message.emit(bytes);
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Bytes bytes = std::as_bytes(std::span(data, size));
    static_cast<void>(CatalogRequest::parse(bytes));
    if (const auto picture = CatalogPicture::parse(bytes)) {
        const auto again = CatalogPicture::parse(bytes_of(*picture));
        RTRS_ASSERT(again && again->entries == picture->entries);
    }
    if (const auto event = CatalogEvent::parse(bytes)) {
        const auto again = CatalogEvent::parse(bytes_of(*event));
        RTRS_ASSERT(again && again->entry == event->entry && again->kind == event->kind);
    }
    return 0;
}
