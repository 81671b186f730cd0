#include "rtrs/fabric/sim/sim_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rtrs/base/assert.h"

namespace rtrs::sim {

Connection::Connection(Network& network, Process& dialler, const Ends& ends, Bytes private_data,
                       EndpointOptions::Packets packets)
    : network_(network), number_(network.next_connection()), packets_(packets) {
    network_.add(*this);
    sides_[0].address = ends.dialled_from;
    sides_[0].address_id = network.id(ends.dialled_from.host);
    sides_[0].process = &dialler;
    sides_[1].address = ends.dialled_to;
    sides_[1].address_id = network.id(ends.dialled_to.host);
    std::ranges::copy(private_data, request_.begin());
    request_bytes_ = pad(private_data.size(), request_.size());
    const auto& own = dialler.host().addresses();
    // As bind(2) would refuse it.
    if (std::ranges::find(own, ends.dialled_from.host) == own.end()) {
        sides_[0].address_id = Network::nowhere;
    }
    if (sides_[0].address_id != Network::nowhere && sides_[1].address_id != Network::nowhere) {
        send(0, {.kind = Message::Kind::connect});
        schedule(world().now() + world().options().connect_timeout, Event::dial_timeout, 0);
    } else {
        schedule(world().now() + world().draw_delay(), Event::unreachable, 0);
    }
}

Connection::~Connection() { network_.remove(*this); }

void Connection::release() {
    RTRS_ASSERT(holds_ > 0);
    if (--holds_ > 0) return;
    for (Side& side : sides_) {
        while (!side.messages.queue.empty()) {
            Message message = side.messages.queue.pop_front();
            drop(message);
        }
    }
    delete this;
}

// rdma_cm shows the receiver a field of fixed size; sockets show what was sent. Callers must live
// with both.
std::size_t Connection::pad(std::size_t bytes, std::size_t room) {
    return world().random().chance(1, 2) ? room : bytes;
}

void Connection::set_reply(Bytes private_data) {
    RTRS_ASSERT(private_data.size() <= reply_.size());
    std::ranges::copy(private_data, reply_.begin());
    reply_bytes_ = pad(private_data.size(), reply_.size());
}

void Connection::schedule(Instant at, Event event, SideIndex side, std::uint32_t generation) {
    hold();
    world().schedule(at, *this,
                     (static_cast<std::uint64_t>(generation) << 16) |
                         (static_cast<std::uint64_t>(event) << 1) | side);
}

void Connection::on_event(std::uint64_t argument) {
    const SideIndex side = argument & 1;
    const auto event = static_cast<Event>((argument >> 1) & 0x7fff);
    const auto generation = static_cast<std::uint32_t>(argument >> 16);
    world().mix(number_);
    // The event's own hold keeps the connection until all of this is over.
    switch (event) {
        case Event::message:
            on_message(side);
            break;
        case Event::answer:
            on_answer(side);
            break;
        case Event::message_timeout:
            on_timeout(side,
                       sides_[side].messages.blocked && sides_[side].messages.blocks == generation);
            break;
        case Event::answer_timeout:
            on_timeout(side,
                       sides_[side].answers.blocked && sides_[side].answers.blocks == generation);
            break;
        case Event::turn:
        case Event::drain:
        case Event::dial_timeout:
        case Event::unreachable:
        case Event::revoke:
            on_endpoint_event(event, side);
            break;
    }
    release();
}

void Connection::on_endpoint_event(Event event, SideIndex side) {
    SimEndpoint* endpoint = sides_[side].endpoint;
    if (endpoint == nullptr || !sides_[side].process->alive()) return;
    const Instant stalled_until = sides_[side].process->host().stalled_until();
    if (stalled_until > world().now()) {
        schedule(stalled_until, event, side);
        return;
    }
    const bool dials = endpoint->state() == SimEndpoint::State::dialling ||
                       endpoint->state() == SimEndpoint::State::accepting;
    if (event == Event::drain) endpoint->drain();
    if (event == Event::revoke) endpoint->complete_revoke();
    if (event == Event::dial_timeout && dials) endpoint->fail({.reason = from_errno(ETIMEDOUT)});
    if (event == Event::unreachable) endpoint->fail({.reason = from_errno(EHOSTUNREACH)});
    endpoint->turn();
}

// --- Pipes

namespace {

// Of the data with it: a read asks for some, and its answer brings it.
std::uint32_t length_of(const Message& message) noexcept {
    return message.opcode == WorkOpcode::read ? 0 : message.bytes;
}
std::uint32_t length_of(const Answer& answer) noexcept { return answer.data ? answer.bytes : 0; }

}  // namespace

template <typename T>
void Connection::push(Pipe<T>& pipe, T item, Event event, SideIndex side) {
    pipe.last_arrival = std::max(pipe.last_arrival, world().now() + world().draw_delay());
    item.arrival = pipe.last_arrival;
    pipe.queue.push_back(std::move(item));
    next(pipe, event, side);
}

template <typename T>
void Connection::next(Pipe<T>& pipe, Event event, SideIndex side) {
    if (pipe.scheduled || pipe.blocked || pipe.queue.empty()) return;
    pipe.scheduled = true;
    schedule(pipe.queue.front().arrival, event, side);
}

Connection::Way Connection::way(SideIndex from, SideIndex to, std::uint32_t bytes,
                                Instant& later) noexcept {
    const Network::AddressId source = sides_[from].address_id;
    const Network::AddressId target = sides_[to].address_id;
    const Network::Link& link = network_.link(source, target);
    const bool too_large = bytes > link.bytes_max && packets_ == EndpointOptions::Packets::full;
    if (link.cut || too_large || !network_.host(target).up()) return Way::blocked;
    later = std::max(link.stalled_until, network_.host(target).stalled_until());
    return later > world().now() ? Way::stalled : Way::free;
}

// True if the head of the pipe arrives now. side: who waits for it, or for its answer.
template <typename T>
bool Connection::ready(Pipe<T>& pipe, SideIndex from, SideIndex to, Event event, SideIndex side) {
    pipe.scheduled = false;
    if (pipe.blocked || pipe.queue.empty()) return false;
    if (pipe.queue.front().arrival > world().now()) {  // the old head was dropped
        next(pipe, event, side);
        return false;
    }
    Instant later{};
    // Only what is sent: that it has arrived, says who keeps it. keep_nothing() goes on.
    if (event == Event::message && sides_[from].kept) return false;
    switch (way(from, to, length_of(pipe.queue.front()), later)) {
        case Way::free:
            return true;
        case Way::stalled:
            pipe.scheduled = true;
            schedule(later, event, side);
            return false;
        case Way::blocked:
            break;
    }
    pipe.blocked = true;
    pipe.blocked_since = world().now();
    ++pipe.blocks;
    const Event timeout = event == Event::message ? Event::message_timeout : Event::answer_timeout;
    schedule(world().now() + world().options().transport_timeout, timeout, side, pipe.blocks);
    return false;
}

template <typename T>
void Connection::unblock(Pipe<T>& pipe, SideIndex from, SideIndex to, Event event, SideIndex side) {
    Instant later{};
    const std::uint32_t bytes = pipe.queue.empty() ? 0 : length_of(pipe.queue.front());
    if (!pipe.blocked || way(from, to, bytes, later) == Way::blocked) return;
    pipe.blocked = false;
    if (pipe.queue.empty()) return;
    pipe.scheduled = true;
    schedule(world().now() + world().draw_delay(), event, side);
}

void Connection::unblock() {
    for (const SideIndex side : {SideIndex{0}, SideIndex{1}}) {
        unblock(sides_[side].messages, side, other(side), Event::message, side);
        unblock(sides_[side].answers, other(side), side, Event::answer, side);
    }
}

void Connection::keep_nothing() {
    for (const SideIndex side : {SideIndex{0}, SideIndex{1}}) {
        sides_[side].kept = false;
        next(sides_[side].messages, Event::message, side);
    }
}

Duration Connection::unacknowledged(SideIndex side) const noexcept {
    const Instant now = world().now();
    const auto held_back = [now](const auto& pipe) {
        return pipe.blocked ? now - pipe.blocked_since : Duration::zero();
    };
    return std::max(held_back(sides_[side].messages), held_back(sides_[side].answers));
}

void Connection::send(SideIndex from, Message message) {
    const bool reachable =
        sides_[0].address_id != Network::nowhere && sides_[1].address_id != Network::nowhere;
    if (reachable && (!sides_[from].silent || message.kind == Message::Kind::reset)) {
        push(sides_[from].messages, std::move(message), Event::message, from);
    } else {
        drop(message);
    }
}

void Connection::answer(SideIndex to, Answer answer) {
    push(sides_[to].answers, std::move(answer), Event::answer, to);
}

// Whether the side's hardware still keeps the connection, and repeats what was lost.
bool Connection::waits(SideIndex side) noexcept {
    const Side& waiting = sides_[side];
    if (waiting.endpoint == nullptr || !waiting.process->alive()) return false;
    return waiting.endpoint->state() < SimEndpoint::State::draining;
}

void Connection::on_timeout(SideIndex side, bool still_blocked) {
    if (!still_blocked || !waits(side)) return;
    sides_[side].endpoint->fail(
        {.reason = from_errno(ETIMEDOUT), .send = CompletionStatus::transport});
    sides_[side].endpoint->turn();
}

void Connection::on_message(SideIndex from) {
    Pipe<Message>& pipe = sides_[from].messages;
    if (!ready(pipe, from, other(from), Event::message, from)) {
        if (pipe.blocked && !waits(from)) drop_all(from);
        return;
    }
    Message message = pipe.queue.pop_front();
    next(pipe, Event::message, from);
    world().mix((static_cast<std::uint64_t>(message.bytes) << 16) |
                (static_cast<std::uint64_t>(message.kind) << 8) |
                static_cast<std::uint64_t>(message.opcode));
    deliver(from, message);
    drop(message);
}

void Connection::on_answer(SideIndex to) {
    Pipe<Answer>& pipe = sides_[to].answers;
    if (!ready(pipe, other(to), to, Event::answer, to)) return;
    Answer answer = pipe.queue.pop_front();
    next(pipe, Event::answer, to);
    if (waits(to)) {
        sides_[to].endpoint->complete(answer);
        sides_[to].endpoint->turn();
    }
    if (answer.data) world().buffers().give(std::move(answer.data), answer.bytes);
}

void Connection::drop(Message& message) {
    if (message.snapshot) world().buffers().give(std::move(message.snapshot), message.bytes);
}

void Connection::drop_all(SideIndex from) {
    Pipe<Message>& pipe = sides_[from].messages;
    pipe.blocked = false;
    while (!pipe.queue.empty()) {
        Message message = pipe.queue.pop_front();
        drop(message);
    }
    sides_[from].silent = true;
}

void Connection::snapshot(Message& message) {
    if (message.bytes == 0 || message.snapshot || message.opcode == WorkOpcode::read) return;
    watch_source(message);
    message.snapshot = world().buffers().take(message.bytes);
    std::byte* to = message.snapshot.get();
    for (std::size_t i = 0; i < message.segments; ++i) {
        to = std::copy_n(message.local[i].data, message.local[i].bytes, to);
    }
}

std::uint64_t source_sum(std::span<const Segment> source) noexcept {
    std::uint64_t sum = 0xcbf29ce484222325u;
    for (const Segment& segment : source) {
        for (std::uint32_t at = 0; at < segment.bytes; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, segment.data + at, std::min<std::size_t>(8, segment.bytes - at));
            sum = (sum ^ word) * 0x100000001b3u;
        }
    }
    return sum;
}

