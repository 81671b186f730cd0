// ServerPath: the requests. From what arrived in a chunk to a ServerOp, and from its result to the
// answer that the client gets.

#include <algorithm>
#include <cstring>

#include "rtrs/base/assert.h"
#include "rtrs/core/server_path_inside.h"

namespace rtrs {

void ServerPath::completed(Connection& connection, const Completion& completion) {
    // Handled even when the connection went down before, because the slot waits for it.
    if (completion.opcode == CompletionOpcode::revoke) {
        return revoked(chunks_.slot(static_cast<std::uint32_t>(completion.context)));
    }
    if (completion.status != CompletionStatus::success) {
        if (completion.status != CompletionStatus::flushed) close("work failed");
        return;
    }
    switch (completion.opcode) {
        case CompletionOpcode::send:
            return sent(connection, completion.context);
        case CompletionOpcode::revoke:
            return;  // see above
        case CompletionOpcode::receive:
            if (completion.context == Connection::info_request_context)
                return info_request(completion);
            return close("unexpected message without immediate");
        case CompletionOpcode::receive_immediate:
            return received(connection, completion);
        case CompletionOpcode::receive_invalidate:
            return close("unexpected invalidation");
    }
}

void ServerPath::revoked(OpSlot& slot) {
    if (state_ == State::connected) {
        // Looked up first, because serving may free the slot.
        Connection& connection = *connections_[slot.connection];
        serve(slot);
        // The revoke had a place in the send queue, and may have been all that was in it.
        return post_waiting(connection);
    }
    slot.state = OpSlot::State::free;
    --running_;
    finish_if_done();
}

void ServerPath::received(Connection& connection, const Completion& completion) {
    if (state_ != State::connected) return;
    heartbeat_.received(environment_.clock.now());
    if (const auto error = connection.endpoint->post_receive(0, {})) {
        return close("cannot post a receive: " + error.message());
    }
    const auto immediate = codec_.decode(completion.immediate);
    if (immediate && immediate->type == ImmediateType::request) {
        return request_arrived(connection, *immediate);
    }
    if (!may_be_idle()) return close("a flood of messages that ask for nothing");
    if (!immediate) {
        if (immediate.error() == ParseError::immediate_type_unknown) return;  // as the kernel
        return close(text(immediate.error()));
    }
    switch (immediate->type) {
        case ImmediateType::request:
            return;  // see above
        case ImmediateType::heartbeat:
            return asked(connection);
        case ImmediateType::heartbeat_ack:
            return acknowledged();
        case ImmediateType::response:
        case ImmediateType::response_invalidated:
            return close("an answer from the client");
    }
}

// Messages that cost their sender nothing, not even a permit, would cost the server as much as
// requests do.
bool ServerPath::may_be_idle() noexcept {
    const Instant now = environment_.clock.now();
    if (now - idle_since_ >= std::chrono::seconds(1)) {
        idle_since_ = now;
        idle_messages_ = 0;
    }
    return ++idle_messages_ <= idle_messages_per_second;
}

void ServerPath::request_arrived(Connection& connection, const Immediate& immediate) {
    if (!last_reason_.empty()) return;  // ending: the client sends it again elsewhere or later
    OpSlot& slot = chunks_.slot(immediate.permit);
    slots_used_ = std::max(slots_used_, immediate.permit + 1);
    if (slot.state != OpSlot::State::free) return close("a permit was used twice at a time");
    if (immediate.offset >= chunks_.chunk_bytes())
        return close(text(ParseError::offset_out_of_range));
    if (!sequenced()) {
        owner_.arrived_unnumbered(*this, immediate.permit);
        if (state_ != State::connected) return;
    }
    slot.path = this;
    slot.connection = connection.id;
    slot.offset = immediate.offset;
    ++running_;
    if (windows_) {
        slot.state = OpSlot::State::revoking;
        const auto result =
            connection.endpoint->post_revoke({windows_.get(), immediate.permit}, immediate.permit);
        if (result == RevokeResult::pending) return;
    }
    serve(slot);
}

std::uint32_t ServerPath::permit_of(const OpSlot& slot) const noexcept {
    return static_cast<std::uint32_t>(&slot - &chunks_.slot(0));
}

void ServerPath::serve(OpSlot& slot) {
    if (holds_) {
        slot.state = OpSlot::State::held;
        return held_.push_back(&slot);
    }
    slot.state = OpSlot::State::running;
    slot.answer_buffer = 0;
    const std::uint32_t permit = permit_of(slot);
    std::byte* chunk = chunks_.chunk(permit);
    const RequestPlace place{.offset = slot.offset,
                             .chunk_bytes = chunks_.chunk_bytes(),
                             .user_bytes_max = limits::user_message_bytes_max,
                             .sequenced = sequenced()};
    // Makes private copies: without always_invalidate, or over another path, the client can still
    // write to the chunk while we look at it.
    std::byte copy[request_message_bytes_max];
    const std::size_t copied = place.copy_bytes();
    std::memcpy(copy, chunk + slot.offset, copied);
    RequestMessage& request = slot.request;
    if (const auto refusal = RequestMessage::parse({copy, copied}, place, request)) {
        return refuse(slot, *refusal);
    }
    count(request);
    static_cast<Attempt&>(slot) = {.sequence = request.sequence,
                                   .has_response_data = request.destination.has_value()};
    std::memcpy(slot.message, chunk + request.data_bytes, request.user_bytes);

    ServerOp& op = slot.op;
    op.session_ = &session_;
    op.slot_ = &slot;
    op.permit_ = PermitId{permit};
    op.direction_ = request.kind == RequestKind::read ? Direction::read : Direction::write;
    op.message_ = {slot.message, request.user_bytes};
    op.data_ = {chunk, request.data_bytes};
    owner_.request(*this, slot);
}

void ServerPath::count(const RequestMessage& request) noexcept {
    const std::uint64_t bytes = request.data_bytes + request.user_bytes;
    if (request.kind == RequestKind::read) {
        ++counters_.reads;
        counters_.read_bytes += bytes;
    } else {
        ++counters_.writes;
        counters_.write_bytes += bytes;
    }
}

void ServerPath::make_wait(OpSlot& slot) {
    slot.state = OpSlot::State::waiting;
    waiting_.push_back(&slot);
}

void ServerPath::run(OpSlot& slot) noexcept {
    RTRS_ASSERT(slot.state == OpSlot::State::waiting);
    slot.state = OpSlot::State::running;
    std::erase(waiting_, &slot);
}

// Serving one may begin to hold them again, or end the path, which drops them.
void ServerPath::go_on() {
    holds_ = false;
    asks_for_owner_ = false;
    while (!held_.empty() && !holds_) {
        OpSlot& slot = *held_.front();
        held_.erase(held_.begin());
        serve(slot);
    }
}

std::vector<std::uint32_t> ServerPath::waiting_permits() const {
    std::vector<std::uint32_t> permits;
    for (const OpSlot* slot : waiting_) permits.push_back(permit_of(*slot));
    return permits;
}

void ServerPath::drop_held() {
    for (OpSlot* slot : held_) {
        slot->state = OpSlot::State::free;
        --running_;
    }
    held_.clear();
}

void ServerPath::drop_waiting() {
    for (OpSlot* slot : waiting_) {
        owner_.no_longer_waits(*this, *slot);
        slot->state = OpSlot::State::free;
        --running_;
    }
    waiting_.clear();
}

void ServerPath::refuse(OpSlot& slot, const RequestRefusal& refusal) {
    if (const auto times = bad_requests_.happened(environment_.clock.now())) {
        trace(TraceLevel::warning,
              std::string("bad request: ") + text(refusal.why) + how_often(*times));
    }
    slot.request = RequestMessage{};
    if (refusal.invalidate) {
        slot.request.kind = RequestKind::read;
        slot.request.invalidation = Invalidation::needed;
        slot.request.destination = BufferDescriptor{.key = *refusal.invalidate};
    }
    if (refusal.answer_errno == 0) close(text(refusal.why));
    respond(slot, from_errno(refusal.answer_errno != 0 ? refusal.answer_errno : EINVAL), 0);
}

void ServerPath::end(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes) {
    respond(slot, error, produced_bytes);
    owner_.ended(*this, slot, to_errno(error));
}

bool ServerPath::use_answer_buffer(OpSlot& slot) {
    RTRS_ASSERT(slot.state == OpSlot::State::running && slot.answer_buffer == 0);
    if (state_ != State::connected || slot.op.direction_ != Direction::read) return false;
    // A device that sends by itself reads memory past the processor's cache.
    const Endpoint& endpoint = *connections_[slot.connection]->endpoint;
    if (endpoint.source_release() == Endpoint::SourceRelease::by_completion) return false;
    if (!answer_buffers_.make(*memory_.domain, chunks_.chunk_bytes())) return false;
    const auto number = answer_buffers_.take();
    if (!number) return false;
    slot.answer_buffer = static_cast<std::uint8_t>(*number + 1);
    slot.op.data_ = {answer_buffers_.data(*number), slot.op.data_.size()};
    return true;
}

void ServerPath::respond(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes) {
    RTRS_ASSERT(slot.state == OpSlot::State::running && slot.path == this);
    const auto& destination = slot.request.destination;
    slot.answer_error = to_errno(error);
    slot.answer_bytes = error || !destination ? 0 : std::min(destination->bytes, produced_bytes);
    slot.rebound = false;
    slot.state = OpSlot::State::answering;
    if (state_ != State::connected) return answer_posted(slot);
    Connection& connection = *connections_[slot.connection];
    const auto failed = connection.waiting.empty() ? post_answer(slot) : from_errno(ENOBUFS);
    if (failed == std::errc::no_buffer_space && !connection.waiting.full()) {
        return connection.waiting.push(&slot);
    }
    if (failed) close("cannot post an answer: " + failed.message());
    answer_posted(slot);
}

// The answer was posted, or given up with its path.
void ServerPath::answer_posted(OpSlot& slot) {
    // A buffer that is still held here was not sent with the answer, so it is free at once.
    if (slot.answer_buffer != 0) answer_buffers_.give_back(slot.answer_buffer - 1u);
    slot.answer_buffer = 0;
    slot.state = OpSlot::State::free;
    --running_;
    if (state_ == State::connected && !last_reason_.empty() && running_ == 0) say_last_words();
    finish_if_done();
}

// A completion has made room.
void ServerPath::post_waiting(Connection& connection) {
    while (!connection.waiting.empty() && state_ == State::connected) {
        OpSlot& slot = *connection.waiting.front();
        const auto failed = post_answer(slot);
        if (failed == std::errc::no_buffer_space) return;
        if (failed) return close("cannot post an answer: " + failed.message());
        connection.waiting.pop();
        answer_posted(slot);
    }
}

void ServerPath::sent(Connection& connection, std::uint64_t context) {
    if (context == Connection::last_words_context && --last_words_ == 0) return close(last_reason_);
    if (context == Connection::info_response_context) {
        control_region_.reset();
        control_memory_ = {};
    }
    if (context - Connection::answer_buffer_context < AnswerBuffers::count) {
        answer_buffers_.give_back(
            static_cast<std::uint32_t>(context - Connection::answer_buffer_context));
    }
    // Before the path serves, only its own binds complete.
    if (state_ == State::connecting) return bind_windows();
    post_waiting(connection);
    if (connection.last_word_waits) say_last_word(connection);
}

std::error_code ServerPath::post_answer(OpSlot& slot) {
    const int error = slot.answer_error;
    const std::uint32_t data_bytes = slot.answer_bytes;
    const std::uint32_t permit = permit_of(slot);
    Connection& connection = *connections_[slot.connection];
    const RequestMessage& request = slot.request;
    if (windows_ && !slot.rebound) {
        if (const auto failed = renew_key(connection, permit)) return failed;
        slot.rebound = true;
    }
    AnswerChain chain;
    const bool invalidate =
        request.invalidation == Invalidation::needed && request.destination.has_value();
    const std::uint32_t immediate =
        invalidate ? codec_.response_invalidated(permit, error) : codec_.response(permit, error);
    const Segment data{slot.op.data_.data(), data_bytes};
    RemoteBuffer target{};
    if (data_bytes > 0)
        target = {request.destination->address, request.destination->key, data_bytes};

    if (!windows_ && !invalidate && sequenced()) {
        // Data and answer in one write, which our own clients accept.
        WorkRequest& both = chain.add(WorkOpcode::write_immediate);
        if (data_bytes > 0) both.local = {&data, 1};
        both.remote = target;
        both.immediate = immediate;
        return post_chain(connection, slot, chain.works());
    }
    if (data_bytes > 0) {
        WorkRequest& write = chain.add(WorkOpcode::write);
        write.local = {&data, 1};
        write.remote = target;
    }
    if (invalidate) {
        chain.add(WorkOpcode::send_invalidate).invalidate = request.destination->key;
    }
    const MutableBytes body = chunks_.key_response(permit);
    const Segment key{body.data(), KeyResponseMessage::wire_bytes};
    WorkRequest& answer =
        chain.add(windows_ ? WorkOpcode::send_immediate : WorkOpcode::write_immediate);
    answer.immediate = immediate;
    if (windows_) {
        KeyResponseMessage{.permit = static_cast<std::uint16_t>(permit),
                           .key = windows_->key(permit)}
            .emit(body);
        answer.local = {&key, 1};
    }
    return post_chain(connection, slot, chain.works());
}

// The last work request of the chain is the answer itself.
std::error_code ServerPath::post_chain(Connection& connection, OpSlot& slot,
                                       std::span<WorkRequest> chain) {
    connection.looks_left = Connection::looks_behind_answer;
    WorkRequest& last = chain.back();
    // The bind posted before it counts too.
    last.signal =
        connection.signals.next(static_cast<std::uint32_t>(chain.size()) + (windows_ ? 1 : 0));
    const bool from_buffer = slot.answer_buffer != 0 && slot.answer_bytes > 0;
    if (!from_buffer || planted(PlantedBug::answer_buffer_early)) return connection.post(chain);
    // The completion of this request frees the buffer.
    last.signal = Signal::completion;
    last.context = Connection::answer_buffer_context + slot.answer_buffer - 1u;
    connection.signals.signalled();
    const std::error_code error = connection.post(chain);
    if (!error) slot.answer_buffer = 0;
    return error;
}

// To be called before the answer is posted, which tells the fresh key.
std::error_code ServerPath::renew_key(Connection& connection, std::uint32_t permit) {
    const Segment chunk{chunks_.chunk(permit), chunks_.chunk_bytes()};
    const WorkRequest bind{.opcode = WorkOpcode::bind_window,
                           .local = {&chunk, 1},
                           .window = {windows_.get(), permit}};
    return connection.post({&bind, 1});
}

}  // namespace rtrs
