// Tag matching in software: posted receives on one side, messages that nobody waits for on the
// other. Pure: no I/O, no time, no payload; the owner keeps the bytes and finds them by `context`.
//
// The rules (tests/unit/tag/matcher.cpp has a test named after each):
//   M1  A message goes to the earliest posted receive that matches it.
//   M2  A receive takes, when it is posted, the earliest unexpected message that matches it.
//   M3  Only the bits of the mask are compared: mask 0 matches every tag. A pattern whose tag has
//       bits outside of its mask could never match and is refused.
//   M4  The messages of one sender are numbered from 1 and taken in that order. A number that was
//       taken before is a duplicate, one beyond the next is early, and neither changes anything.
//   M5  Unexpected messages take bounded memory. One that does not fit is refused and changes
//       nothing, so that all later ones of its sender are early until it has come again. Messages
//       that match, and other senders, are not held up by it.
//   M6  A cancelled receive matches nothing any more. One that has matched cannot be cancelled.
//   M7  A message longer than its receive is matched nevertheless, and the match says so.
//   M8  Which message matches which receive does not depend on whether receives are posted before
//       or after the messages arrive.
//
// OWNER: whoever moves the messages. THREAD: the owner's. Its memory grows to the greatest number
// of receives and messages that ever waited at a time, within the limits.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <system_error>
#include <vector>

namespace rtrs {

using Tag = std::uint64_t;
inline constexpr Tag whole_tag = ~Tag{0};

// Compares as tag-matching hardware does: the message's bits under the mask are those of the tag.
struct TagPattern {
    Tag tag = 0;
    Tag mask = whole_tag;
    constexpr bool matches(Tag message) const noexcept { return (message & mask) == tag; }
    // Whether it can match anything at all.
    constexpr bool possible() const noexcept { return (tag & ~mask) == 0; }
};

struct TagReceive {
    TagPattern pattern{};
    std::uint64_t capacity_bytes = 0;
    std::uint64_t context = 0;
};

struct TagMessage {
    std::uint32_t sender = 0;  // below TagLimits::senders
    std::uint64_t number = 0;  // among this sender's messages, from 1
    Tag tag = 0;
    std::uint64_t bytes = 0;  // of the whole message
    // What it occupies while it waits; for a rendezvous less than the message.
    std::uint64_t stored_bytes = 0;
    std::uint64_t context = 0;
};

struct TagLimits {
    std::uint32_t senders = 1;
    std::uint32_t receives = 64;             // posted at a time
    std::uint32_t unexpected_messages = 64;  // waiting at a time
    std::uint64_t unexpected_bytes = 256 << 10;
};

// A posted receive; never reused.
enum class ReceiveId : std::uint64_t {};

struct TagMatch {
    ReceiveId id{};
    TagReceive receive{};
    TagMessage message{};
    bool truncated() const noexcept { return message.bytes > receive.capacity_bytes; }
};

enum class TagArrival : std::uint8_t {
    matched,
    unexpected,  // it waits, and its bytes have to be kept
    refused,     // no room (M5): to be sent again later
    duplicate,   // taken before: to be dropped
    early,       // an earlier one is missing: to be sent again later
};

class TagMatcher {
  public:
    struct Posted {
        ReceiveId id{};
        std::optional<TagMatch> match{};  // with an unexpected message: then nothing is posted
    };
    struct Arrived {
        TagArrival kind{};
        std::optional<TagMatch> match{};
    };

    explicit TagMatcher(const TagLimits& limits);

    // ERRORS: EINVAL (impossible pattern, M3), ENOBUFS (as many posted as allowed).
    std::expected<Posted, std::error_code> post(const TagReceive& receive);
    // ASSUMES: message.sender < senders.
    Arrived arrive(const TagMessage& message);
    // False: the receive is not posted (any more).
    bool cancel(ReceiveId id);

    std::uint32_t posted() const noexcept { return posted_.count; }
    std::uint32_t unexpected() const noexcept { return unexpected_.count; }
    std::uint64_t unexpected_bytes() const noexcept { return unexpected_bytes_; }
    // The number that this sender's next message must have.
    std::uint64_t next_number(std::uint32_t sender) const noexcept { return next_number_[sender]; }

    // --- For users that let a device match (offload_matcher.h).

    // Posted receives in order; nullopt at the end.
    std::optional<ReceiveId> first_posted() const noexcept;
    std::optional<ReceiveId> next_posted(ReceiveId id) const noexcept;
    // ASSUMES: posted.
    const TagReceive& receive(ReceiveId id) const noexcept;
    // From here on arrive() passes the receive over; it stays posted until cancel() or take().
    void set_aside(ReceiveId id) noexcept;
    // A device has matched the two. ASSUMES: posted. ERRORS: EPROTO (the message is not the next
    // of its sender, or does not match).
    std::expected<TagMatch, std::error_code> take(ReceiveId id, const TagMessage& message);

  private:
    static constexpr std::uint32_t none = UINT32_MAX;
    struct Links {
        std::uint32_t before = none;
        std::uint32_t after = none;
    };
    struct List {
        std::uint32_t first = none;
        std::uint32_t last = none;
        std::uint32_t count = 0;
    };
    struct ReceiveSlot {
        Links links{};
        TagReceive receive{};
        std::uint32_t generation = 0;
        bool posted = false;
        bool aside = false;
    };
    struct MessageSlot {
        Links links{};
        TagMessage message{};
    };

    template <typename Slot>
    static void append(std::vector<Slot>& slots, List& list, std::uint32_t slot) noexcept;
    // The first free slot, created if necessary; `none` if there are slots_max already.
    template <typename Slot>
    static std::uint32_t free_slot(std::vector<Slot>& slots, List& free, std::uint32_t slots_max);
    template <typename Slot>
    static void unlink(std::vector<Slot>& slots, List& list, std::uint32_t slot) noexcept;
    ReceiveId id_of(std::uint32_t slot) const noexcept;
    // none: not posted.
    std::uint32_t slot_of(ReceiveId id) const noexcept;
    void release(std::uint32_t slot) noexcept;
    std::optional<TagMatch> take_unexpected(const TagReceive& receive);

    TagLimits limits_;
    std::vector<ReceiveSlot> receives_;
    std::vector<MessageSlot> messages_;
    List posted_;
    List free_receives_;
    List unexpected_;
    List free_messages_;
    std::uint64_t unexpected_bytes_ = 0;
    std::vector<std::uint64_t> next_number_;
};

}  // namespace rtrs