void Connection::watch_source(const Message& message) {
    if (message.posted_sum == 0) return;
    if (source_sum(message.source()) != message.posted_sum) world().note_changed_source();
}

void Connection::depart(SideIndex side, Farewell farewell, std::error_code told) {
    if (farewell == Farewell::silent) {
        drop_all(side);
        return;
    }
    Pipe<Message>& pipe = sides_[side].messages;
    const std::size_t kept = world().random().below(pipe.queue.size() + 1);
    while (pipe.queue.size() > kept) {
        Message message = pipe.queue.pop_back();
        drop(message);
    }
    if (farewell != Farewell::goodbye) return;
    send(side,
         {.kind = Message::Kind::goodbye, .immediate = static_cast<std::uint32_t>(told.value())});
}

void Connection::let_go(SideIndex side) {
    Pipe<Message>& pipe = sides_[side].messages;
    if (pipe.blocked) drop_all(side);
    for (std::size_t i = 0; i < pipe.queue.size(); ++i) snapshot(pipe.queue.at(i));
}

void Connection::vanish(SideIndex side, Farewell farewell) {
    depart(side, Farewell::answered);
    let_go(side);
    sides_[side].silent = true;
    if (farewell != Farewell::silent) send(side, {.kind = Message::Kind::reset});
}

