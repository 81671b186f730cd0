#include "rtrs/fabric/tcp/send_queue.h"

#include <cstring>
#include <functional>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/tcp/crc32c.h"

namespace rtrs::tcp {
namespace {

constexpr std::size_t frame_arena_bytes = header_bytes + SendQueue::inline_bytes_max;
// A header, then segments of which at most every second one is in the arena.
constexpr std::size_t frame_iovecs = 1 + Endpoint::max_segments;

}  // namespace

SendQueue::SendQueue(std::uint32_t works_max, std::uint32_t answers_max) noexcept
    : works_max_(works_max) {
    const std::size_t frames = std::size_t{works_max} + answers_max;
    const std::size_t works = Works::large_count(works_max);
    memory_ = ReservedMemory(ReservedMemory::bytes_for<Work>(works) +
                             batches_.size() *
                                 (ReservedMemory::bytes_for<std::byte>(frames * frame_arena_bytes) +
                                  ReservedMemory::bytes_for<iovec>(frames * frame_iovecs)));
    if (memory_.empty()) return;
    works_.set_large(memory_.cut<Work>(works), works_max);
    for (Batch& batch : batches_) {
        batch.large_arena = memory_.cut<std::byte>(frames * frame_arena_bytes);
        batch.large_iovecs = memory_.cut<iovec>(frames * frame_iovecs);
    }
}

void SendQueue::Batch::make_room() noexcept {
    static_assert(frame_arena_bytes <= arena_bytes_small && frame_iovecs <= iovecs_small);
    if (arena == small_arena.data() && arena_used + frame_arena_bytes > arena_bytes_small) {
        arena = large_arena;  // what is in the small one stays there until it has been sent
        arena_used = 0;
    }
    if (iovecs == small_iovecs.data() && count + frame_iovecs > iovecs_small) {
        std::copy_n(iovecs, count, large_iovecs);  // one message is one array
        iovecs = large_iovecs;
    }
}

std::byte* SendQueue::Batch::copy_space(std::size_t bytes) noexcept {
    std::byte* space = arena + arena_used;
    arena_used += bytes;
    add(space, bytes);
    return space;
}

// Whether it is, or touches, what was copied.
bool SendQueue::Batch::copied(const iovec& part) const noexcept {
    const auto* begin = static_cast<const std::byte*>(part.iov_base);
    const auto touches = [&](const std::byte* space, std::size_t bytes) {
        return std::less<>{}(begin, space + bytes) && std::less<>{}(space, begin + part.iov_len);
    };
    return touches(small_arena.data(), small_arena.size()) ||
           (arena == large_arena && touches(large_arena, arena_used));
}

void SendQueue::Batch::add(std::byte* data, std::size_t bytes) noexcept {
    if (!empty()) {
        iovec& last = iovecs[count - 1];
        if (static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
            last.iov_len += bytes;
            return;
        }
    }
    iovecs[count++] = {data, bytes};
}

std::uint64_t SendQueue::append(FrameHeader&& header, std::span<const Segment> payload,
                                PayloadCrc want_crc) {
    Batch& batch = batches_[sending_ ^ 1];
    batch.make_room();
    std::byte* header_space = batch.copy_space(header_bytes);
    std::size_t copy_left = inline_bytes_max;
    std::uint32_t payload_bytes = 0;
    Crc32c crc;
    for (const Segment& segment : payload) {
        if (segment.bytes == 0) continue;
        payload_bytes += segment.bytes;
        if (want_crc == PayloadCrc::computed) crc.add({segment.data, segment.bytes});
        if (segment.bytes <= copy_left) {
            std::memcpy(batch.copy_space(segment.bytes), segment.data, segment.bytes);
            copy_left -= segment.bytes;
        } else {
            batch.add(segment.data, segment.bytes);
        }
    }
    header.payload_bytes = payload_bytes;
    if (want_crc == PayloadCrc::computed && payload_bytes > 0) {
        header.flags = flag_payload_crc;
        header.payload_crc = crc.value();
    }
    emit_header(header, header_space);
    appended_ += header_bytes + payload_bytes;
    return appended_;
}

std::uint64_t SendQueue::add_work(const Work& work) noexcept {
    RTRS_ASSERT(works_free() > 0);
    if (head_ == tail_) head_ = tail_ = 0;
    works_.make_room(head_, tail_);
    Work& place = works_[tail_];
    place = work;
    place.end = appended_;
    return tail_++;
}

std::optional<SendQueue::Work> SendQueue::take_done() noexcept {
    if (head_ == tail_) return std::nullopt;
    const Work& work = works_[head_];
    if (work.end > released_position() || work.unanswered) return std::nullopt;
    ++head_;
    return work;
}

std::optional<SendQueue::Work> SendQueue::take() noexcept {
    if (head_ == tail_) return std::nullopt;
    return works_[head_++];
}

bool SendQueue::pending() const noexcept { return !batches_[0].empty() || !batches_[1].empty(); }

std::optional<SendQueue::Message> SendQueue::next_message(std::size_t alone_from) noexcept {
    if (batches_[sending_].empty()) {
        batches_[sending_].arena_used = 0;
        batches_[sending_].first = batches_[sending_].count = 0;
        sending_ ^= 1;
    }
    Batch& batch = batches_[sending_];
    if (batch.empty()) return std::nullopt;
    const std::size_t limit = std::min<std::size_t>(batch.count - batch.first, message_iovecs_max);
    std::size_t iovecs = 0;
    std::size_t bytes = 0;
    bool alone = false;
    while (iovecs < limit && bytes < message_bytes) {
        const iovec& next = batch.iovecs[batch.first + iovecs];
        alone = next.iov_len >= alone_from && !batch.copied(next);
        if (alone) break;
        bytes += next.iov_len;
        ++iovecs;
    }
    const bool by_itself = alone && iovecs == 0;
    message_.msg_iov = batch.iovecs + batch.first;
    message_.msg_iovlen = by_itself ? 1 : iovecs;
    return Message{&message_, by_itself, alone && !by_itself};
}

void SendQueue::sent(std::size_t bytes) noexcept {
    Batch& batch = batches_[sending_];
    sent_ += bytes;
    while (bytes > 0) {
        RTRS_ASSERT(!batch.empty());
        iovec& next = batch.iovecs[batch.first];
        const std::size_t taken = std::min(bytes, next.iov_len);
        next.iov_base = static_cast<std::byte*>(next.iov_base) + taken;
        next.iov_len -= taken;
        bytes -= taken;
        if (next.iov_len == 0) ++batch.first;
    }
}

}  // namespace rtrs::tcp
