#include "rtrs/fabric/tcp/send_queue.h"

#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "rtrs/base/random.h"
#include "rtrs/fabric/tcp/crc32c.h"

using namespace rtrs;
using namespace rtrs::tcp;

namespace {

FrameHeader send_header() {
    FrameHeader header;
    header.opcode = Opcode::send;
    return header;
}

// Takes at most `limit` bytes of the next message, as a socket would.
std::vector<std::byte> drain(SendQueue& queue, std::size_t limit,
                             std::size_t alone_from = SIZE_MAX) {
    std::vector<std::byte> out;
    const auto next = queue.next_message(alone_from);
    if (!next) return out;
    const msghdr* message = next->content;
    REQUIRE((!next->by_itself || message->msg_iovlen == 1));
    REQUIRE(message->msg_iovlen <= SendQueue::message_iovecs_max);
    for (std::size_t i = 0; i < message->msg_iovlen && out.size() < limit; ++i) {
        const auto* data = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
        const std::size_t part = std::min(message->msg_iov[i].iov_len, limit - out.size());
        out.insert(out.end(), data, data + part);
    }
    queue.sent(out.size());
    return out;
}

}  // namespace

TEST_CASE("send queue: small frames of a turn go out as one piece of memory") {
    SendQueue queue(16, 4);
    REQUIRE(queue.ready());
    std::array<std::byte, 60> small{};
    const Segment segment{small.data(), small.size()};
    // The first that do not fit in what a quiet connection has are in two: there, and behind it.
    for (const std::size_t pieces : {2, 2, 1, 1, 1}) {
        for (int i = 0; i < 16; ++i) {
            queue.append(send_header(), {&segment, 1}, SendQueue::PayloadCrc::computed);
            queue.add_work({});
        }
        CHECK(queue.works_free() == 0);
        const msghdr* message = queue.next_message().value().content;
        CHECK(message->msg_iovlen == pieces);
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < pieces; ++i) bytes += message->msg_iov[i].iov_len;
        CHECK(bytes == 16 * (header_bytes + small.size()));
        drain(queue, bytes);
        while (queue.take_done()) {
        }
    }
}

TEST_CASE("send queue: a few small frames are one piece from the first") {
    SendQueue queue(16, 4);
    std::array<std::byte, 60> small{};
    const Segment segment{small.data(), small.size()};
    for (int i = 0; i < 3; ++i) {
        queue.append(send_header(), {&segment, 1}, SendQueue::PayloadCrc::computed);
    }
    CHECK(queue.next_message().value().content->msg_iovlen == 1);
}

TEST_CASE("send queue: large segments are sent from where they lie, small ones are copied") {
    SendQueue queue(4, 4);
    std::vector<std::byte> large(4096, std::byte{1});
    std::array<std::byte, 48> small{};
    const std::array<Segment, 2> segments{Segment{large.data(), 4096}, Segment{small.data(), 48}};
    queue.append(send_header(), segments, SendQueue::PayloadCrc::none);
    queue.append(send_header(), segments, SendQueue::PayloadCrc::none);
    const msghdr* message = queue.next_message().value().content;
    REQUIRE(message->msg_iovlen == 5);  // header, data, small and header, data, small
    CHECK(message->msg_iov[1].iov_base == large.data());
    CHECK(message->msg_iov[2].iov_len == 48 + header_bytes);
    CHECK(message->msg_iov[2].iov_base != small.data());
}

TEST_CASE("send queue: work without bytes is done when what was posted before is sent") {
    SendQueue queue(4, 4);
    queue.add_work({.context = 1});
    REQUIRE(queue.take_done()->context == 1);
    queue.append(send_header(), {}, SendQueue::PayloadCrc::none);
    queue.add_work({.context = 2});
    queue.add_work({.context = 3});
    CHECK(!queue.take_done());
    drain(queue, 31);
    CHECK(!queue.take_done());
    CHECK(!queue.at_frame_boundary());
    drain(queue, 1);
    CHECK(queue.at_frame_boundary());
    CHECK(queue.take_done()->context == 2);
    CHECK(queue.take_done()->context == 3);
}

TEST_CASE("send queue: an unanswered read holds back what was posted after it") {
    SendQueue queue(4, 4);
    queue.append(send_header(), {}, SendQueue::PayloadCrc::none);
    const std::uint64_t read = queue.add_work({.context = 1, .unanswered = true});
    queue.add_work({.context = 2});
    drain(queue, 1000);
    CHECK(!queue.take_done());
    queue.answered(read);
    CHECK(queue.take_done()->context == 1);
    CHECK(queue.take_done()->context == 2);
}

