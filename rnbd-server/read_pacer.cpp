#include "rnbd-server/read_pacer.h"

#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd {

ReadPacer::ReadPacer(rtrs::Reactor& reactor, void* context, Go go)
    : reactor_(reactor),
      context_(context),
      go_(go),
      next_turn_(reactor, this, rtrs::member_call<&ReadPacer::next_portion>) {}

ReadPacer::~ReadPacer() { RTRS_ASSERT(first_ == nullptr); }

bool ReadPacer::fits(const BlockRequest& request) const noexcept {
    return turn_bytes_ == 0 || turn_bytes_ + request.bytes <= portion_bytes;
}

ReadPacer::Verdict ReadPacer::ask(BlockRequest& request) {
    if (request.bytes <= small_bytes_max) return Verdict::go;
    if (const std::uint64_t turn = reactor_.statistics().turns; turn != turn_) {
        turn_ = turn;
        turn_bytes_ = 0;
    }
    if (first_ == nullptr && fits(request)) {
        turn_bytes_ += request.bytes;
        return Verdict::go;
    }
    request.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &request;
    last_ = &request;
    if (!next_turn_.armed()) next_turn_.arm(reactor_.now());
    return Verdict::wait;
}

// Timers that are armed by what a turn hands out expire at the end of that turn already.
void ReadPacer::next_portion() {
    if (const std::uint64_t turn = reactor_.statistics().turns; turn != turn_) {
        turn_ = turn;
        turn_bytes_ = 0;
        while (first_ != nullptr && fits(*first_)) {
            BlockRequest& request = *std::exchange(first_, first_->next);
            turn_bytes_ += request.bytes;
            go_(context_, request);
        }
    }
    if (first_ != nullptr) next_turn_.arm(reactor_.now());
}

}  // namespace rnbd