void Connection::reset(SideIndex side) {
    SimEndpoint* endpoint = sides_[side].endpoint;
    if (endpoint == nullptr || !sides_[side].process->alive()) return;
    endpoint->fail({.reason = from_errno(ECONNRESET), .farewell = Farewell::silent});
    endpoint->wake();
}

void Connection::reset_both() {
    dialler_gone_ = true;
    reset(0);
    reset(1);
}

// --- Delivery

void Connection::attach(SideIndex side, SimEndpoint& endpoint, Process& process) {
    sides_[side].endpoint = &endpoint;
    sides_[side].process = &process;
}

void Connection::deliver(SideIndex from, Message& message) {
    Side& receiver = sides_[other(from)];
    receiver.heard = world().now();
    const bool farewell =
        message.kind == Message::Kind::goodbye || message.kind == Message::Kind::reset;
    if (receiver.silent) {
        if (!farewell) send(other(from), {.kind = Message::Kind::reset});
    } else if (message.kind == Message::Kind::connect) {
        deliver_connect();
    } else if (receiver.endpoint != nullptr) {
        deliver_to(*receiver.endpoint, from, message);
    } else if (farewell && from == 0) {
        dialler_gone_ = true;
    }
}

void Connection::deliver_connect() {
    Process& process = network_.host(sides_[1].address_id).process();
    sides_[1].process = &process;
    SimListener* listener = process.find_listener(sides_[1].address);
    if (listener == nullptr) {
        send(1, {.kind = Message::Kind::refuse});
    } else {
        listener->handler().on_connect_request(std::make_unique<SimConnectRequest>(*this));
    }
}

