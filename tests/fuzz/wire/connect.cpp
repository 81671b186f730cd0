// Private data of connections, in both directions. What parses is emitted and parsed again: the
// meaning must survive, and geometry() must only let possible chunks through.
#include "rtrs/wire/connect.h"

#include <array>

#include "rtrs/base/assert.h"
#include "rtrs/limits.h"

using namespace rtrs;

namespace {

template <typename Message>
void check_round_trip(const Message& message) {
    std::array<std::byte, Message::wire_bytes> again;
    message.emit(again);
    RTRS_ASSERT(Message::parse(again) == message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Bytes bytes = std::as_bytes(std::span(data, size));
    if (const auto request = ConnectRequestMessage::parse(bytes)) {
        RTRS_ASSERT(request->connection_id < request->connection_count);
        RTRS_ASSERT(request->connection_count <= limits::connections_max);
        check_round_trip(*request);
    }
    if (const auto response = ConnectResponseMessage::parse(bytes)) {
        check_round_trip(*response);
        if (const auto geometry = response->geometry()) {
            RTRS_ASSERT(limits::geometry_possible(geometry->queue_depth, geometry->chunk_bytes));
            RTRS_ASSERT(geometry->io_bytes_max < geometry->chunk_bytes);
            RTRS_ASSERT(geometry->header_bytes_max < geometry->chunk_bytes);
        }
    }
    return 0;
}
