#include "rtrs/tag/matcher.h"

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rtrs {

template <typename Slot>
void TagMatcher::append(std::vector<Slot>& slots, List& list, std::uint32_t slot) noexcept {
    slots[slot].links = {.before = list.last, .after = none};
    (list.last == none ? list.first : slots[list.last].links.after) = slot;
    list.last = slot;
    ++list.count;
}

template <typename Slot>
void TagMatcher::unlink(std::vector<Slot>& slots, List& list, std::uint32_t slot) noexcept {
    const Links links = slots[slot].links;
    (links.before == none ? list.first : slots[links.before].links.after) = links.after;
    (links.after == none ? list.last : slots[links.after].links.before) = links.before;
    --list.count;
}

TagMatcher::TagMatcher(const TagLimits& limits)
    : limits_(limits), next_number_(limits.senders, 1) {}

template <typename Slot>
std::uint32_t TagMatcher::free_slot(std::vector<Slot>& slots, List& free, std::uint32_t slots_max) {
    if (free.first == none && slots.size() < slots_max) {
        slots.emplace_back();
        append(slots, free, static_cast<std::uint32_t>(slots.size() - 1));
    }
    return free.first;
}

ReceiveId TagMatcher::id_of(std::uint32_t slot) const noexcept {
    return ReceiveId{std::uint64_t{receives_[slot].generation} << 32 | slot};
}

std::uint32_t TagMatcher::slot_of(ReceiveId id) const noexcept {
    const auto slot = static_cast<std::uint32_t>(static_cast<std::uint64_t>(id));
    return slot < receives_.size() && receives_[slot].posted && id_of(slot) == id ? slot : none;
}

void TagMatcher::release(std::uint32_t slot) noexcept {
    unlink(receives_, posted_, slot);
    receives_[slot].posted = false;
    ++receives_[slot].generation;
    append(receives_, free_receives_, slot);
}

std::optional<TagMatch> TagMatcher::take_unexpected(const TagReceive& receive) {
    for (std::uint32_t at = unexpected_.first; at != none; at = messages_[at].links.after) {
        const TagMessage& message = messages_[at].message;
        if (!receive.pattern.matches(message.tag)) continue;
        const TagMatch match{.receive = receive, .message = message};
        unlink(messages_, unexpected_, at);
        append(messages_, free_messages_, at);
        unexpected_bytes_ -= match.message.stored_bytes;
        return match;
    }
    return std::nullopt;
}

std::expected<TagMatcher::Posted, std::error_code> TagMatcher::post(const TagReceive& receive) {
    if (!receive.pattern.possible()) return std::unexpected(from_errno(EINVAL));
    const std::uint32_t slot = free_slot(receives_, free_receives_, limits_.receives);
    if (slot == none) return std::unexpected(from_errno(ENOBUFS));
    Posted result{.id = id_of(slot), .match = take_unexpected(receive)};
    if (result.match) {
        result.match->id = result.id;
        ++receives_[slot].generation;  // the id is used up
        return result;
    }
    unlink(receives_, free_receives_, slot);
    append(receives_, posted_, slot);
    receives_[slot].receive = receive;
    receives_[slot].posted = true;
    receives_[slot].aside = false;
    return result;
}

TagMatcher::Arrived TagMatcher::arrive(const TagMessage& message) {
    RTRS_ASSERT(message.sender < next_number_.size());
    std::uint64_t& next = next_number_[message.sender];
    if (message.number < next) return {TagArrival::duplicate, {}};
    if (message.number > next) return {TagArrival::early, {}};
    for (std::uint32_t at = posted_.first; at != none; at = receives_[at].links.after) {
        const ReceiveSlot& slot = receives_[at];
        if (slot.aside || !slot.receive.pattern.matches(message.tag)) continue;
        ++next;
        const TagMatch match{.id = id_of(at), .receive = slot.receive, .message = message};
        release(at);
        return {TagArrival::matched, match};
    }
    if (message.stored_bytes > limits_.unexpected_bytes - unexpected_bytes_) {
        return {TagArrival::refused, {}};
    }
    const std::uint32_t slot = free_slot(messages_, free_messages_, limits_.unexpected_messages);
    if (slot == none) return {TagArrival::refused, {}};
    ++next;
    unlink(messages_, free_messages_, slot);
    append(messages_, unexpected_, slot);
    messages_[slot].message = message;
    unexpected_bytes_ += message.stored_bytes;
    return {TagArrival::unexpected, {}};
}

bool TagMatcher::cancel(ReceiveId id) {
    const std::uint32_t slot = slot_of(id);
    if (slot == none) return false;
    release(slot);
    return true;
}

std::optional<ReceiveId> TagMatcher::first_posted() const noexcept {
    if (posted_.first == none) return std::nullopt;
    return id_of(posted_.first);
}

std::optional<ReceiveId> TagMatcher::next_posted(ReceiveId id) const noexcept {
    const std::uint32_t slot = slot_of(id);
    RTRS_ASSERT(slot != none);
    const std::uint32_t after = receives_[slot].links.after;
    if (after == none) return std::nullopt;
    return id_of(after);
}

const TagReceive& TagMatcher::receive(ReceiveId id) const noexcept {
    const std::uint32_t slot = slot_of(id);
    RTRS_ASSERT(slot != none);
    return receives_[slot].receive;
}

void TagMatcher::set_aside(ReceiveId id) noexcept {
    const std::uint32_t slot = slot_of(id);
    RTRS_ASSERT(slot != none);
    receives_[slot].aside = true;
}

std::expected<TagMatch, std::error_code> TagMatcher::take(ReceiveId id, const TagMessage& message) {
    const std::uint32_t slot = slot_of(id);
    RTRS_ASSERT(slot != none && message.sender < next_number_.size());
    const TagReceive receive = receives_[slot].receive;
    if (message.number != next_number_[message.sender] || !receive.pattern.matches(message.tag)) {
        return std::unexpected(from_errno(EPROTO));
    }
    ++next_number_[message.sender];
    release(slot);
    return TagMatch{.id = id, .receive = receive, .message = message};
}

}  // namespace rtrs