TEST_CASE("send queue: a large segment is a message by itself if that is asked for") {
    SendQueue queue(4, 4);
    std::vector<std::byte> large(4096, std::byte{1});
    std::array<std::byte, 48> small{};
    const std::array<Segment, 2> segments{Segment{large.data(), 4096}, Segment{small.data(), 48}};
    queue.append(send_header(), segments, SendQueue::PayloadCrc::none);
    auto message = queue.next_message(4096).value();
    CHECK(!message.by_itself);
    CHECK(message.continues);
    REQUIRE(message.content->msg_iovlen == 1);
    CHECK(message.content->msg_iov[0].iov_len == header_bytes);
    queue.sent(header_bytes);
    message = queue.next_message(4096).value();
    CHECK(message.by_itself);
    CHECK(!message.continues);
    REQUIRE(message.content->msg_iovlen == 1);
    CHECK(message.content->msg_iov[0].iov_base == large.data());
    queue.sent(1);  // the rest is shorter than that
    message = queue.next_message(4096).value();
    CHECK(!message.by_itself);
    CHECK(!message.continues);
    CHECK(message.content->msg_iovlen == 2);
}

TEST_CASE("send queue: what was copied is never a message by itself") {
    SendQueue queue(16, 4);
    std::array<std::byte, 60> small{};
    const Segment segment{small.data(), small.size()};
    for (int i = 0; i < 16; ++i) {
        queue.append(send_header(), {&segment, 1}, SendQueue::PayloadCrc::none);
    }
    const auto message = queue.next_message(100).value();
    CHECK(!message.by_itself);
    CHECK(!message.continues);
}

TEST_CASE("send queue: work is not done while memory of it, or of what was before it, is held") {
    SendQueue queue(4, 4);
    queue.append(send_header(), {}, SendQueue::PayloadCrc::none);
    queue.add_work({.context = 1});
    queue.append(send_header(), {}, SendQueue::PayloadCrc::none);
    queue.add_work({.context = 2});
    drain(queue, 1000);
    queue.hold_from(header_bytes);
    CHECK(queue.released_position() == header_bytes);
    CHECK(queue.take_done()->context == 1);
    CHECK(!queue.take_done());
    queue.hold_nothing();
    CHECK(queue.released_position() == 2 * header_bytes);
    CHECK(queue.take_done()->context == 2);
}

TEST_CASE("send queue: random frames through a random socket arrive as they were posted") {
    const std::uint64_t seed = GENERATE(range(0, 20));
    Random random(seed);
    const auto depth = static_cast<std::uint32_t>(1 + random.below(300));
    const std::size_t alone_from = random.chance(1, 2) ? SIZE_MAX : random.below(20000);
    SendQueue queue(depth, 8);
    std::vector<std::byte> memory(1u << 20);
    for (std::byte& b : memory) b = static_cast<std::byte>(random.next());
    std::vector<std::byte> expected, seen;
    std::deque<std::pair<std::uint64_t, std::size_t>> open;  // context, end
    std::uint64_t context = 0;
    for (int round = 0; round < 3000; ++round) {
        if (queue.works_free() > 0 && random.chance(2, 3)) {
            std::array<Segment, Endpoint::max_segments> segments{};
            const std::size_t count = random.below(segments.size() + 1);
            std::vector<std::byte> payload;
            for (std::size_t i = 0; i < count; ++i) {
                const auto bytes = static_cast<std::uint32_t>(
                    random.chance(1, 2) ? random.below(300) : random.below(20000));
                segments[i] = {memory.data() + random.below(memory.size() - bytes), bytes};
                payload.insert(payload.end(), segments[i].data, segments[i].data + bytes);
            }
            FrameHeader header = send_header();
            const auto want =
                random.chance(1, 2) ? SendQueue::PayloadCrc::computed : SendQueue::PayloadCrc::none;
            queue.append(std::move(header), std::span(segments).first(count), want);
            queue.add_work({.context = ++context});
            header.payload_bytes = static_cast<std::uint32_t>(payload.size());
            if (want == SendQueue::PayloadCrc::computed && !payload.empty()) {
                header.flags = flag_payload_crc;
                header.payload_crc = crc32c(payload);
            }
            std::array<std::byte, header_bytes> bytes;
            emit_header(header, bytes.data());
            expected.insert(expected.end(), bytes.begin(), bytes.end());
            expected.insert(expected.end(), payload.begin(), payload.end());
            open.emplace_back(context, expected.size());
        } else {
            const auto part =
                drain(queue, random.chance(1, 2) ? random.below(100) : 1u << 20, alone_from);
            seen.insert(seen.end(), part.begin(), part.end());
            while (const auto work = queue.take_done()) {
                REQUIRE(!open.empty());
                REQUIRE(work->context == open.front().first);
                REQUIRE(open.front().second <= seen.size());
                open.pop_front();
            }
        }
    }
    while (queue.pending()) {
        const auto part = drain(queue, 1u << 20, alone_from);
        seen.insert(seen.end(), part.begin(), part.end());
    }
    CHECK(seen == expected);
}
