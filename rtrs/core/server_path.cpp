// ServerPath: its life cycle. Connections are accepted, info messages exchanged, heartbeats kept
// up. At the end the last answers are sent out and everything is taken down.

#include <algorithm>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/pages.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/message_service.h"
#include "rtrs/core/server_path_inside.h"
#include "rtrs/limits.h"
#include "rtrs/wire/info.h"

namespace rtrs {
namespace {

// How many windows are bound before their completion is waited for. A send queue for the binds of
// all chunks would cost memory as long as the path lives.
constexpr std::uint32_t binds_at_a_time = 16;
// For the binds before the path serves; then for heartbeats, their answers, the info response, last
// words.
constexpr std::uint32_t send_queue_reserve = 64;
static_assert(binds_at_a_time + 1 <= Endpoint::send_queue_depth_least);
// A permit's next answer may be posted before its last one has completed: see ClientPath::dial().
constexpr std::uint32_t answers_per_permit = 2;

// The errors by which devices report that they cannot bind a window; no peer can cause them.
bool is_of_a_bind(std::error_code reason) noexcept {
    return reason == std::errc::operation_not_supported ||
           reason == std::errc::function_not_supported || reason == std::errc::invalid_argument ||
           reason == std::errc::bad_address;
}

std::uint32_t io_receives(std::uint32_t queue_depth) noexcept {
    return std::min(queue_depth + limits::io_heartbeat_receives, Endpoint::queue_depth_max);
}

}  // namespace

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
      // Every client, also a kernel's, sends heartbeats whatever it hears.
      heartbeat_(options.heartbeat_interval,
                 sequenced()
                     ? options.heartbeat_timeout
                     : std::max(options.heartbeat_timeout, options.kernel_heartbeat_timeout),
                 std::nullopt, Heartbeat::Asks::in_silence),
      heartbeat_timer_(environment.clock, this, member_call<&ServerPath::beat>),
      half_open_timer_(
          environment.clock, this,
          [](void* self) {
              RTRS_RARE(half_open_expired);
              static_cast<ServerPath*>(self)->close(
                  "no further connection or info request within the half-open timeout");
          }),
      last_words_timer_(environment.clock, this, member_call<&ServerPath::last_words_overdue>),
      finish_timer_(environment.clock, this,
                    [](void* self) {
                        auto& path = *static_cast<ServerPath*>(self);
                        path.owner_.path_closed(path);
                    }),
      since_(environment.clock.now()),
      connections_(identity_.connection_count),
      last_accept_(since_) {}

ServerPath::~ServerPath() { RTRS_ASSERT(state_ == State::closed); }

void ServerPath::trace(TraceLevel level, std::string_view text) {
    environment_.tracer.trace(level, "rtrs.path", label_, text);
}

std::error_code ServerPath::prepare() { return chunks_ ? std::error_code{} : from_errno(ENOMEM); }

std::error_code ServerPath::register_chunks() {
    // With always_invalidate only the windows give the client access.
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

std::error_code ServerPath::accept(ConnectRequest& request, const ConnectRequestMessage& message) {
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
    auto connection = std::make_unique<Connection>(*this, message.connection_id);
    const EndpointOptions endpoint_options{
        .send_queue_depth = std::min(
            answers_per_permit * Connection::answer_work_max * requests + send_queue_reserve,
            Endpoint::queue_depth_max),
        .receive_queue_depth = service ? requests + 1 : io_receives(options_.queue_depth),
        .worker = place_for(request, *connection),
        .silence_max = silence_max_beside(options_.heartbeat_timeout),
        // The client may have sent again over another path what has not been handed out here yet.
        // Without sequence numbers that would run after whatever followed the second attempt.
        .end_news =
            sequenced() ? EndpointOptions::EndNews::in_order : EndpointOptions::EndNews::at_once};
    auto endpoint = request.accept(*memory_.domain, private_data, endpoint_options, *connection);
    if (!endpoint) return endpoint.error();
    connection->endpoint = std::move(*endpoint);
    connection->waiting = LazyQueue<OpSlot*>(options_.queue_depth);
    const bool has_memory = static_cast<bool>(connection->waiting);
    place = std::move(connection);
    ++accepted_;
    last_accept_ = environment_.clock.now();
    if (!has_memory) return from_errno(ENOMEM);
    half_open_timer_.arm(environment_.clock.now() + options_.half_open_timeout);
    if (!service) return {};
    control_memory_ = LazyMemory(round_to_page(std::max(
        InfoRequestMessage::wire_bytes, InfoResponseMessage::wire_bytes(options_.queue_depth))));
    if (!control_memory_) return from_errno(ENOMEM);
    auto region = memory_.domain->register_memory(control_memory_.bytes(), Access::local);
    if (!region) return region.error();
    control_region_ = std::move(*region);
    return place->endpoint->post_receive(Connection::info_request_context,
                                         {control_memory_.data(), InfoRequestMessage::wire_bytes});
}

// The worker that is to carry it. The service connection has next to nothing to do.
std::uint32_t ServerPath::place_for(const ConnectRequest& request, Connection& connection) {
    const auto nearest = connection.id == 0 ? std::nullopt : request.nearest_worker();
    if (!nearest) return identity_.worker + connection.id;
    WorkerShares& shares = owner_.worker_shares();
    connection.place =
        connection.id == 1 ? shares.near(nearest->number, nearest->of) : shares.idlest(nearest->of);
    return connection.place.worker();
}

std::error_code ServerPath::accept_messages(ConnectRequest& request,
                                            const ConnectRequestMessage& message) {
    if (state_ != State::connected || !last_reason_.empty() ||
        !has(identity_.features, Feature::messages) ||
        message.reconnect_count != identity_.reconnect_count) {
        return from_errno(ECONNRESET);
    }
    if (link_ && !link_->drained()) {
        // The client has given that link up, whatever this side thinks of it.
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

void ServerPath::message_link_lost(MessageLink&, WasUp was_up, std::error_code reason,
                                   std::string_view why) {
    if (was_up == WasUp::no) {
        // The path goes on without a link, and its client may dial another one.
        if (reason == Error::protocol)
            trace(TraceLevel::warning, std::string(why) + ": " + reason.message());
        return;
    }
    close(reason == Error::closed_by_peer ? reason.message()
                                          : std::string(why) + ": " + reason.message());
}

void ServerPath::message_link_drained(MessageLink&) { finish_if_done(); }

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
        return close(refusal->why, refusal->level, refusal->told);
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

// Binds the next windows when the last of these binds has completed. The path serves when all are
// bound: only then it is known that the device can bind windows.
void ServerPath::bind_windows() {
    Connection& service = *connections_[0];
    const std::uint32_t all = windows_ ? chunks_.count() : 0;
    if (windows_bound_ == all) return serve_path();
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
            connection->id == 0 ? limits::service_queue_depth : io_receives(options_.queue_depth);
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
                           .context = Connection::info_response_context,
                           .local = {&segment, 1}};
    return connections_[0]->endpoint->post({&work, 1});
}

void ServerPath::beat() {
    switch (heartbeat_.step(environment_.clock.now())) {
        case Heartbeat::Action::dead:
            return close("the client is silent");
        case Heartbeat::Action::send:
            post_heartbeat(*connections_[0], ImmediateCodec::heartbeat());
            break;
        case Heartbeat::Action::none:
            break;
    }
    if (state_ == State::connected) heartbeat_timer_.arm(*heartbeat_.deadline());
}

void ServerPath::asked(Connection& by) {
    const Instant now = environment_.clock.now();
    if (now - judged_at_ >= options_.heartbeat_interval / 4) {
        judged_at_ = now;
        for (const auto& connection : connections_) {
            if (!takes_nothing(*connection, now)) continue;
            return close("the client asks, but takes no answer on connection " +
                             std::to_string(connection->id) + ": large packets lost on the way?",
                         TraceLevel::warning, from_errno(ETIMEDOUT));
        }
    }
    const bool over_each = has(identity_.features, Feature::connection_heartbeats);
    post_heartbeat(over_each ? by : *connections_[0], ImmediateCodec::heartbeat_ack());
}

// The client lives, and its heartbeats arrive. But if answers are being retransmitted at two
// heartbeats, with nothing acknowledged in between, they do not arrive: the network loses large
// packets, or one of several connections. The client sees only that an answer is late; without this
// check TCP would go on trying for silence_max.
bool ServerPath::takes_nothing(Connection& connection, Instant now) const {
    if (connection.looks_left == 0) return false;
    const Duration silence = connection.endpoint->unacknowledged();
    std::optional<Instant>& since = connection.takes_nothing_since;
    if (silence == Duration::zero()) {
        --connection.looks_left;
        since.reset();
    } else if (!since || silence < now - *since) {
        since = now;
    }
    return since && now - *since >= options_.heartbeat_interval / 2;
}

bool ServerPath::post_heartbeat(Connection& over, std::uint32_t immediate) {
    const WorkRequest work{.opcode = WorkOpcode::write_immediate,
                           .signal = over.signals.next(1),
                           .immediate = immediate};
    if (const auto error = over.post({&work, 1})) {
        // The send queue is full of answers, which say as much as a heartbeat.
        if (error != std::errc::no_buffer_space)
            close("cannot post a heartbeat: " + error.message());
        return false;
    }
    if (immediate == ImmediateCodec::heartbeat()) ++questions_;
    return true;
}

void ServerPath::ask() {
    asks_for_owner_ = post_heartbeat(*connections_[0], ImmediateCodec::heartbeat());
}

void ServerPath::acknowledged() {
    heartbeat_.acknowledged(environment_.clock.now());
    if (++answers_ == questions_ && std::exchange(asks_for_owner_, false)) owner_.lives(*this);
}

void ServerPath::close_after_answers(std::string_view reason) {
    if (state_ != State::connected) return close(reason);
    if (!last_reason_.empty()) return;
    last_reason_ = reason;
    last_words_timer_.arm(environment_.clock.now() + options_.heartbeat_timeout);
    if (running_ == 0) say_last_words();
}

// The client may take nothing on one connection while its heartbeats go over another.
void ServerPath::last_words_overdue() {
    const bool answers_wait = std::ranges::any_of(
        connections_, [](const auto& connection) { return !connection->waiting.empty(); });
    if (running_ == 0 || answers_wait) {
        return close(last_reason_);
    }
    // It is the storage that takes its time: its answers are still owed.
    last_words_timer_.arm(environment_.clock.now() + options_.heartbeat_timeout);
}

// Posts an empty write on every connection: once these have completed, all answers before them have
// left. The client does not notice it. It would notice any message: a kernel client warns of
// heartbeats, and of their answers, that do not come over connection 0.
void ServerPath::say_last_words() {
    last_words_timer_.arm(environment_.clock.now() + options_.heartbeat_timeout);
    // No answer was ever sent on a connection whose establishment has not been reported.
    const auto has_spoken = [](const auto& connection) { return connection->established; };
    last_words_ = static_cast<std::uint32_t>(std::ranges::count_if(connections_, has_spoken));
    for (const auto& connection : connections_) {
        if (has_spoken(connection)) say_last_word(*connection);
    }
}

void ServerPath::say_last_word(Connection& connection) {
    if (state_ != State::connected) return;
    const WorkRequest work{.opcode = WorkOpcode::write,
                           .signal = Signal::completion,
                           .context = Connection::last_words_context};
    const auto error = connection.endpoint->post({&work, 1});
    connection.last_word_waits = error == std::errc::no_buffer_space;
    if (error && !connection.last_word_waits) close(last_reason_);
}

void ServerPath::close(std::string_view reason, TraceLevel level, std::error_code told) {
    if (state_ == State::closing || state_ == State::closed) return;
    trace(level, "closing: " + std::string(reason));
    state_ = State::closing;
    since_ = environment_.clock.now();
    heartbeat_.stop();
    heartbeat_timer_.disarm();
    half_open_timer_.disarm();
    last_words_timer_.disarm();
    // If the last answers, or a word for the client, are still on their way, they must not be lost
    // by a reset.
    const bool answers_are_behind = !last_reason_.empty();
    // All connections at once: nothing that is still queued on another one may run.
    for (const auto& connection : connections_) {
        if (connection && connection->endpoint && !connection->disconnecting) {
            connection->disconnecting = true;
            answers_are_behind || told ? connection->endpoint->finish(told)
                                       : connection->endpoint->disconnect();
        }
    }
    if (link_) link_->disconnect();
    drop_held();
    drop_waiting();
    for (const auto& connection : connections_) {
        if (!connection) continue;
        for (; !connection->waiting.empty(); connection->waiting.pop()) {
            connection->waiting.front()->state = OpSlot::State::free;
            --running_;
        }
    }
    finish_if_done();
}

void ServerPath::connection_ended(std::error_code reason) {
    if (state_ == State::connecting && windows_bound_ > 0 && is_of_a_bind(reason)) {
        owner_.windows_not_bound(*this);
        return close("a memory window cannot be bound: " + reason.message());
    }
    close(reason == Error::closed_by_peer ? reason.message()
          : reason                        ? "connection lost: " + reason.message()
                                          : "connection closed");
}

bool ServerPath::drained() const noexcept {
    return (!link_ || link_->drained()) &&
           std::ranges::none_of(connections_, [](const auto& connection) {
               return connection && connection->endpoint;
           });
}

bool ServerPath::only_operations_left() const noexcept {
    return state_ == State::closing && running_ > 0 && drained();
}

void ServerPath::finish_if_done() {
    if (state_ != State::closing || running_ > 0 || !drained()) return;
    state_ = State::closed;
    for (std::uint32_t permit = 0; permit < slots_used_; ++permit) {
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
            .last_received = std::max(since_, heartbeat_.last_received()),
            .connections = static_cast<std::uint32_t>(connections_.size()),
            .counters = counters_};
}

}  // namespace rtrs
