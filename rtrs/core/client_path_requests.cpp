// ClientPath: the requests. How one is posted, and how its result is handled: its answer, and the
// key of its chunk for the next request.

#include <algorithm>
#include <cstring>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/core/client_path_inside.h"
#include "rtrs/wire/request.h"

namespace rtrs {
namespace {

// Context of a send whose completion is waited for: this bit and the permit.
constexpr std::uint64_t sent_context = std::uint64_t{1} << 32;

}  // namespace

void ClientPath::post(const PathRequest& request) {
    RTRS_ASSERT(connected());
    Connection& connection = *connections_[request.connection];
    const std::error_code error =
        connection.waiting.empty() ? try_post(connection, request) : from_errno(ENOBUFS);
    if (!error) return;
    if (error == std::errc::no_buffer_space && !connection.waiting.full()) {
        return connection.waiting.push(request);
    }
    // The loss is reported in a coming turn: nothing may happen to the path inside submit().
    trace(TraceLevel::warning, "cannot post a request: " + error.message());
    connection.endpoint->disconnect();
}

// A completion has made room.
void ClientPath::post_waiting(Connection& connection) {
    while (!connection.waiting.empty() && connected() && !connection.disconnecting &&
           !reads_to_the_end()) {
        const std::error_code error = try_post(connection, connection.waiting.front());
        if (error == std::errc::no_buffer_space) return;
        if (error) return fail(error, "cannot post a request");
        connection.waiting.pop();
    }
}

std::error_code ClientPath::try_post(Connection& connection, const PathRequest& request) {
    const BufferDescriptor& chunk = chunks_[request.permit];
    std::byte* message = request.header + request.message_bytes;
    const auto user_bytes = static_cast<std::uint16_t>(request.message_bytes);
    WorkRequest work{.opcode = WorkOpcode::write_immediate};
    Segment segments[2];
    std::size_t count = 0;
    std::uint32_t message_bytes = 0;
    std::uint64_t at = 0;  // offset of the posted data in the chunk
    if (request.direction == Direction::write) {
        WriteMessage{.user_bytes = user_bytes}.emit({message, WriteMessage::wire_bytes});
        message_bytes = WriteMessage::wire_bytes;
        if (request.payload_bytes > 0) segments[count++] = request.payload;
    } else {
        ReadMessage read{.user_bytes = user_bytes};
        if (request.payload_bytes > 0) {
            read.destination = BufferDescriptor{.address = request.target.address,
                                                .key = request.target.key,
                                                .bytes = request.payload_bytes};
        }
        message_bytes = static_cast<std::uint32_t>(read.wire_bytes());
        read.emit({message, message_bytes});
        at = request.payload_bytes;
    }
    if (sequenced()) {
        emit_sequence(request.sequence, message + message_bytes);
        message_bytes += sequence_bytes;
    }
    segments[count++] = {request.header, request.message_bytes + message_bytes};
    work.local = {segments, count};
    work.remote = {.address = chunk.address + at, .key = chunk.key, .bytes = 0};
    work.immediate = codec_.request(request.permit, request.payload_bytes + request.message_bytes);
    const Endpoint& endpoint = *connection.endpoint;
    const std::uint32_t bytes =
        request.message_bytes + message_bytes + (count > 1 ? segments[0].bytes : 0);
    const bool in_use = endpoint.source_release() == Endpoint::SourceRelease::by_completion &&
                        bytes > endpoint.copied_bytes_max();
    if (in_use) work.context = sent_context | request.permit;
    work.signal = in_use ? Signal::completion : connection.signals.next(1);
    if (const auto error = connection.endpoint->post({&work, 1})) {
        connection.signals.not_posted();
        return error;
    }
    if (in_use) connection.signals.signalled();
    sending_[request.permit] = {.under_way = in_use, .answered = false, .error = 0};
    return {};
}

void ClientPath::sent(Connection& connection, std::uint64_t context) {
    if (context == Connection::info_request_context) {
        control_used(connection);
    } else if ((context & sent_context) != 0) {
        const auto permit = static_cast<std::uint32_t>(context & ~sent_context);
        const Sending sending = std::exchange(sending_[permit], {});
        if (sending.answered) tell_answer(connection, permit, sending.error);
    }
    post_waiting(connection);
}

void ClientPath::tell_answer(Connection& connection, std::uint32_t permit, int error) {
    if (!owner_.answered(*this, connection.id, permit, error)) {
        fail(Error::protocol, "an answer that nobody waits for");
    }
}

void ClientPath::completed(Connection& connection, const Completion& completion) {
    if (completion.status != CompletionStatus::success) {
        // Flushes follow a disconnect, which has already told the reason.
        if (completion.status != CompletionStatus::flushed) {
            fail(completion.status == CompletionStatus::remote_access
                     ? make_error_code(Error::remote_access)
                     : make_error_code(Error::path_lost),
                 "work failed");
        }
        return;
    }
    switch (completion.opcode) {
        case CompletionOpcode::send:
            return sent(connection, completion.context);
        case CompletionOpcode::revoke:
            return;  // no windows here
        case CompletionOpcode::receive:
        case CompletionOpcode::receive_immediate:
        case CompletionOpcode::receive_invalidate:
            received(connection, completion);
            return;
    }
}

void ClientPath::received(Connection& connection, const Completion& completion) {
    if (completion.opcode == CompletionOpcode::receive_immediate &&
        ImmediateCodec::is_heartbeat(completion.immediate))
        heartbeat_.asked(environment_.clock.now());
    else
        heartbeat_.received(environment_.clock.now());
    if (completion.context == Connection::info_response_context) {
        if (completion.opcode == CompletionOpcode::receive)
            return info_response(connection, completion);
        return fail(Error::protocol, "expected the info response first");
    }
    // Only between info response and disconnect: what comes later belongs to nobody.
    if (machine_.state() != PathState::connected && !waits()) return;
    if (completion.opcode == CompletionOpcode::receive) {
        return fail(Error::protocol, "unexpected message without immediate");
    }
    if (completion.opcode == CompletionOpcode::receive_invalidate) {
        return repost(connection, completion);
    }
    const auto immediate = codec_.decode(completion.immediate);
    if (!immediate) {
        if (immediate.error() != ParseError::immediate_type_unknown) {
            return fail(Error::protocol, text(immediate.error()));
        }
        return repost(connection, completion);  // as the kernel: ignored
    }
    switch (immediate->type) {
        case ImmediateType::request:
            return fail(Error::protocol, "a request from the server");
        case ImmediateType::response:
        case ImmediateType::response_invalidated:
            return answer(connection, completion, *immediate);
        case ImmediateType::heartbeat:
            repost(connection, completion);
            return post_heartbeat(ImmediateCodec::heartbeat_ack());
        case ImmediateType::heartbeat_ack:
            connection.asked = false;
            repost(connection, completion);
            if (connection.id == 0 && connected()) {
                ++answered_;
                owner_.latency_measured(*this, heartbeat_.acknowledged(environment_.clock.now()));
            }
            return;
    }
}

void ClientPath::answer(Connection& connection, const Completion& completion,
                        const Immediate& immediate) {
    answers_are_late_ = false;
    // It says as much as an answer to the question, which a server whose send queue is full of
    // answers leaves out. If another request is late, it is asked again.
    connection.asked = false;
    if (connection.asks_network) {
        connection.asks_network = false;
        connection.endpoint->ask_network(false);
    }
    if (key_renewal_ == KeyRenewal::every_answer &&
        !renew_key(connection, completion, immediate.permit)) {
        return;
    }
    repost(connection, completion);
    if (immediate.permit < sending_.size() && sending_[immediate.permit].under_way) {
        Sending& sending = sending_[immediate.permit];
        if (sending.answered) return fail(Error::protocol, "a second answer to one request");
        sending.answered = true;
        sending.error = immediate.error;
        return;
    }
    tell_answer(connection, immediate.permit, immediate.error);
}

bool ClientPath::renew_key(Connection& connection, const Completion& completion,
                           std::uint32_t permit) {
    std::byte* body =
        connection.receive_memory.data() + completion.context * Connection::small_receive_bytes;
    // The rest of the buffer behind a shorter send does not come from the peer.
    const std::size_t bytes =
        std::min<std::size_t>(completion.bytes, Connection::small_receive_bytes);
    KeyResponseMessage response;
    const auto refusal = KeyResponseMessage::parse({body, bytes}, geometry_.queue_depth, response);
    if (refusal || response.permit != permit) {
        fail(Error::protocol, refusal ? text(*refusal) : "a key for another permit");
        return false;
    }
    chunks_[permit].key = response.key;
    // A write with immediate leaves the buffer unchanged: its old content must not be taken for
    // this answer again.
    std::memset(body, 0, Connection::small_receive_bytes);
    return true;
}

void ClientPath::repost(Connection& connection, const Completion& completion) {
    const Segment buffer{
        connection.receive_memory.data() + completion.context * Connection::small_receive_bytes,
        Connection::small_receive_bytes};
    if (const auto error = connection.endpoint->post_receive(completion.context, buffer)) {
        fail(error, "cannot post a receive");
    }
}

}  // namespace rtrs
