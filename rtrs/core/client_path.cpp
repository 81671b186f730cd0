// ClientPath: its life cycle. It is connected (client_path_handshake.cpp), its heartbeats are kept
// up, and everything is taken down and started again.

#include <algorithm>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/planted.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/client_path_inside.h"
#include "rtrs/core/duration_text.h"

namespace rtrs {
namespace {

// How long to wait for the answers and the ends of the other connections, once the peer has ended
// one in an orderly way: about a retransmission.
constexpr Duration last_answers_timeout = std::chrono::milliseconds(200);

// The list of the server's chunks comes at once, or has trouble on the way.
constexpr Duration chunks_timeout = std::chrono::seconds(1);
// A kernel's server answers nothing on the first connection, not even heartbeats, while it opens a
// device: its handler runs where completions are taken. Its own client waits this long for
// it. SOURCE: rnbd_srv_rdma_ev() of Linux 6.12, drivers/block/rnbd/rnbd-srv.c.
constexpr Duration busy_timeout = kernel_heartbeat_timeout;

}  // namespace

std::string label_of(const PathAddress& address) {
    if (!address.label.empty()) return address.label;
    return address.source.empty() ? address.destination
                                  : address.source + "@" + address.destination;
}

ClientPath::ClientPath(SessionEnvironment environment, const ClientSessionOptions& options,
                       const PathAddress& address, const Uuid& session_uuid, FabricMemory& memory,
                       ClientPathOwner& owner)
    : environment_(environment),
      options_(options),
      address_(address),
      label_(options.name + "/" + label_of(address)),
      path_uuid_(Uuid::random(environment.random)),
      session_uuid_(session_uuid),
      memory_(memory),
      owner_(owner),
      machine_({.connect_timeout = options.connect_timeout,
                .delay_min = options.reconnect_delay_min,
                .delay_max = options.reconnect_delay_max,
                .attempts_max = options.reconnect_attempts_max},
               environment.random),
      heartbeat_(options.heartbeat_interval, options.heartbeat_timeout,
                 std::min(options.probe_timeout, options.heartbeat_timeout)),
      machine_timer_(
          environment.clock, this,
          [](void* self) { static_cast<ClientPath*>(self)->handle(PathMachine::Event::deadline); }),
      heartbeat_timer_(environment.clock, this, member_call<&ClientPath::beat>),
      last_answers_timer_(environment.clock, this, member_call<&ClientPath::last_answers_overdue>),
      connection_count_(static_cast<std::uint16_t>(options.io_connections + 1)),
      link_timer_(environment.clock, this, member_call<&ClientPath::dial_messages>) {}

ClientPath::~ClientPath() {
    for (const auto& connection : connections_) RTRS_ASSERT(!connection->endpoint);
    RTRS_ASSERT(!link_ || link_->drained());
}

void ClientPath::trace(TraceLevel level, std::string_view text) {
    environment_.tracer.trace(level, "rtrs.path", label_, text);
}

void ClientPath::handle(PathMachine::Event event) {
    if (event == PathMachine::Event::deadline && waits() &&
        environment_.clock.now() >= *machine_.deadline()) {
        doubt_.begins_anew();
        event = PathMachine::Event::join;
    }
    if (event == PathMachine::Event::deadline && machine_.deadline() &&
        machine_.state() != PathState::backoff &&
        environment_.clock.now() >= *machine_.deadline()) {
        note_failure(Error::timed_out, "cannot connect: no answer within the connect timeout",
                     TraceLevel::info);
    }
    const PathState before = machine_.state();
    const auto actions = machine_.step(event, environment_.clock.now(),
                                       owner_.any_path_connected() ? PathMachine::OtherPaths::usable
                                                                   : PathMachine::OtherPaths::none);
    if (machine_.state() == PathState::backoff && before != PathState::backoff) trace_backoff();
    if (machine_.state() != before) {
        trace(TraceLevel::debug,
              std::string(to_string(before)) + " -> " + to_string(machine_.state()));
    }
    if (const auto deadline = machine_.deadline()) {
        machine_timer_.arm(*deadline);
    } else {
        machine_timer_.disarm();
    }
    apply(actions);
}

void ClientPath::apply(PathMachine::Actions actions) {
    if ((actions & PathMachine::dial) != 0) {
        connections_.clear();
        link_.reset();
        ++reconnect_count_;
        waits_ = false;
        asked_ = answered_ = 0;
        // While another path is up the session must exist already: a server that was restarted
        // would create a new one, so that there would be two sessions without the owner knowing. (A
        // kernel client sets the flag on every reconnect.)
        first_connection_ =
            owner_.any_path_connected() ? FirstConnection::no : FirstConnection::yes;
        if (first_connection_ == FirstConnection::yes) owner_.session_dialled();
        dial(0);
    }
    if ((actions & PathMachine::send_info_request) != 0) send_info_request();
    if ((actions & PathMachine::path_up) != 0) {
        reason_ = {};
        reason_text_.clear();
        heartbeat_.start(environment_.clock.now());
        heartbeat_timer_.arm(*heartbeat_.deadline());
        trace(TraceLevel::info, "connected");
        if (has_messages()) link_timer_.arm(environment_.clock.now());
        owner_.path_up(*this);
    }
    if ((actions & PathMachine::path_down) != 0) {
        heartbeat_.stop();
        heartbeat_timer_.disarm();
        last_answers_timer_.disarm();
        // Without a failure this side ended it: the session's end, or the operator.
        owner_.path_down(*this, reason_ ? reason_ : make_error_code(Error::closed));
    }
    if ((actions & PathMachine::disconnect) != 0) disconnect_all();
    if ((actions & PathMachine::hand_back) != 0) owner_.path_drained(*this);
    if ((actions & PathMachine::report_closed) != 0) {
        trace_closed();
        owner_.path_closed(*this);
    }
}

// A server that ends in an orderly way sends all answers that it owes, over all connections, before
// it ends the first connection. But the connections are read one after the other, and their data
// arrives in any order. Nothing is sent meanwhile: data that meets a closed socket there makes the
// server drop what it has still to say.
void ClientPath::peer_ended(std::error_code reason, std::string_view what) {
    // A connection that was in the middle of something ends without goodbye.
    const bool orderly = reason == Error::closed_by_peer ||
                         (reads_to_the_end() && reason == std::errc::connection_reset);
    const auto is_open = [](const auto& connection) { return !connection->ended; };
    if (!connected() || !orderly) return fail(reason, what);
    if (std::ranges::none_of(connections_, is_open)) return last_answers_overdue();
    if (reads_to_the_end()) return;
    const Duration timeout = std::min(last_answers_timeout, options_.heartbeat_timeout);
    last_answers_timer_.arm(environment_.clock.now() + timeout);
    owner_.path_ending(*this);
}

void ClientPath::last_answers_overdue() { fail(Error::closed_by_peer, "connection lost"); }

void ClientPath::fail(std::error_code reason, std::string_view what) {
    const PathState state = machine_.state();
    if (state == PathState::connected || state == PathState::connecting ||
        state == PathState::exchanging) {
        const bool orderly = state == PathState::connected && reason == Error::closed_by_peer;
        // An orderly end is no reason for a warning; what it means to the session is logged by the
        // session.
        const bool alarming = state == PathState::connected && !orderly;
        note_failure(reason,
                     orderly ? reason.message() : std::string(what) + ": " + reason.message(),
                     alarming ? TraceLevel::warning : TraceLevel::info);
    }
    handle(PathMachine::Event::failed);
}

// The text of the error would only say what the server has done, so it is not logged.
void ClientPath::cannot_use(const Unusable& server) {
    note_failure(server.error, "cannot use the server: " + server.why, TraceLevel::warning);
    handle(PathMachine::Event::failed);
}

void ClientPath::note_failure(std::error_code reason, std::string text, TraceLevel level) {
    doubt_packets(reason);
    reason_ = reason;
    // A server that is down is logged once, not once per attempt.
    reason_is_news_ = connected() || text != reason_text_;
    if (reason_is_news_) trace(level, text);
    reason_text_ = std::move(text);
    if (reason_is_news_ && !connected()) owner_.path_not_connected(*this, reason_, reason_text_);
}

EndpointOptions::Packets ClientPath::packets() const noexcept {
    return doubt_.small() ? EndpointOptions::Packets::small : EndpointOptions::Packets::full;
}

void ClientPath::doubt_packets(std::error_code reason) {
    if (!address_.fabric->limits_packets()) return;
    const PathState state = machine_.state();
    if (state != PathState::exchanging && state != PathState::connected) return doubt_.failed();
    const Instant now = environment_.clock.now();
    // If so, small packets are lost as well: a pause of the network, of the server or of this
    // process.
    const bool all_is_silent = state == PathState::connected && reason == Error::timed_out;
    const bool timed_out = reason == Error::timed_out || reason == std::errc::timed_out;
    // The server, which waits too, may be the first to give up. A reset, or an unreachable network,
    // does not count as silence, however late an answer was: that was slow storage, and then
    // something else.
    const bool gave_up = answers_are_late_ && reason == Error::closed_by_peer;
    const bool no_chunks =
        state == PathState::exchanging && !chunks_came_ && now - machine_.since() >= chunks_timeout;
    const bool silent = !all_is_silent && (timed_out || no_chunks || gave_up);
    if (doubt_.ended(silent ? PacketDoubt::End::silent : PacketDoubt::End::told, now)) {
        RTRS_RARE(small_packets);
        trace(TraceLevel::warning,
              "it answers at once, but is silent when it has data to carry: large packets seem to "
              "be lost on the way (a wrong MTU?); it is dialled for small ones now");
    }
}

void ClientPath::trace_backoff() {
    const std::string next =
        "next attempt in " + duration_text(*machine_.deadline() - environment_.clock.now());
    if (machine_.held_back()) {
        trace(TraceLevel::warning, machine_.hold_reason() + ", " + next);
    } else if (std::exchange(reason_is_news_, false)) {
        trace(TraceLevel::info, next);
    }
}

void ClientPath::trace_closed() {
    switch (machine_.close_cause()) {
        case PathMachine::CloseCause::gave_up:
            trace(TraceLevel::warning,
                  "given up after " + std::to_string(machine_.failures()) + " failed attempts");
            return;
        case PathMachine::CloseCause::none:
        case PathMachine::CloseCause::asked:
        case PathMachine::CloseCause::disconnected:
            trace(TraceLevel::info, "closed");
            return;
    }
}

void ClientPath::beat() {
    switch (heartbeat_.step(environment_.clock.now())) {
        case Heartbeat::Action::dead:
            if (reads_to_the_end()) return last_answers_overdue();  // the server has said why
            return fail(Error::timed_out,
                        heartbeat_.probing()
                            ? "the server is silent, also when probed for a late answer"
                            : "the server is silent");
        case Heartbeat::Action::send:
            post_heartbeat(ImmediateCodec::heartbeat());
            break;
        case Heartbeat::Action::none:
            break;
    }
    if (connected()) heartbeat_timer_.arm(*heartbeat_.deadline());
}

void ClientPath::user_message_is_under_way(bool is_so) {
    if (sequenced() || !connected()) return;
    heartbeat_.is_busy(is_so ? busy_timeout : Duration::zero());
    heartbeat_timer_.arm(*heartbeat_.deadline());
}

bool ClientPath::can_be_probed() const noexcept {
    return connected() && !heartbeat_.probing() && !heartbeat_.is_busy();
}

bool ClientPath::probe() {
    if (!can_be_probed()) return false;
    answers_are_late_ = true;
    ask();
    return true;
}

void ClientPath::ask() {
    if (!can_be_probed()) return;
    heartbeat_.probe(environment_.clock.now());
    beat();
}

void ClientPath::doubt_connection(std::uint16_t connection) {
    if (!connected() || reads_to_the_end()) return;
    Connection& late = *connections_[connection];
    if (!std::exchange(late.asks_network, true)) late.endpoint->ask_network(true);
    if (late.asked || !has(features_, Feature::connection_heartbeats)) return;
    if (planted(PlantedBug::connection_unasked)) return;
    if (post_heartbeat(late, ImmediateCodec::heartbeat())) return;  // no room: try next time
    late.asked = true;
    late.asked_there.reset();
}

Instant ClientPath::judge_connection(std::uint16_t connection, Duration silence) {
    if (!connected() || reads_to_the_end()) return Instant::max();
    if (heartbeat_.probing()) return environment_.clock.now() + silence;
    Connection& late = *connections_[connection];
    if (late.endpoint->unacknowledged() >= silence) {
        fail(from_errno(ETIMEDOUT),
             "one of its connections, from " + late.endpoint->local_address() + ", is silent");
        return Instant::max();
    }
    return late.asked ? judge_question(late) : Instant::max();
}

// Everything that is sent is taken, and nothing comes back, not even the answer to a heartbeat,
// which does not wait for storage: a proxy or a tunnel on the way keeps it, or only answers are
// lost. As long as anything still moves, this side waits patiently.
Instant ClientPath::judge_question(Connection& late) {
    const Instant now = environment_.clock.now();
    const Duration timeout = options_.heartbeat_timeout;
    const Duration quiet = late.endpoint->quiet();
    if (quiet > Duration::zero() && !late.asked_there) late.asked_there = now;
    const Duration since = late.asked_there ? std::min(quiet, now - *late.asked_there) : quiet;
    if (!late.asked_there || since < timeout) return now + timeout - since;
    fail(from_errno(ETIMEDOUT), "one of its connections, from " + late.endpoint->local_address() +
                                    ", answers nothing, though the server answers on another: "
                                    "answers are lost, or something on the way keeps either");
    return Instant::max();
}

std::error_code ClientPath::reconnect() {
    const PathState state = machine_.state();
    if (state == PathState::connecting || state == PathState::exchanging ||
        state == PathState::closing) {
        return from_errno(EBUSY);
    }
    if (state == PathState::connected) reason_text_ = "reconnect by the operator";
    reason_is_news_ = false;
    trace(TraceLevel::info, "reconnect by the operator");
    doubt_.forget();
    handle(PathMachine::Event::reconnect);
    return {};
}

std::error_code ClientPath::disconnect() {
    reason_text_ = "disconnected by the operator";
    if (!closed()) trace(TraceLevel::info, reason_text_);
    handle(PathMachine::Event::disconnect);
    return {};
}

void ClientPath::post_heartbeat(std::uint32_t immediate) {
    if (reads_to_the_end()) return;
    const auto error = post_heartbeat(*connections_[0], immediate);
    // The send queue is full of requests: their answers say as much as a heartbeat's answer would.
    if (error && error != std::errc::no_buffer_space) fail(error, "cannot post a heartbeat");
}

std::error_code ClientPath::post_heartbeat(Connection& connection, std::uint32_t immediate) {
    const WorkRequest work{.opcode = WorkOpcode::write_immediate,
                           .signal = connection.signals.next(1),
                           .immediate = immediate};
    const auto error = connection.endpoint->post({&work, 1});
    if (error) connection.signals.not_posted();
    if (!error && connection.id == 0 && immediate == ImmediateCodec::heartbeat()) ++asked_;
    return error;
}

void ClientPath::disconnect_all() {
    bool any = false;
    link_timer_.disarm();
    if (link_ && !link_->drained()) {
        any = true;
        link_->disconnect();
    }
    for (const auto& connection : connections_) {
        if (!connection->endpoint) continue;
        any = true;
        if (!connection->disconnecting) {
            connection->disconnecting = true;
            connection->endpoint->disconnect();
        }
    }
    if (!any) handle(PathMachine::Event::drained);
}

void ClientPath::drained() {
    const PathState state = machine_.state();
    if (state != PathState::draining && state != PathState::closing) {
        // A fabric may report the end of a connection by on_drained alone only after a rejection,
        // which has already failed the path; anything else is a broken promise (P4).
        return;
    }
    for (const auto& connection : connections_) {
        if (connection->endpoint) return;
    }
    if (link_ && !link_->drained()) return;
    handle(PathMachine::Event::drained);
}

PathStatus ClientPath::status() const {
    PathStatus status{.label = std::string(address_label()),
                      .id = path_uuid_.text(),
                      .source = address_.source,
                      .destination = address_.destination,
                      .fabric = address_.fabric->name(),
                      .device = address_.fabric->device(),
                      .local_host = local_host_,
                      .state = machine_.state(),
                      .reason = reason_text_,
                      .error = reason_,
                      .since = machine_.since(),
                      .next_attempt = {},
                      .fails_at = {},
                      .attempts = machine_.failures(),
                      .reconnects = machine_.connects() > 0 ? machine_.connects() - 1 : 0,
                      .attempts_failed = machine_.failures_total(),
                      .latency = heartbeat_.latency(),
                      .dead_at = connected() ? heartbeat_.dead_at() : std::nullopt,
                      .priority = address_.priority};
    if (machine_.held_back()) status.reason = machine_.hold_reason() + "; " + reason_text_;
    if (connected() && doubt_.small()) {
        status.reason = "small packets only: large ones seem to be lost on the way";
    }
    if (connected() && reads_to_the_end()) {
        status.reason = "the server ends it: only its last answers are awaited";
        const Instant overdue = last_answers_timer_.deadline();
        status.dead_at = std::min(status.dead_at.value_or(overdue), overdue);
    }
    const bool waits = machine_.state() == PathState::backoff;
    (waits ? status.next_attempt : status.fails_at) = machine_.deadline();
    const bool dials = machine_.state() == PathState::connecting && dial_ends_;
    if (dials && status.fails_at) status.fails_at = std::min(*status.fails_at, *dial_ends_);
    return status;
}

}  // namespace rtrs
