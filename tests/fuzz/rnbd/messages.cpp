// Every RNBD message from the same bytes, whatever type they claim. What parses is emitted and
// parsed again: the meaning must survive.
#include "rnbd/messages.h"

#include <array>

#include "rtrs/base/assert.h"

using namespace rnbd;

namespace {

template <typename Message, std::size_t wire_bytes_max = Message::wire_bytes>
void try_message(Bytes bytes) {
    const auto message = Message::parse(bytes);
    if (!message) {
        RTRS_ASSERT(to_errno(message.error()) > 0);
        return;
    }
    std::array<std::byte, wire_bytes_max> again;
    message->emit(again);
    RTRS_ASSERT(Message::parse(again) == message);
}

void try_extents_response(Bytes bytes) {
    const auto view = ExtentsResponseView::parse(bytes);
    if (!view) return;
    RTRS_ASSERT(view->count() <= ExtentsResponseView::capacity(bytes.size()));
    for (std::size_t i = 0; i < view->count(); ++i) RTRS_ASSERT(view->extent(i).length > 0);
}

void try_open(Bytes bytes) {
    const auto message = OpenMessage::parse(bytes);
    if (!message) return;
    RTRS_ASSERT(check_device_name(message->device_name));
    std::array<std::byte, OpenMessage::wire_bytes_max> again;
    message->emit(again);
    RTRS_ASSERT(OpenMessage::parse(std::span(again).first(message->size())) == message);
}

void try_io(Bytes bytes) {
    const auto message = IoMessage::parse(bytes);
    if (!message) return;
    const bool agrees = message->check_data(message->bytes).has_value();
    RTRS_ASSERT(agrees == (carries_data(message->operation) == (message->bytes > 0)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Bytes bytes = std::as_bytes(std::span(data, size));
    static_cast<void>(request_type(bytes));
    try_message<SessionInfoMessage>(bytes);
    try_message<SessionInfoResponse>(bytes);
    try_message<OpenResponse, OpenResponse::wire_bytes_with_medium>(bytes);
    try_message<CloseMessage>(bytes);
    try_message<IoMessage>(bytes);
    try_message<ExtentsMessage>(bytes);
    try_extents_response(bytes);
    try_open(bytes);
    try_io(bytes);
    return 0;
}
