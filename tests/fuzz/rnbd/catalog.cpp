// What a server tells of its exports and of a session as it arrives at a client, and a client's
// questions as they arrive at a server.
#include "rnbd/catalog.h"

#include <vector>

#include "rnbd/statistics.h"
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
    static_cast<void>(StatisticsRequest::parse(bytes));
    if (const auto statistics = StatisticsResponse::parse(bytes)) {
        std::vector<std::byte> again(StatisticsResponse::wire_bytes);
        statistics->emit(again);
        RTRS_ASSERT(StatisticsResponse::parse(again) == statistics);
    }
    return 0;
}
