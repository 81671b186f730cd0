#include "rtrs/core/server_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/message_service.h"
#include "rtrs/core/send_signals.h"
#include "rtrs/limits.h"
#include "rtrs/wire/info.h"

namespace rtrs {
namespace {

// Contexts of work and receives that are not requests.
constexpr std::uint64_t info_request_context = UINT64_MAX;
constexpr std::uint64_t last_words_context = UINT64_MAX - 1;
constexpr std::uint64_t info_response_context = UINT64_MAX - 2;
// Windows bound before the completion of their binds is waited for: a send queue that takes those
// of all chunks would be paid for as long as the path lives.
constexpr std::uint32_t binds_at_a_time = 16;
// Those before the path serves; then heartbeats, their answers, the info response, last words.
constexpr std::uint32_t send_queue_reserve = 64;
static_assert(binds_at_a_time + 1 <= Endpoint::send_queue_depth_least);
// Work requests of one answer: bind, write, invalidate, answer.
constexpr std::uint32_t answer_work_max = 4;
// A permit's next answer may be posted before its last one has completed: see ClientPath::dial().
constexpr std::uint32_t answers_per_permit = 2;
constexpr std::uint32_t queue_entries_max = 65535;

std::size_t round_to_page(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

struct ServerPath::Connection final : EndpointHandler {
    Connection(ServerPath& its_path, std::uint16_t its_id) : path(its_path), id(its_id) {}

    void on_established(Bytes) override { established = true; }
    void on_rejected(Bytes) override { path.close("connection rejected"); }
    void on_completion(const Completion& completion) override { path.completed(*this, completion); }
    void on_disconnected(std::error_code reason) override {
        path.close(reason == Error::closed_by_peer ? reason.message()
                   : reason                        ? "connection lost: " + reason.message()
                                                   : "connection closed");
    }
    void on_drained() override {
        endpoint.reset();
        path.drained();
    }

    ServerPath& path;
    std::uint16_t id;
    bool established = false;
    bool disconnecting = false;
    std::unique_ptr<Endpoint> endpoint;
    SendSignals signals;
    // Answers for which the send queue had no place, oldest first: a ring.
    LazyArray<OpSlot*> waiting;
    std::size_t waiting_first = 0;
    std::size_t waiting_count = 0;
    bool last_word_waits = false;
};

ServerPath::ServerPath(SessionEnvironment environment, const ServerOptions& options,
                       ServerPathIdentity identity, ServerSession& session, ServerMemory memory,
                       ServerPathOwner& owner)
    : environment_(environment),
      options_(options),
      identity_(std::move(identity)),
      label_(session.id().text().substr(0, 8) + "/" + identity_.remote_address),
      session_(session),
      memory_(std::move(memory)),
      chunks_(options.queue_depth, options.chunk_bytes),
      owner_(owner),
      codec_(options.queue_depth),
      // A client sends heartbeats whatever it hears, the kernel's as well.
      heartbeat_(options.heartbeat_interval, options.heartbeat_timeout, std::nullopt,
                 Heartbeat::Asks::in_silence),
      heartbeat_timer_(environment.clock, this,
                       [](void* self) { static_cast<ServerPath*>(self)->beat(); }),
      half_open_timer_(
          environment.clock, this,
          [](void* self) {
              RTRS_RARE(half_open_expired);
              static_cast<ServerPath*>(self)->close("no info request within the half-open timeout");
          }),
      last_words_timer_(environment.clock, this,
                        [](void* self) { static_cast<ServerPath*>(self)->last_words_overdue(); }),
      finish_timer_(environment.clock, this,
                    [](void* self) {
                        auto& path = *static_cast<ServerPath*>(self);
                        path.owner_.path_closed(path);
                    }),
      since_(environment.clock.now()),
      connections_(identity_.connection_count) {
    half_open_timer_.arm(since_ + options.half_open_timeout);
}

ServerPath::~ServerPath() { RTRS_ASSERT(state_ == State::closed); }

void ServerPath::trace(TraceLevel level, std::string_view text) {
    environment_.tracer.trace(level, "rtrs.path", label_, text);
}

std::error_code ServerPath::prepare() { return chunks_ ? std::error_code{} : from_errno(ENOMEM); }

std::error_code ServerPath::register_chunks() {
    // With always_invalidate only the windows open it to the client.
    const Access access =
        always_invalidates() ? Access::local : Access::local | Access::remote_write;
    auto region = memory_.domain->register_memory(chunks_.memory(), access);
    if (!region) return region.error();
    chunk_region_ = std::move(*region);
    auto keys = memory_.domain->register_memory(chunks_.key_responses(), Access::local);
    if (!keys) return keys.error();
    key_region_ = std::move(*keys);
    return {};
}

std::error_code ServerPath::accept(std::unique_ptr<ConnectRequest> request,
                                   const ConnectRequestMessage& message) {
    RTRS_ASSERT(message.connection_id < connections_.size());
    auto& place = connections_[message.connection_id];
    if (place) return from_errno(EEXIST);
    const ChunkGeometry geometry{.queue_depth = options_.queue_depth,
                                 .chunk_bytes = options_.chunk_bytes,
                                 .io_bytes_max = options_.chunk_bytes - options_.header_bytes,
                                 .header_bytes_max = options_.header_bytes};
    std::byte private_data[ConnectResponseMessage::wire_bytes];
    ConnectResponseMessage::accept(geometry, identity_.key_renewal, identity_.features)
        .emit(private_data);

    const bool service = message.connection_id == 0;
    const std::uint32_t requests = service ? limits::service_queue_depth : options_.queue_depth;
    const EndpointOptions endpoint_options{
        .send_queue_depth =
            std::min(answers_per_permit * answer_work_max * requests + send_queue_reserve,
                     queue_entries_max),
        .receive_queue_depth = requests + (service ? 1 : 0),
        .worker = identity_.worker + message.connection_id,
        .silence_max = silence_max_beside(options_.heartbeat_timeout)};
    auto connection = std::make_unique<Connection>(*this, message.connection_id);
    auto endpoint = request->accept(*memory_.domain, private_data, endpoint_options, *connection);
    if (!endpoint) return endpoint.error();
    connection->endpoint = std::move(*endpoint);
    connection->waiting = LazyArray<OpSlot*>(options_.queue_depth);
    const bool has_memory = static_cast<bool>(connection->waiting);
    place = std::move(connection);
    if (!has_memory) return from_errno(ENOMEM);
    if (!service) return {};
    control_memory_ = LazyMemory(round_to_page(std::max(
        InfoRequestMessage::wire_bytes, InfoResponseMessage::wire_bytes(options_.queue_depth))));
    if (!control_memory_) return from_errno(ENOMEM);
    auto region = memory_.domain->register_memory(control_memory_.bytes(), Access::local);
    if (!region) return region.error();
    control_region_ = std::move(*region);
    return place->endpoint->post_receive(info_request_context,
                                         {control_memory_.data(), InfoRequestMessage::wire_bytes});
}

std::error_code ServerPath::accept_messages(ConnectRequest& request,
                                            const ConnectRequestMessage& message) {
    if (state_ != State::connected || !last_reason_.empty() ||
        !has(identity_.features, Feature::messages) ||
        message.reconnect_count != identity_.reconnect_count) {
        return from_errno(ECONNRESET);
    }
    if (link_ && !link_->drained()) {
        // The client has given that one up, whatever this side thinks of it.
        link_->disconnect();
        return from_errno(ECONNRESET);
    }
    link_ = std::make_unique<MessageLink>(
        owner_.messages(), *this, *memory_.fabric,
        MessageLink::Carried{identity_.worker, silence_max_beside(options_.heartbeat_timeout)});
    std::byte private_data[ConnectResponseMessage::wire_bytes];
    ConnectResponseMessage{.features = identity_.features}.emit(private_data);
    const auto error = link_->accept(request, private_data);
    if (error) link_->disconnect();
    return error;
}

void ServerPath::message_link_lost(MessageLink&, WasUp was_up, std::string_view why) {
    if (was_up == WasUp::yes) close("the connection of messages: " + std::string(why));
}

void ServerPath::message_link_drained(MessageLink&) { finish_if_done(); }

void ServerPath::completed(Connection& connection, const Completion& completion) {
    // Also when the connection went down before: the slot's owner waits for it.
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
            if (completion.context == info_request_context) return info_request(completion);
            return close("unexpected message without immediate");
        case CompletionOpcode::receive_immediate:
            return received(connection, completion);
        case CompletionOpcode::receive_invalidate:
            return close("unexpected invalidation");
    }
}

void ServerPath::revoked(OpSlot& slot) {
    if (state_ == State::connected) return serve(slot);
    slot.state = OpSlot::State::free;
    --running_;
    finish_if_done();
}

void ServerPath::info_request(const Completion& completion) {
    if (state_ != State::connecting) return;
    const auto message = InfoRequestMessage::parse({control_memory_.data(), completion.bytes});
    if (!message) return close(text(message.error()));
    const bool complete = std::ranges::all_of(
        connections_, [](const auto& connection) { return connection && connection->endpoint; });
    if (!complete) return close("info request before all connections were there");
    const InfoRequestMessage who{message->session_name, sequenced() ? message->identity : 0,
                                 sequenced() ? message->life : 0};
    if (const auto refusal = owner_.accept_name(*this, who)) {
        return close(refusal->why, refusal->level);
    }
    if (state_ != State::connecting) return;  // the layer above has ended the session
    label_ = message->session_name + "/" + identity_.remote_address;
    std::error_code error = register_chunks();
    if (!error) error = post_receives();
    if (!error && always_invalidates()) {
        auto windows = memory_.domain->create_windows(*chunk_region_, chunks_.count());
        if (windows) {
            windows_ = std::move(*windows);
        } else {
            error = windows.error();
        }
    }
    if (error) return close("cannot serve the path: " + error.message());
    bind_windows();
}

// The next when the last of these has completed.
void ServerPath::bind_windows() {
    Connection& service = *connections_[0];
    const std::uint32_t all = windows_ ? chunks_.count() : 0;
    const std::uint32_t until = std::min(windows_bound_ + binds_at_a_time, all);
    while (windows_bound_ < until) {
        const std::uint32_t permit = windows_bound_++;
        const Segment chunk{chunks_.chunk(permit), chunks_.chunk_bytes()};
        const WorkRequest bind{
            .opcode = WorkOpcode::bind_window,
            .signal = windows_bound_ == until ? Signal::completion : Signal::none,
            .local = {&chunk, 1},
            .window = {windows_.get(), permit}};
        if (const auto error = service.endpoint->post({&bind, 1})) {
            return close("cannot bind a window: " + error.message());
        }
    }
    if (windows_bound_ == all) serve_path();
}

void ServerPath::serve_path() {
    const auto error = send_info_response();
    if (error == std::errc::no_buffer_space) return;  // after the next completion
    if (error) return close("cannot serve the path: " + error.message());
    half_open_timer_.disarm();
    state_ = State::connected;
    since_ = environment_.clock.now();
    heartbeat_.start(since_);
    heartbeat_timer_.arm(*heartbeat_.deadline());
    trace(TraceLevel::info, "connected");
}

std::error_code ServerPath::post_receives() {
    for (const auto& connection : connections_) {
        const std::uint32_t count =
            connection->id == 0 ? limits::service_queue_depth : options_.queue_depth;
        for (std::uint32_t i = 0; i < count; ++i) {
            if (const auto error = connection->endpoint->post_receive(0, {})) return error;
        }
    }
    return {};
}

std::error_code ServerPath::send_info_response() {
    const MutableBytes to = control_memory_.bytes();
    std::uint16_t count = 1;
    if (!windows_) {
        const auto bytes = static_cast<std::uint32_t>(chunk_region_->bytes());
        InfoResponseMessage::emit_descriptor(0,
                                             {.address = chunk_region_->remote(0, bytes).address,
                                              .key = chunk_region_->key(),
                                              .bytes = bytes},
                                             to);
    } else {
        count = static_cast<std::uint16_t>(chunks_.count());
        for (std::uint32_t permit = 0; permit < count; ++permit) {
            const std::uint64_t offset = std::uint64_t{permit} * chunks_.chunk_bytes();
            InfoResponseMessage::emit_descriptor(
                permit,
                {.address = chunk_region_->remote(offset, chunks_.chunk_bytes()).address,
                 .key = windows_->key(permit),
                 .bytes = chunks_.chunk_bytes()},
                to);
        }
    }
    InfoResponseMessage::emit_header(count, to);
    const Segment segment{to.data(),
                          static_cast<std::uint32_t>(InfoResponseMessage::wire_bytes(count))};
    const WorkRequest work{.opcode = WorkOpcode::send,
                           .signal = Signal::completion,
                           .context = info_response_context,
                           .local = {&segment, 1}};
    return connections_[0]->endpoint->post({&work, 1});
}

void ServerPath::received(Connection& connection, const Completion& completion) {
    if (state_ != State::connected) return;
    heartbeat_.received(environment_.clock.now());
    if (const auto error = connection.endpoint->post_receive(0, {})) {
        return close("cannot post a receive: " + error.message());
    }
    const auto immediate = codec_.decode(completion.immediate);
    if (!immediate) {
        if (immediate.error() == ParseError::immediate_type_unknown) return;  // as the kernel
        return close(text(immediate.error()));
    }
    switch (immediate->type) {
        case ImmediateType::request:
            return request_arrived(connection, *immediate);
        case ImmediateType::heartbeat:
            return post_heartbeat(ImmediateCodec::heartbeat_ack());
        case ImmediateType::heartbeat_ack:
            heartbeat_.acknowledged(environment_.clock.now());
            return;
        case ImmediateType::response:
        case ImmediateType::response_invalidated:
            return close("an answer from the client");
    }
}

void ServerPath::request_arrived(Connection& connection, const Immediate& immediate) {
    if (!last_reason_.empty()) return;  // ending: the client sends it again elsewhere or later
    OpSlot& slot = chunks_.slot(immediate.permit);
    if (slot.state != OpSlot::State::free) return close("a permit was used twice at a time");
    if (immediate.offset >= chunks_.chunk_bytes())
        return close(text(ParseError::offset_out_of_range));
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
    slot.state = OpSlot::State::running;
    const std::uint32_t permit = permit_of(slot);
    std::byte* chunk = chunks_.chunk(permit);
    const RequestPlace place{.offset = slot.offset,
                             .chunk_bytes = chunks_.chunk_bytes(),
                             .user_bytes_max = server_user_message_bytes_max,
                             .sequenced = sequenced()};
    // Private copies: without always_invalidate, or over another path, the client can still write
    // to the chunk while we look at it.
    std::byte copy[request_message_bytes_max];
    const std::size_t copied = place.copy_bytes();
    std::memcpy(copy, chunk + slot.offset, copied);
    const auto request = RequestMessage::parse({copy, copied}, place);
    if (!request) return refuse(slot, request.error());
    slot.request = *request;
    count(*request);
    static_cast<Attempt&>(slot) = {.sequence = request->sequence,
                                   .has_response_data = request->destination.has_value()};
    std::memcpy(slot.message, chunk + request->data_bytes, request->user_bytes);

    ServerOp& op = slot.op;
    op.context = nullptr;
    op.session_ = &session_;
    op.slot_ = &slot;
    op.permit_ = PermitId{permit};
    op.direction_ = request->kind == RequestKind::read ? Direction::read : Direction::write;
    op.message_ = {slot.message, request->user_bytes};
    op.data_ = {chunk, request->data_bytes};
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

void ServerPath::drop_waiting() {
    for (OpSlot* slot : waiting_) {
        owner_.no_longer_waits(*this, *slot);
        slot->state = OpSlot::State::free;
        --running_;
    }
    waiting_.clear();
}

void ServerPath::refuse(OpSlot& slot, const RequestRefusal& refusal) {
    trace(TraceLevel::warning, std::string("bad request: ") + text(refusal.why));
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

void ServerPath::respond(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes) {
    RTRS_ASSERT(slot.state == OpSlot::State::running && slot.path == this);
    const auto& destination = slot.request.destination;
    slot.answer_error = to_errno(error);
    slot.answer_bytes = error || !destination ? 0 : std::min(destination->bytes, produced_bytes);
    slot.rebound = false;
    slot.state = OpSlot::State::answering;
    if (state_ != State::connected) return answer_posted(slot);
    Connection& connection = *connections_[slot.connection];
    const auto failed = connection.waiting_count > 0 ? from_errno(ENOBUFS) : post_answer(slot);
    if (failed == std::errc::no_buffer_space &&
        connection.waiting_count < connection.waiting.size()) {
        const std::size_t last = connection.waiting_first + connection.waiting_count++;
        connection.waiting[last % connection.waiting.size()] = &slot;
        return;
    }
    if (failed) close("cannot post an answer: " + failed.message());
    answer_posted(slot);
}

// Or given up with its path.
void ServerPath::answer_posted(OpSlot& slot) {
    slot.state = OpSlot::State::free;
    --running_;
    if (state_ == State::connected && !last_reason_.empty() && running_ == 0) say_last_words();
    finish_if_done();
}

// A completion has made room.
void ServerPath::post_waiting(Connection& connection) {
    while (connection.waiting_count > 0 && state_ == State::connected) {
        OpSlot& slot = *connection.waiting[connection.waiting_first];
        const auto failed = post_answer(slot);
        if (failed == std::errc::no_buffer_space) return;
        if (failed) return close("cannot post an answer: " + failed.message());
        connection.waiting_first = (connection.waiting_first + 1) % connection.waiting.size();
        --connection.waiting_count;
        answer_posted(slot);
    }
}

void ServerPath::sent(Connection& connection, std::uint64_t context) {
    if (context == last_words_context && --last_words_ == 0) return close(last_reason_);
    if (context == info_response_context) {
        control_region_.reset();
        control_memory_ = {};
    }
    // Only the path's own binds complete before it serves.
    if (state_ == State::connecting) return bind_windows();
    post_waiting(connection);
    if (connection.last_word_waits) say_last_word(connection);
}

std::error_code ServerPath::post_answer(OpSlot& slot) {
    const int error = slot.answer_error;
    const std::uint32_t data_bytes = slot.answer_bytes;
    const std::uint32_t permit = permit_of(slot);
    Connection& connection = *connections_[slot.connection];
    Endpoint& endpoint = *connection.endpoint;
    const RequestMessage& request = slot.request;
    WorkRequest chain[answer_work_max];
    std::size_t count = 0;

    const Segment chunk{chunks_.chunk(permit), chunks_.chunk_bytes()};
    if (windows_ && !slot.rebound) {
        // The fresh key must be known before the answer can be composed.
        const WorkRequest bind{.opcode = WorkOpcode::bind_window,
                               .local = {&chunk, 1},
                               .window = {windows_.get(), permit}};
        if (const auto failed = endpoint.post({&bind, 1})) {
            connection.signals.not_posted();
            return failed;
        }
        slot.rebound = true;
    }
    const bool invalidate =
        request.invalidation == Invalidation::needed && request.destination.has_value();
    const std::uint32_t immediate =
        invalidate ? codec_.response_invalidated(permit, error) : codec_.response(permit, error);
    const Segment data{chunks_.chunk(permit), data_bytes};
    RemoteBuffer target{};
    if (data_bytes > 0)
        target = {request.destination->address, request.destination->key, data_bytes};

    if (!windows_ && !invalidate && sequenced()) {
        // Data and answer in one write, which clients of our own take.
        chain[count++] = {.opcode = WorkOpcode::write_immediate,
                          .signal = connection.signals.next(1),
                          .local = {&data, data_bytes > 0 ? 1u : 0u},
                          .remote = target,
                          .immediate = immediate};
        const auto failed = endpoint.post({chain, count});
        if (failed) connection.signals.not_posted();
        return failed;
    }
    if (data_bytes > 0) {
        chain[count++] = {.opcode = WorkOpcode::write, .local = {&data, 1}, .remote = target};
    }
    if (invalidate) {
        chain[count++] = {.opcode = WorkOpcode::send_invalidate,
                          .invalidate = request.destination->key};
    }
    const MutableBytes body = chunks_.key_response(permit);
    const Segment key{body.data(), KeyResponseMessage::wire_bytes};
    if (!windows_) {
        chain[count++] = {.opcode = WorkOpcode::write_immediate, .immediate = immediate};
    } else {
        KeyResponseMessage{.permit = static_cast<std::uint16_t>(permit),
                           .key = windows_->key(permit)}
            .emit(body);
        chain[count++] = {
            .opcode = WorkOpcode::send_immediate, .local = {&key, 1}, .immediate = immediate};
    }
    // The bind before counts too.
    chain[count - 1].signal =
        connection.signals.next(static_cast<std::uint32_t>(count) + (windows_ ? 1 : 0));
    const auto failed = endpoint.post({chain, count});
    if (failed) connection.signals.not_posted();
    return failed;
}

void ServerPath::beat() {
    switch (heartbeat_.step(environment_.clock.now())) {
        case Heartbeat::Action::dead:
            return close("the client is silent");
        case Heartbeat::Action::send:
            post_heartbeat(ImmediateCodec::heartbeat());
            break;
        case Heartbeat::Action::none:
            break;
    }
    if (state_ == State::connected) heartbeat_timer_.arm(*heartbeat_.deadline());
}

void ServerPath::post_heartbeat(std::uint32_t immediate) {
    const WorkRequest work{.opcode = WorkOpcode::write_immediate,
                           .signal = connections_[0]->signals.next(1),
                           .immediate = immediate};
    if (const auto error = connections_[0]->endpoint->post({&work, 1})) {
        connections_[0]->signals.not_posted();
        // Full of answers: they say as much.
        if (error == std::errc::no_buffer_space) return;
        close("cannot post a heartbeat: " + error.message());
    }
}

void ServerPath::close_after_answers(std::string_view reason) {
    if (state_ != State::connected) return close(reason);
    if (!last_reason_.empty()) return;
    last_reason_ = reason;
    last_words_timer_.arm(environment_.clock.now() + options_.heartbeat_timeout);
    if (running_ == 0) say_last_words();
}

// The client takes nothing on one connection, and its heartbeats go over another.
void ServerPath::last_words_overdue() {
    const bool answers_wait = std::ranges::any_of(
        connections_, [](const auto& connection) { return connection->waiting_count > 0; });
    if (running_ == 0 || answers_wait) {
        return close(last_reason_);
    }
    // What takes its time is the storage: its answers are still promised.
    last_words_timer_.arm(environment_.clock.now() + options_.heartbeat_timeout);
}

// A heartbeat answer that nobody asked for, on every connection: once they have completed, all
// answers before them have left.
void ServerPath::say_last_words() {
    last_words_timer_.arm(environment_.clock.now() + options_.heartbeat_timeout);
    // A connection whose establishment has not been heard of was never answered on.
    const auto has_spoken = [](const auto& connection) { return connection->established; };
    last_words_ = static_cast<std::uint32_t>(std::ranges::count_if(connections_, has_spoken));
    for (const auto& connection : connections_) {
        if (has_spoken(connection)) say_last_word(*connection);
    }
}

void ServerPath::say_last_word(Connection& connection) {
    if (state_ != State::connected) return;
    const WorkRequest work{.opcode = WorkOpcode::write_immediate,
                           .signal = Signal::completion,
                           .context = last_words_context,
                           .immediate = ImmediateCodec::heartbeat_ack()};
    const auto error = connection.endpoint->post({&work, 1});
    connection.last_word_waits = error == std::errc::no_buffer_space;
    if (error && !connection.last_word_waits) close(last_reason_);
}

void ServerPath::close(std::string_view reason, TraceLevel level) {
    if (state_ == State::closing || state_ == State::closed) return;
    trace(level, "closing: " + std::string(reason));
    state_ = State::closing;
    since_ = environment_.clock.now();
    heartbeat_.stop();
    heartbeat_timer_.disarm();
    half_open_timer_.disarm();
    last_words_timer_.disarm();
    // All connections at once: nothing that is still queued on another one may run.
    for (const auto& connection : connections_) {
        if (connection && connection->endpoint && !connection->disconnecting) {
            connection->disconnecting = true;
            connection->endpoint->disconnect();
        }
    }
    if (link_) link_->disconnect();
    drop_waiting();
    for (const auto& connection : connections_) {
        if (!connection) continue;
        while (connection->waiting_count > 0) {
            connection->waiting[connection->waiting_first]->state = OpSlot::State::free;
            connection->waiting_first =
                (connection->waiting_first + 1) % connection->waiting.size();
            --connection->waiting_count;
            --running_;
        }
    }
    finish_if_done();
}

void ServerPath::drained() { finish_if_done(); }

void ServerPath::finish_if_done() {
    if (state_ != State::closing || running_ > 0) return;
    for (const auto& connection : connections_) {
        if (connection && connection->endpoint) return;
    }
    if (link_ && !link_->drained()) return;
    state_ = State::closed;
    for (std::uint32_t permit = 0; permit < chunks_.count(); ++permit) {
        void*& context = chunks_.slot(permit).chunk_context;
        if (context != nullptr) owner_.chunk_gone(std::exchange(context, nullptr));
    }
    // Not from inside respond() or an endpoint's event: the owner destroys this path.
    finish_timer_.arm(environment_.clock.now());
}

std::string ServerPath::id() const {
    return identity_.path_uuid.text() + "/" + std::to_string(identity_.reconnect_count);
}

ServerPathStatus ServerPath::status() const {
    static constexpr const char* names[] = {"connecting", "connected", "closing", "closed"};
    return {.id = id(),
            .local = identity_.local_address,
            .remote = identity_.remote_address,
            .fabric = memory_.fabric->name(),
            .state = names[static_cast<std::size_t>(state_)],
            .device = memory_.fabric->device(),
            .always_invalidate = always_invalidates(),
            .since = since_,
            .last_received = heartbeat_.last_received(),
            .connections = static_cast<std::uint32_t>(connections_.size()),
            .counters = counters_};
}

}  // namespace rtrs
