// Any request under any session: a request that is let through is within every limit, and every
// reply that it can get is well-formed.
#include <array>
#include <cstdint>
#include <vector>

#include "rnbd-client/nbd/transmission.h"
#include "rtrs/base/assert.h"
#include "tests/unit/rnbd-client/nbd_bytes.h"

using namespace rnbd::nbd;

namespace {

Session session_of(const std::byte* from) {
    Session session;
    session.transmission_flags = rtrs::load_be16(from);
    session.size_bytes = rtrs::load_be64(from + 2) >> (rtrs::load_u8(from + 10) % 64);
    session.block_bytes_min = 1u << (rtrs::load_u8(from + 11) % 17);
    session.payload_bytes_max = session.block_bytes_min << (rtrs::load_u8(from + 12) % 10);
    session.structured_replies = rtrs::load_u8(from + 13) & 1;
    session.allocation_context = rtrs::load_u8(from + 13) & 2;
    return session;
}

void check_reply(Bytes reply, const Request& request, bool structured) {
    const std::uint32_t magic = rtrs::load_be32(reply.data());
    RTRS_ASSERT(rtrs::load_be64(reply.data() + 8) == request.cookie);
    if (magic == simple_reply_magic) {
        RTRS_ASSERT(reply.size() == simple_reply_bytes);
        RTRS_ASSERT(!structured || request.command != Command::read);
        return;
    }
    RTRS_ASSERT(magic == chunk_magic && structured);
    const std::uint32_t payload = rtrs::load_be32(reply.data() + 16);
    const auto type = static_cast<Chunk>(rtrs::load_be16(reply.data() + 6));
    const std::size_t follows = type == Chunk::offset_data ? request.length : 0;
    RTRS_ASSERT(reply.size() + follows == chunk_header_bytes + payload);
}

void check_allowed(const Request& request, const Session& session) {
    if (request.command == Command::disconnect) return;
    RTRS_ASSERT(static_cast<std::uint16_t>(request.command) <= 7);
    if (request.command == Command::flush) return;
    RTRS_ASSERT(request.offset <= session.size_bytes);
    RTRS_ASSERT(request.length <= session.size_bytes - request.offset);
    RTRS_ASSERT(request.offset % session.block_bytes_min == 0);
    RTRS_ASSERT(payload_bytes(request) <= session.payload_bytes_max);
    if (session.transmission_flags & transmission_flag::read_only) {
        RTRS_ASSERT(payload_bytes(request) == 0);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t session_bytes = 16;
    if (size < session_bytes + request_bytes) return 0;
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    const Session session = session_of(bytes);
    std::vector<std::byte> copy(bytes + session_bytes, bytes + session_bytes + request_bytes);
    if (data[session_bytes - 1] != 0) rtrs::store_be32(copy.data(), request_magic);
    const auto request = parse_request(copy.data());
    if (!request) return 0;
    std::array<std::byte, request_bytes> again;
    emit_request(again.data(), *request);
    RTRS_ASSERT(std::equal(again.begin(), again.end(), copy.begin()));

    std::array<std::byte, 256> space;
    const auto reply = [&](std::size_t used) {
        check_reply(Bytes(space).first(used), *request, session.structured_replies);
    };
    const Refusal refusal = check(*request, session);
    if (refusal.error != NbdError::none) {
        reply(emit_error(space, *request, session, refusal.error, refusal.text));
        return 0;
    }
    check_allowed(*request, session);
    const NbdError error = to_nbd_error(rtrs::from_errno(data[14]), *request);
    if (error != NbdError::none) {
        reply(emit_error(space, *request, session, error, "failed"));
        if (session.structured_replies) {
            reply(emit_error_at(space, *request, error, request->offset, "failed"));
        }
    } else if (request->command == Command::read && request->length > 0) {
        reply(emit_read(space, *request, session));
    } else if (request->command == Command::block_status) {
        BlockStatusWriter writer(space, 1 + data[14] % block_status_extents_max(space.size()),
                                 *request);
        for (std::size_t i = session_bytes + request_bytes; i < size; ++i) {
            if (!writer.add(std::uint64_t{1} << (data[i] >> 2), data[i] & 3)) break;
        }
        reply(writer.finish());
    } else {
        reply(emit_done(space, *request, session));
    }
    return 0;
}
