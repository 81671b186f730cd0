#include "rtrs/tag/offload_matcher.h"

#include <algorithm>

#include "rtrs/base/assert.h"

namespace rtrs {

OffloadMatcher::OffloadMatcher(const TagLimits& limits, TagDevice* device, TagMatchHandler& handler)
    : lists_(limits),
      device_(device),
      handler_(handler),
      slots_(device != nullptr ? device->capacity() : 0) {}

OffloadMatcher::Slot* OffloadMatcher::find(ReceiveId id) noexcept {
    for (Slot& slot : slots_) {
        const bool there =
            slot.holds == Slot::Holds::receive || slot.holds == Slot::Holds::cancelled;
        if (there && slot.id == id) return &slot;
    }
    return nullptr;
}

std::expected<ReceiveId, std::error_code> OffloadMatcher::post(const TagReceive& receive) {
    const auto posted = lists_.post(receive);
    if (!posted) return std::unexpected(posted.error());
    if (posted->match) {
        handler_.on_match(*posted->match);
    } else {
        feed();
    }
    return posted->id;
}

TagArrival OffloadMatcher::arrive(const TagMessage& message) {
    RTRS_ASSERT(device_ == nullptr);
    return arrive_in_software(message);
}

TagArrival OffloadMatcher::arrive_in_software(const TagMessage& message) {
    const auto arrived = lists_.arrive(message);
    if (arrived.match) {
        // It was asleep in the device, or on its way there: the removal goes ahead of the next
        // count, so it cannot wake in between (H3).
        if (Slot* slot = find(arrived.match->id)) {
            slot->holds = Slot::Holds::taken;
            remove(*slot);
        }
        handler_.on_match(*arrived.match);
    }
    return arrived.kind;
}

CancelResult OffloadMatcher::cancel(ReceiveId id) {
    if (Slot* slot = find(id)) {
        if (slot->holds == Slot::Holds::receive) {
            lists_.set_aside(id);
            slot->holds = Slot::Holds::cancelled;
            remove(*slot);
        }
        return CancelResult::pending;
    }
    return lists_.cancel(id) ? CancelResult::cancelled : CancelResult::unknown;
}

void OffloadMatcher::remove(Slot& slot) {
    slot.removing = true;
    device_->post({.kind = TagOperation::Kind::remove,
                   .slot = static_cast<std::uint32_t>(&slot - slots_.data()),
                   .handled = handled_});
}

void OffloadMatcher::on_device_match(std::uint32_t index, const TagMessage& message) {
    Slot& slot = slots_.at(index);
    if (slot.holds != Slot::Holds::receive && slot.holds != Slot::Holds::cancelled) {
        return handler_.on_device_broken("a tag was matched that the device does not hold");
    }
    const auto match = lists_.take(slot.id, message);
    if (!match) return handler_.on_device_broken("a tag was matched with the wrong message");
    slot.holds = Slot::Holds::used_up;
    settle(slot);
    handler_.on_match(*match);
    feed();
}

void OffloadMatcher::on_device_unexpected(const TagMessage& message) {
    const TagArrival kind = arrive_in_software(message);
    if (kind != TagArrival::matched) handler_.on_arrival(message, kind);
    ++handled_;
    agreed_ = false;
    sync();
}

void OffloadMatcher::sync() {
    if (syncing_) return;
    syncing_ = true;
    device_->post({.kind = TagOperation::Kind::sync, .handled = handled_});
}

void OffloadMatcher::on_device_operation(const TagOperationResult& result) {
    switch (result.kind) {
        case TagOperation::Kind::add:
            slots_.at(result.slot).adding = false;
            settle(slots_[result.slot]);
            break;
        case TagOperation::Kind::remove:
            removed(slots_.at(result.slot), result.done);
            break;
        case TagOperation::Kind::sync:
            syncing_ = false;
            if (result.handled != handled_) sync();
            break;
    }
    // A difference in an operation that names the newest count: an unexpected message is still on
    // its way to us, and handling it brings the next sync.
    if (result.handled == handled_) {
        if (result.sync_required) {
            agreed_ = false;
        } else if (result.kind == TagOperation::Kind::sync) {
            agreed_ = true;
        }
    }
    feed();
}

void OffloadMatcher::removed(Slot& slot, bool done) {
    slot.removing = false;
    if (done && slot.holds == Slot::Holds::used_up) {
        return handler_.on_device_broken("a tag was removed that had been matched");
    }
    if (!done && slot.holds == Slot::Holds::taken) {
        return handler_.on_device_broken("a sleeping tag was matched");
    }
    if (done && slot.holds == Slot::Holds::cancelled) {
        const std::uint64_t context = lists_.receive(slot.id).context;
        const ReceiveId id = slot.id;
        lists_.cancel(id);
        slot.holds = Slot::Holds::used_up;
        settle(slot);
        return handler_.on_cancelled(id, context);
    }
    // Not done: the match has been reported, or will be.
    settle(slot);
}

void OffloadMatcher::settle(Slot& slot) {
    const bool over = slot.holds == Slot::Holds::used_up || slot.holds == Slot::Holds::taken;
    if (over && !slot.adding && !slot.removing) slot.holds = Slot::Holds::nothing;
}

void OffloadMatcher::feed() {
    if (!agreed_ || slots_.empty()) return;
    auto next = lists_.first_posted();
    while (next && find(*next) != nullptr) next = lists_.next_posted(*next);
    for (; next; next = lists_.next_posted(*next)) {
        const auto free = std::ranges::find(slots_, Slot::Holds::nothing, &Slot::holds);
        if (free == slots_.end()) return;
        *free = {.id = *next, .holds = Slot::Holds::receive, .adding = true};
        device_->post({.kind = TagOperation::Kind::add,
                       .slot = static_cast<std::uint32_t>(free - slots_.begin()),
                       .receive = lists_.receive(*next),
                       .handled = handled_});
    }
}

}  // namespace rtrs
