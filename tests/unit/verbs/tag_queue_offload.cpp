// The rules of the hand-over through a TM-SRQ: the same tests as
// tests/unit/tag/offload_matcher.cpp.
#include "tests/unit/verbs/played_tag_queue.h"

namespace {

struct PlayedDevice final : rtrs::PlayedTagQueue {
    using PlayedTagQueue::PlayedTagQueue;
    rtrs::TagDevice* get() { return queue.get(); }
    void set_handler(rtrs::TagDeviceHandler& handler) { queue->set_handler(handler); }
    void unexpected(const rtrs::TagMessage& message) {
        complete(received(IBV_TMH_EAGER, message.number, message.tag,
                          static_cast<std::uint32_t>(message.bytes)));
    }
    // Which slot it is in is for the queue to know.
    void match(std::uint32_t, const rtrs::TagMessage& message) {
        complete(
            match_of(tag(message.tag), message.number, static_cast<std::uint32_t>(message.bytes)));
    }
    void done(bool sync_required, bool done) { complete(operated(sync_required, done)); }
};

}  // namespace

#include "tests/unit/tag/offload_rules.h"