void Connection::deliver_to(SimEndpoint& endpoint, SideIndex from, Message& message) {
    using State = SimEndpoint::State;
    const bool dials = endpoint.state() == State::dialling;
    switch (message.kind) {
        case Message::Kind::connect:
            break;
        case Message::Kind::accept:
            if (!dials) break;
            send(other(from), {.kind = Message::Kind::ready});
            endpoint.establish();
            break;
        case Message::Kind::ready:
            if (endpoint.state() == State::accepting) endpoint.establish();
            break;
        case Message::Kind::reject:
            if (dials) endpoint.reject();
            break;
        case Message::Kind::refuse:
            if (dials) endpoint.fail({.reason = from_errno(ECONNREFUSED)});
            break;
        case Message::Kind::work:
            if (endpoint.state() == State::established) answer(from, endpoint.receive(message));
            if (const Duration wait = world().options().queue_time; wait > Duration::zero()) {
                return schedule(world().now() + wait, Event::turn, other(from));
            }
            break;
        case Message::Kind::goodbye:
            endpoint.fail({.reason = message.immediate == 0
                                         ? Error::closed_by_peer
                                         : static_cast<Error>(message.immediate)});
            break;
        case Message::Kind::reset:
            endpoint.fail({.reason = from_errno(ECONNRESET)});
            break;
    }
    endpoint.turn();
}

// --- SimConnectRequest

SimConnectRequest::~SimConnectRequest() {
    reject({});
    connection_->release();
}

std::expected<std::unique_ptr<Endpoint>, std::error_code> SimConnectRequest::accept(
    ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
    EndpointHandler& handler) {
    RTRS_ASSERT(!answered_);
    if (private_data.size() > private_data_reply_max) {
        return std::unexpected(from_errno(EMSGSIZE));
    }
    answered_ = true;
    if (connection_->dialler_gone() || !connection_->process(1)->alive()) {
        return std::unexpected(from_errno(ECONNRESET));
    }
    connection_->set_reply(private_data);
    auto endpoint = std::make_unique<SimEndpoint>(*connection_, 1, static_cast<Domain&>(domain),
                                                  options, handler);
    connection_->send(1, {.kind = Message::Kind::accept});
    SimWorld& world = connection_->world();
    connection_->schedule(world.now() + world.options().connect_timeout,
                          Connection::Event::dial_timeout, 1);
    return endpoint;
}

void SimConnectRequest::reject(Bytes private_data) {
    if (answered_) return;
    answered_ = true;
    if (!connection_->process(1)->alive()) return;
    connection_->set_reply(private_data);
    connection_->send(1, {.kind = Message::Kind::reject});
}

}  // namespace rtrs::sim
