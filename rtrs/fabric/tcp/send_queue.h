// What an endpoint has posted and not yet completed, and the bytes of it that are still to be sent.
//
// Two batches: frames are appended to one while the other is being sent, as few large messages as
// the limits allow. Headers and small segments are copied into the batch's arena, where neighbours
// share one iovec; large segments are sent from where they lie. A batch starts from the front of
// its memory each time, and has a little of it in the object itself: what is reserved is touched by
// connections that have been busy.
//
// Works complete in posting order: when their last byte was given to the socket, nothing up to it
// is held by a send without a copy and, for a read, the answer is there.
//
// Pure but for the memory it reserves at creation; no allocation afterwards.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "rtrs/fabric.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabric/tcp/growing_ring.h"
#include "rtrs/fabric/tcp/reserved_memory.h"

namespace rtrs::tcp {

class SendQueue {
  public:
    // Bytes of small segments copied behind a header, per frame.
    static constexpr std::size_t inline_bytes_max = 256;
    // Bytes after which a message takes no further frame. Larger ones only delay completions.
    static constexpr std::size_t message_bytes = 1u << 20;
    static constexpr std::size_t message_iovecs_max = 1024;

    struct Work {
        std::uint64_t context = 0;
        std::uint64_t end = 0;  // stream position behind its last byte
        Signal signal = Signal::none;
        bool unanswered = false;  // a read that waits for its data
    };
    enum class PayloadCrc : std::uint8_t { none, computed };

    // answers_max: frames without a work that may wait at one time (read responses).
    SendQueue(std::uint32_t works_max, std::uint32_t answers_max) noexcept;
    SendQueue(const SendQueue&) = delete;
    SendQueue& operator=(const SendQueue&) = delete;
    // False if the memory could not be reserved.
    bool ready() const noexcept { return !memory_.empty(); }

    std::uint32_t works_free() const noexcept { return works_max_ - works(); }
    std::uint32_t works() const noexcept { return static_cast<std::uint32_t>(tail_ - head_); }

    // Appends a frame; sets its payload fields from the segments. Returns the stream position
    // behind it. ASSUMES: a free work or answer stands for it.
    std::uint64_t append(FrameHeader&& header, std::span<const Segment> payload, PayloadCrc crc);
    // Notes a work that is done when the stream has been sent up to what is appended now. Returns
    // its number. ASSUMES: works_free() > 0.
    std::uint64_t add_work(const Work& work) noexcept;
    void answered(std::uint64_t number) noexcept { works_[number].unanswered = false; }

    // The oldest work if it is done; the caller takes it.
    std::optional<Work> take_done() noexcept;
    // The oldest work, done or not: for flushing.
    std::optional<Work> take() noexcept;

    // Whether bytes wait that are not part of the message being sent.
    bool pending() const noexcept;
    struct Message {
        const msghdr* content;  // lives until sent()
        bool by_itself;         // one posted segment of so many bytes
        bool continues;         // what comes next is one by itself
    };
    // The next message, if there is one. Segments of alone_from bytes or more are messages by
    // themselves.
    std::optional<Message> next_message(std::size_t alone_from = SIZE_MAX) noexcept;
    // Bytes of the last message that the socket took.
    void sent(std::size_t bytes) noexcept;
    std::uint64_t sent_position() const noexcept { return sent_; }
    // From there on memory is still read, though it was sent.
    void hold_from(std::uint64_t position) noexcept { held_from_ = position; }
    void hold_nothing() noexcept { held_from_ = ~std::uint64_t{0}; }
    // Up to there memory belongs to those who posted it.
    std::uint64_t released_position() const noexcept { return std::min(sent_, held_from_); }
    // Nothing of an unfinished frame has been sent.
    bool at_frame_boundary() const noexcept { return batches_[sending_].empty(); }

  private:
    using Works = GrowingRing<Work, 4>;
    static constexpr std::size_t arena_bytes_small = 512;
    static constexpr std::size_t iovecs_small = 8;

    struct Batch {
        std::array<std::byte, arena_bytes_small> small_arena;
        std::array<iovec, iovecs_small> small_iovecs;
        // One of the two each; the large one for good, once the small one did not do.
        std::byte* arena = small_arena.data();
        std::byte* large_arena = nullptr;
        std::size_t arena_used = 0;
        iovec* iovecs = small_iovecs.data();
        iovec* large_iovecs = nullptr;
        std::uint32_t first = 0;  // not yet sent
        std::uint32_t count = 0;
        bool empty() const noexcept { return first == count; }
        bool copied(const iovec& part) const noexcept;
        // For one more frame. ASSUMES: nothing of it is being sent.
        void make_room() noexcept;
        std::byte* copy_space(std::size_t bytes) noexcept;
        void add(std::byte* data, std::size_t bytes) noexcept;
    };

    std::uint32_t works_max_;
    ReservedMemory memory_;
    Works works_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
    std::array<Batch, 2> batches_;
    std::uint8_t sending_ = 0;
    msghdr message_{};
    std::uint64_t appended_ = 0;
    std::uint64_t sent_ = 0;
    std::uint64_t held_from_ = ~std::uint64_t{0};
};

}  // namespace rtrs::tcp
