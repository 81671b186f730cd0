// What of a volume is allocated, for a session that asks. See target.h.

#include <algorithm>
#include <memory>

#include "rnbd-server/target_inside.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using rtrs::from_errno;

constexpr std::size_t extents_max = 128;

std::uint32_t emit(const std::vector<StorageExtent>& extents, rtrs::MutableBytes to) {
    std::uint32_t count = 0;
    for (const StorageExtent& extent : extents) {
        ExtentFlag flags = ExtentFlag::none;
        if (extent.hole) flags = flags | ExtentFlag::hole;
        if (extent.zero) flags = flags | ExtentFlag::zero;
        ExtentsResponseView::emit_extent(count++, {.length = extent.bytes, .flags = flags}, to);
    }
    ExtentsResponseView::emit_header(count, to);
    return static_cast<std::uint32_t>(ExtentsResponseView::wire_bytes(count));
}

}  // namespace

struct Target::Question final : ExtentsRequest, InFlight {
    Question() : ExtentsRequest(&Target::extents_found) {}
};

void Target::extents(Session& session, rtrs::ServerOp& op) {
    const auto message = ExtentsMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    const auto found = find_open(session, message->device_id);
    if (!found) return op.respond(found.error());
    OpenVolume& open = **found;
    const StorageGeometry& geometry = open.volume->geometry();
    if (message->length == 0 || message->offset > geometry.size_bytes ||
        message->length > geometry.size_bytes - message->offset ||
        !whole_blocks(message->offset | message->length, geometry.logical_block_bytes)) {
        return op.respond(from_errno(EINVAL));
    }
    const std::size_t room = std::min(extents_max, ExtentsResponseView::capacity(op.data().size()));
    if (room == 0) return op.respond(from_errno(EINVAL));
    if (!geometry.extents) {
        return op.respond({}, emit({StorageExtent{.bytes = message->length}}, op.data()));
    }
    auto question = std::make_unique<Question>();
    question->offset = message->offset;
    question->bytes = message->length;
    question->extents_max = room;
    question->session = &session;
    question->op = &op;
    question->open = &open;
    begin(*question);
    open.volume->storage(*open.open)->extents(*question.release());
}

void Target::extents_found(ExtentsRequest& request, std::error_code error) {
    const std::unique_ptr<Question> question(&static_cast<Question&>(request));
    const std::uint32_t produced = error ? 0 : emit(question->found, question->op->data());
    answer(*question, answered_as(error), produced);
}

}  // namespace rnbd
