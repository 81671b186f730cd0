// The work that an endpoint has posted and not yet completed, and its bytes that are still to be
// sent.
//
// There are two batches: frames are appended to one while the other is being sent, in as few large
// messages as the limits allow. Headers and small segments are copied into the batch's arena, where
// neighbours share one iovec; large segments are sent from where they lie. Each time a batch is
// refilled, it starts from the front of its memory, a little of which is in the object itself. So
// only connections that have been busy touch the reserved memory.
//
// Works complete in posting order: when their last byte was given to the socket, no zero-copy send
// holds anything up to it and, for a read, the answer has arrived.
//
// Pure except for the memory reserved at creation; no allocation afterwards.
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
    // How many bytes of small segments are copied behind a header, per frame.
    static constexpr std::size_t inline_bytes_max = 256;
    // A message of this many bytes takes no further frame. Larger ones only delay completions.
    static constexpr std::size_t message_bytes = 1u << 20;
    static constexpr std::size_t message_iovecs_max = 1024;

    struct Work {
        std::uint64_t context = 0;
        std::uint64_t end = 0;  // stream position behind its last byte
        Signal signal = Signal::none;
        bool unanswered = false;  // a read that still waits for its data
    };
    enum class PayloadCrc : std::uint8_t { none, computed };

    // answers_max: how many frames without a work (read responses) may wait at a time.
    SendQueue(std::uint32_t works_max, std::uint32_t answers_max) noexcept;
    SendQueue(const SendQueue&) = delete;
    SendQueue& operator=(const SendQueue&) = delete;
    // False if the memory could not be reserved.
    bool ready() const noexcept { return !memory_.empty(); }

    std::uint32_t works_free() const noexcept { return works_max_ - works(); }
    std::uint32_t works() const noexcept { return static_cast<std::uint32_t>(tail_ - head_); }

    // Appends a frame and sets its payload fields from the segments. Returns the stream position
    // behind it. ASSUMES: a free work or answer is reserved for it.
    std::uint64_t append(FrameHeader&& header, std::span<const Segment> payload, PayloadCrc crc);
    // Records a work that is done when the stream has been sent up to what is appended now. Returns
    // its number. ASSUMES: works_free() > 0.
    std::uint64_t add_work(const Work& work) noexcept;
    void answered(std::uint64_t number) noexcept { works_[number].unanswered = false; }

    // Removes and returns the oldest work if it is done.
    std::optional<Work> take_done() noexcept;
    // Removes and returns the oldest work, done or not: for flushing.
    std::optional<Work> take() noexcept;

    // Whether bytes wait that are not part of the message being sent.
    bool pending() const noexcept;
    struct Message {
        const msghdr* content;  // valid until sent()
        bool by_itself;         // one posted segment of alone_from bytes or more
        bool continues;         // the next message is one by itself
    };
    // The next message, if there is one. Segments of alone_from bytes or more are messages by
    // themselves.
    std::optional<Message> next_message(std::size_t alone_from = SIZE_MAX) noexcept;
    // The socket took this many bytes of the last message.
    void sent(std::size_t bytes) noexcept;
    std::uint64_t sent_position() const noexcept { return sent_; }
    // From this position on, memory is still read although it was sent.
    void hold_from(std::uint64_t position) noexcept { held_from_ = position; }
    void hold_nothing() noexcept { held_from_ = ~std::uint64_t{0}; }
    // Up to this position, memory belongs to its posters again.
    std::uint64_t released_position() const noexcept { return std::min(sent_, held_from_); }
    // True if no frame has been sent in part only.
    bool at_frame_boundary() const noexcept { return batches_[sending_].empty(); }

  private:
    using Works = GrowingRing<Work, 4>;
    static constexpr std::size_t arena_bytes_small = 512;
    static constexpr std::size_t iovecs_small = 8;

    struct Batch {
        std::array<std::byte, arena_bytes_small> small_arena;
        std::array<iovec, iovecs_small> small_iovecs;
        // Each points to the small or the large memory; to the large one for good, once the small
        // one did not suffice.
        std::byte* arena = small_arena.data();
        std::byte* large_arena = nullptr;
        std::size_t arena_used = 0;
        iovec* iovecs = small_iovecs.data();
        iovec* large_iovecs = nullptr;
        std::uint32_t first = 0;  // not yet sent
        std::uint32_t count = 0;
        bool empty() const noexcept { return first == count; }
        bool copied(const iovec& part) const noexcept;
        // Makes room for one more frame. ASSUMES: nothing of this batch is being sent.
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
