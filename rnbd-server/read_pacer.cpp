#include "rnbd-server/read_pacer.h"

#include <utility>

#include "rtrs/base/member_call.h"

namespace rnbd {

void ReadPacer::Line::push(BlockRequest& request) noexcept {
    request.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &request;
    last_ = &request;
}

BlockRequest& ReadPacer::Line::pop() noexcept { return *std::exchange(first_, first_->next); }

ReadPacer::ReadPacer(rtrs::Reactor& reactor, void* context, Go go)
    : reactor_(reactor),
      context_(context),
      go_(go),
      next_turn_(reactor, this, rtrs::member_call<&ReadPacer::next_portion>) {}

ReadPacer::~ReadPacer() = default;

bool ReadPacer::fits(const BlockRequest& request) const noexcept {
    return turn_bytes_ == 0 || turn_bytes_ + request.bytes <= portion_bytes;
}

bool ReadPacer::is_new_turn() noexcept {
    const std::uint64_t turn = reactor_.statistics().turns;
    if (std::exchange(turn_, turn) == turn) return false;
    turn_bytes_ = 0;
    return true;
}

ReadPacer::Verdict ReadPacer::ask(BlockRequest& request, Line& line) {
    if (request.bytes <= small_bytes_max) return Verdict::go;
    is_new_turn();
    if (lines_.empty() && fits(request)) {
        turn_bytes_ += request.bytes;
        return Verdict::go;
    }
    line.push(request);
    if (!line.linked()) lines_.push_back(line);
    if (!next_turn_.armed()) next_turn_.arm(reactor_.now());
    return Verdict::wait;
}

// Timers that are armed by what a turn hands out expire at the end of that turn already. A turn
// that has brought reads gives nothing to those that wait: it would make smaller portions.
void ReadPacer::next_portion() {
    bool goes_on = is_new_turn();
    while (std::exchange(goes_on, false)) {
        // Whose request is too large for what is left of the portion is the first of the next.
        lines_.for_each([&](Line& line) {
            if (!fits(*line.first_)) return;
            go_on(line);
            goes_on = true;
        });
    }
    if (!lines_.empty()) next_turn_.arm(reactor_.now());
}

// With the oldest; then it is another one's turn.
void ReadPacer::go_on(Line& line) {
    BlockRequest& request = line.pop();
    rtrs::IntrusiveList<Line>::remove(line);
    if (line.first_ != nullptr) lines_.push_back(line);
    turn_bytes_ += request.bytes;
    go_(context_, request);
}

}  // namespace rnbd
