#include "rnbd-client/nbd/connection.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/probe.h"

namespace rnbd {
namespace {

using nbd::Bytes;
using nbd::Command;
using nbd::NbdError;
using rtrs::Reactor;
using rtrs::TraceLevel;

constexpr std::string_view subsystem = "rnbd.nbd";

// From this much on, payload is worth a receive of its own straight to where it belongs.
constexpr std::uint32_t direct_bytes_min = 16u << 10;
// What is received while large WRITEs come: their header, and little of the payload.
constexpr std::uint32_t small_receive_bytes = 512;

// One sendmsg: at least one answer, then until one of these is reached.
// Between looks whether the server has spoken.
constexpr rtrs::Duration settle_poll = std::chrono::milliseconds(5);
constexpr std::size_t batch_answers_max = 512;
constexpr std::size_t batch_bytes_max = 1u << 20;
constexpr std::size_t entries_max = 1024;  // UIO_MAXIOV
constexpr std::size_t headers_bytes = batch_answers_max * nbd::reply_header_bytes_max;

const char* text_of(NbdError error) noexcept {
    switch (error) {
        case NbdError::none:
            return "";
        case NbdError::perm:
            return "the volume does not permit this";
        case NbdError::io:
            return "I/O error at the volume";
        case NbdError::nomem:
            return "the volume's server is out of memory";
        case NbdError::inval:
            return "the volume refused the request";
        case NbdError::nospc:
            return "no space left at the volume";
        case NbdError::overflow:
            return "too large for the volume";
        case NbdError::notsup:
            return "no fast way to write zeroes";
        case NbdError::shutdown:
            return "shutting down";
    }
    return "";
}

}  // namespace

void NbdConnection::SlotQueue::push(Slot& slot) noexcept {
    slot.next = nullptr;
    (last != nullptr ? last->next : first) = &slot;
    last = &slot;
}

NbdConnection::Slot* NbdConnection::SlotQueue::pop() noexcept {
    Slot* const slot = first;
    if (slot != nullptr) first = slot->next;
    if (first == nullptr) last = nullptr;
    return slot;
}

NbdConnection::NbdConnection(Environment environment, Socket socket, const NbdExports& exports,
                             const NbdConnectionOptions& options, Owner& owner)
    : DeviceClient(Kind::nbd),
      reactor_(environment.reactor),
      tracer_(environment.tracer),
      socket_(std::move(socket)),
      exports_(exports),
      options_(options),
      owner_(owner),
      receive_(*this,
               [](rtrs::Operation& op, const rtrs::Operation::Result& result) {
                   static_cast<Work&>(op).connection.on_received(result);
               }),
      waiter_(*this,
              [](rtrs::PermitWaiter& waiter) {
                  // Permits come from the middle of someone's release(): go on when that is over.
                  auto& connection = static_cast<Waiter&>(waiter).connection;
                  connection.resume_wanted_ = true;
                  connection.at_turn_end();
              }),
      share_waiter_(*this,
                    [](PermitShares::Waiter& waiter) {
                        auto& connection = static_cast<ShareWaiter&>(waiter).connection;
                        connection.resume_wanted_ = true;
                        connection.at_turn_end();
                    }),
      send_(*this,
            [](rtrs::Operation& op, const rtrs::Operation::Result& result) {
                static_cast<Work&>(op).connection.on_sent(result.value);
            }),
      watchdog_(reactor_, this,
                [](void* context) { static_cast<NbdConnection*>(context)->on_deadline(); }),
      greeter_(reactor_, this,
               [](void* context) { static_cast<NbdConnection*>(context)->greet_when_settled(); }),
      turn_end_(*this, [](rtrs::TurnTask& task) {
          NbdConnection& connection = static_cast<TurnEnd&>(task).connection;
          if (std::exchange(connection.resume_wanted_, false)) connection.resume();
          connection.flush();
          connection.end_if_idle();
          // The last thing done here: the owner may destroy the connection.
          if (connection.ended_) connection.owner_.on_connection_closed(connection);
      }) {}

NbdConnection::~NbdConnection() {
    RTRS_ASSERT(!started_ || ended_);
    Reactor::cancel_turn_end(turn_end_);
}

bool NbdConnection::prepare() {
    started_ = true;
    since_ = reactor_.now();
    entries_ = rtrs::LazyArray<iovec>(entries_max);
    slots_ = rtrs::LazyArray<Slot>(options_.requests_max);
    headers_ = rtrs::LazyMemory(headers_bytes);
    if (entries_ && slots_ && headers_) return true;
    abort("out of address space");
    return false;
}

void NbdConnection::start() {
    if (!prepare()) return;
    handshake_ = std::make_unique<nbd::Handshake>(exports_);
    nbd::Handshake::greet(handshake_replies_);
    block(Blocked::handshake_reply);
    greet_when_settled();
}

void NbdConnection::start_chosen(std::size_t export_index) {
    if (!prepare()) return;
    client_kind = Kind::kernel;
    const nbd::ExportDescription description = exports_.describe(export_index);
    begin_transmission({.export_index = export_index,
                        .size_bytes = description.size_bytes,
                        .transmission_flags = description.transmission_flags});
    want_input();
}

void NbdConnection::greet_when_settled() {
    if (phase_ != Phase::handshake) return;
    if (!exports_.settled() && reactor_.now() < since_ + options_.settle_timeout) {
        greeter_.arm(reactor_.now() + settle_poll);
        return;
    }
    receive_deadline_ = reactor_.now() + options_.handshake_timeout;
    watch(*receive_deadline_);
    entries_[0] = {handshake_replies_.data(), handshake_replies_.size()};
    send(1, handshake_replies_.size());
}

// ---- receiving ----

bool NbdConnection::between_requests() const noexcept {
    return expect_ == Expect::request && header_fill_ == 0;
}

void NbdConnection::block(Blocked on) noexcept {
    blocked_ = on;
    blocked_since_ = reactor_.now();
    // The time that we make the client wait is not the client's.
    if (on != Blocked::handshake_reply) receive_deadline_.reset();
}

void NbdConnection::want_input() {
    if (receiving_ != Receiving::nothing || blocked_ != Blocked::no || !reading()) return;
    if (!between_requests() && !receive_deadline_) {
        receive_deadline_ = reactor_.now() + options_.payload_timeout;
        watch(*receive_deadline_);
    }
    if (expect_ == Expect::payload && payload_left_ >= direct_bytes_min) {
        receiving_ = Receiving::direct;
        return reactor_.recv_all(receive_, socket_.fd, payload_target());
    }
    receiving_ = Receiving::provided;
    reactor_.recv_provided(receive_, socket_.fd, small_next_ ? small_receive_bytes : 0, first_try_);
}

void NbdConnection::on_received(const rtrs::Operation::Result& result) {
    const Receiving kind = std::exchange(receiving_, Receiving::nothing);
    if (!reading()) {
        if (result.buffer) reactor_.return_buffer(*result.buffer);
        drop_unstarted();
        return end_if_idle();
    }
    if (kind == Receiving::direct) {
        on_direct(result.value);
    } else {
        on_provided(result);
    }
    want_input();
    end_if_idle();
}

void NbdConnection::on_provided(const rtrs::Operation::Result& result) {
    // All shared buffers are in use: by the next turn some are back.
    if (result.value == -ENOBUFS) return;
    if (result.value <= 0) {
        if (result.buffer) reactor_.return_buffer(*result.buffer);
        return on_stream_end(result.value);
    }
    const auto bytes = static_cast<std::uint32_t>(result.value);
    const bool was_small = small_next_;
    // Unix sockets do not say whether more is there; a full buffer does.
    const bool more = result.socket_nonempty || (was_small && bytes == small_receive_bytes);
    first_try_ = more ? Reactor::FirstTry::at_once : Reactor::FirstTry::after_poll;
    saw_large_ = false;
    const Bytes input = reactor_.received(*result.buffer, bytes);
    const std::size_t used = consume(input);
    if (was_small || saw_large_) small_next_ = saw_large_;
    if (used < input.size() && reading()) {
        // Others need the shared buffer to set free what this connection waits for.
        stash_.assign(input.begin() + static_cast<std::ptrdiff_t>(used), input.end());
        stash_used_ = 0;
    }
    reactor_.return_buffer(*result.buffer);
}

void NbdConnection::on_direct(std::int32_t result) {
    if (result <= 0) return on_stream_end(result);
    // After large payload there is mostly more at once.
    first_try_ = Reactor::FirstTry::at_once;
    payload_arrived(static_cast<std::size_t>(result));
}

void NbdConnection::on_stream_end(std::int32_t result) {
    if (result < 0) return abort("receive: " + rtrs::from_errno(result).message());
    if (phase_ == Phase::handshake) {
        return set_phase(Phase::finishing, "closed during the handshake", TraceLevel::debug);
    }
    if (!between_requests()) return abort("closed in the middle of a request");
    set_phase(Phase::finishing, "closed by the client", TraceLevel::info);
}

// Returns the bytes used: all of them unless blocked or closing.
std::size_t NbdConnection::consume(Bytes input) {
    std::size_t used = 0;
    while (used < input.size() && blocked_ == Blocked::no && reading()) {
        const Bytes rest = input.subspan(used);
        switch (expect_) {
            case Expect::handshake:
                used += take_handshake(rest);
                break;
            case Expect::request:
                used += take_header(rest);
                break;
            case Expect::payload:
                used += take_payload(rest);
                break;
            case Expect::drain:
                used += take_drained(rest);
                break;
        }
    }
    return used;
}

// What the stream waited for is there.
void NbdConnection::resume() {
    if (!reading()) return;
    switch (std::exchange(blocked_, Blocked::no)) {
        case Blocked::no:
        case Blocked::handshake_reply:
            break;
        case Blocked::others:
            receive_deadline_.reset();
            admit();
            break;
        case Blocked::place:
            admit();
            break;
        case Blocked::own_share:
            PermitShares::forget(share_waiter_);
            acquire(*receiving_slot_);
            break;
        case Blocked::permits:
            if (device_->permits_for(receiving_slot_->nbd) == receiving_slot_->pieces) {
                begin(*receiving_slot_);
                break;
            }
            // The volume has come back with other limits meanwhile.
            for (rtrs::Permit& permit : granted_) permit = rtrs::Permit();
            device_->let_go(receiving_slot_->pieces);
            acquire(*receiving_slot_);
            break;
    }
    if (stash_used_ < stash_.size()) {
        stash_used_ += consume(Bytes(stash_).subspan(stash_used_));
    }
    if (stash_used_ == stash_.size()) want_input();
}

// ---- from bytes to requests ----

std::size_t NbdConnection::take_handshake(Bytes input) {
    handshake_replies_.clear();
    const std::size_t used = handshake_->step(input, handshake_replies_);
    const nbd::Handshake::State state = handshake_->state();
    if (state == nbd::Handshake::State::failed) {
        abort(handshake_->failure());
        return used;
    }
    if (!handshake_replies_.empty()) {
        block(Blocked::handshake_reply);
        entries_[0] = {handshake_replies_.data(), handshake_replies_.size()};
        send(1, handshake_replies_.size());
    }
    if (state == nbd::Handshake::State::transmission) {
        begin_transmission(handshake_->negotiated());
        handshake_.reset();
    }
    if (state == nbd::Handshake::State::aborted) {
        set_phase(Phase::finishing, "handshake ended by the client", TraceLevel::debug);
    }
    return used;
}

void NbdConnection::begin_transmission(const nbd::Negotiated& chosen) {
    device_ = &exports_.device(chosen.export_index);
    const nbd::ExportDescription description = device_->describe();
    session_.size_bytes = chosen.size_bytes;
    session_.block_bytes_min = description.block_sizes.minimum_bytes;
    session_.payload_bytes_max = description.block_sizes.maximum_bytes;
    session_.transmission_flags = chosen.transmission_flags;
    session_.structured_replies = chosen.structured_replies;
    session_.allocation_context = chosen.allocation_context;
    granted_.resize(device_->request_permits_max());
    // A client that does not read its answers keeps permits: leave some to the others.
    permits_share_ = std::max(device_->permits().permits_max() / 2, device_->request_permits_max());
    receive_deadline_.reset();
    expect_ = Expect::request;
    device_->join(*this);
    set_phase(Phase::transmission,
              session_.structured_replies ? "connected, structured replies" : "connected",
              TraceLevel::info);
}

std::size_t NbdConnection::take_header(Bytes input) {
    if (header_fill_ == 0 && input.size() >= nbd::request_bytes) {
        take_request(input.data());
        return nbd::request_bytes;
    }
    const std::size_t now = std::min(nbd::request_bytes - header_fill_, input.size());
    std::memcpy(header_.data() + header_fill_, input.data(), now);
    header_fill_ += now;
    if (header_fill_ == nbd::request_bytes) {
        header_fill_ = 0;
        take_request(header_.data());
    }
    return now;
}

void NbdConnection::take_request(const std::byte* bytes) {
    const auto request = nbd::parse_request(bytes);
    if (!request) return abort("wrong request magic");
    receive_deadline_.reset();
    request_ = *request;
    if (request_.command == Command::disconnect) {
        return set_phase(Phase::finishing, "disconnected", TraceLevel::info);
    }
    if (nbd::payload_bytes(request_) >= direct_bytes_min) saw_large_ = true;
    admit();
}

void NbdConnection::admit() {
    came_late_ = came_late_ && device_->others_are_leaving(*this);
    if (came_late_) {
        block(Blocked::others);
        receive_deadline_ = reactor_.now() + options_.payload_timeout;
        return watch(*receive_deadline_);
    }
    Slot* const slot = take_slot();
    if (slot == nullptr) return block(Blocked::place);
    slot->nbd = request_;
    RTRS_PROBE(request_received, slot, static_cast<unsigned>(slot->nbd.command), slot->nbd.offset,
               slot->nbd.length);
    session_.size_bytes = device_->size_bytes();
    const nbd::Refusal refusal = nbd::check(request_, session_);
    if (refusal.error != NbdError::none) return refuse(*slot, refusal);
    if (request_.length == 0 && request_.command != Command::flush) return answer(*slot);
    acquire(*slot);
}

void NbdConnection::refuse(Slot& slot, const nbd::Refusal& refusal) {
    const std::uint32_t payload = nbd::payload_bytes(slot.nbd);
    if (payload > nbd::drained_bytes_max) {
        recycle(slot);
        return abort("WRITE of an absurd length");
    }
    slot.refusal = refusal.error;
    slot.text = refusal.text.data();
    if (payload == 0) return answer(slot);
    // Clients do not expect an answer to what they are still sending.
    expect_ = Expect::drain;
    drain_left_ = payload;
    receiving_slot_ = &slot;
}

void NbdConnection::acquire(Slot& slot) {
    receiving_slot_ = &slot;
    const std::uint32_t permits = device_->permits_for(slot.nbd);
    if (permits > granted_.size()) {
        // The volume came back with larger blocks than this client was told.
        receiving_slot_ = nullptr;
        return refuse(slot, {NbdError::inval, "the volume has changed, connect again"});
    }
    if (permits_held_ > 0 && permits_held_ + permits > permits_share_) {
        return block(Blocked::own_share);
    }
    if (!device_->may_hold(permits)) {
        device_->shares().wait(share_waiter_);
        return block(Blocked::own_share);
    }
    device_->hold(permits);
    slot.pieces = permits;
    waiter_.count = permits;
    waiter_.permits = std::span(granted_).first(permits);
    if (!device_->permits().take_or_wait(waiter_)) return block(Blocked::permits);
    begin(slot);
}

void NbdConnection::begin(Slot& slot) {
    RTRS_PROBE(request_permit, &slot, slot.pieces);
    device_->attach(slot, std::span(granted_).first(slot.pieces));
    slot.attached = true;
    permits_held_ += slot.pieces;
    if (slot.nbd.command != Command::write) {
        receiving_slot_ = nullptr;
        return device_->start(slot);
    }
    expect_ = Expect::payload;
    payload_piece_ = slot.first;
    payload_fill_ = 0;
    payload_left_ = slot.nbd.length;
}

rtrs::MutableBytes NbdConnection::payload_target() const noexcept {
    return payload_piece_->permit.payload().subspan(payload_fill_,
                                                    payload_piece_->bytes - payload_fill_);
}

void NbdConnection::payload_arrived(std::size_t bytes) {
    payload_fill_ += static_cast<std::uint32_t>(bytes);
    payload_left_ -= static_cast<std::uint32_t>(bytes);
    if (payload_left_ > 0) {
        if (payload_fill_ < payload_piece_->bytes) return;
        payload_piece_ = payload_piece_->next;
        payload_fill_ = 0;
        return;
    }
    expect_ = Expect::request;
    receive_deadline_.reset();
    device_->start(*std::exchange(receiving_slot_, nullptr));
}

std::size_t NbdConnection::take_payload(Bytes input) {
    const rtrs::MutableBytes target = payload_target();
    const std::size_t now = std::min(target.size(), input.size());
    std::memcpy(target.data(), input.data(), now);
    payload_arrived(now);
    return now;
}

std::size_t NbdConnection::take_drained(Bytes input) {
    const auto now = static_cast<std::uint32_t>(std::min<std::size_t>(drain_left_, input.size()));
    drain_left_ -= now;
    if (drain_left_ == 0) {
        expect_ = Expect::request;
        receive_deadline_.reset();
        answer(*std::exchange(receiving_slot_, nullptr));
    }
    return now;
}

// ---- from requests to bytes ----

NbdConnection::Slot* NbdConnection::take_slot() noexcept {
    Slot* slot = free_slots_;
    if (slot != nullptr) {
        free_slots_ = slot->next;
    } else if (slots_touched_ < slots_.size()) {
        slot = &slots_[slots_touched_++];
        slot->connection = this;
        slot->client = this;
        slot->done = [](DeviceRequest& request) {
            auto& done = static_cast<Slot&>(request);
            done.connection->on_done(done);
        };
    } else {
        return nullptr;
    }
    ++outstanding_;
    slot->received = reactor_.now();
    slot->refusal = NbdError::none;
    slot->attached = false;
    slot->text = "";
    slot->reply_bytes = 0;
    return slot;
}

void NbdConnection::recycle(Slot& slot) noexcept {
    if (slot.attached) {
        permits_held_ -= slot.pieces;
        device_->release(slot);
        device_->let_go(slot.pieces);
    }
    slot.next = free_slots_;
    free_slots_ = &slot;
    --outstanding_;
    if (blocked_ == Blocked::place || blocked_ == Blocked::own_share) {
        resume_wanted_ = true;
        at_turn_end();
    }
}

void NbdConnection::on_done(Slot& slot) {
    if (slot.error) {
        slot.refusal = nbd::to_nbd_error(slot.error, slot.nbd);
        slot.text = text_of(slot.refusal);
    }
    answer(slot);
}

void NbdConnection::answer(Slot& slot) {
    const rtrs::Duration took = reactor_.now() - slot.received;
    RTRS_PROBE(request_answered, &slot, static_cast<unsigned>(slot.refusal));
    counters_.count(slot.nbd, slot.refusal, took);
    device_->counters().count(slot.nbd, slot.refusal, took);
    if (phase_ == Phase::broken) {
        recycle(slot);
        return end_if_idle();
    }
    ready_.push(slot);
    at_turn_end();
}

// The header of an answer, and the whole of one that has no payload in permits.
std::size_t NbdConnection::emit_header(const Slot& slot, rtrs::MutableBytes to) const noexcept {
    if (slot.refusal != NbdError::none) {
        // A place helps where parts may have succeeded.
        const bool placed =
            slot.attached && slot.error && slot.pieces > 1 && session_.structured_replies &&
            (slot.nbd.command == Command::read || slot.nbd.command == Command::write ||
             slot.nbd.command == Command::trim);
        if (placed) {
            return nbd::emit_error_at(to, slot.nbd, slot.refusal, slot.error_offset, slot.text);
        }
        return nbd::emit_error(to, slot.nbd, session_, slot.refusal, slot.text);
    }
    if (slot.nbd.command == Command::block_status) return 0;
    if (slot.reply_bytes > 0) return nbd::emit_read(to, slot.nbd, session_);
    return nbd::emit_done(to, slot.nbd, session_);
}

// One sendmsg for the answers at hand: headers that follow each other share an entry.
void NbdConnection::flush() {
    if (sending_ || phase_ == Phase::broken) return;
    std::byte* header = headers_.data();
    const std::byte* const headers_end = header + headers_bytes;
    std::size_t used = 0, bytes = 0;
    while (ready_.first != nullptr && bytes < batch_bytes_max) {
        const Slot& slot = *ready_.first;
        const std::size_t pieces = slot.reply_bytes > 0 ? slot.pieces : 0;
        if (used + 1 + pieces > entries_max) break;
        if (header + nbd::reply_header_bytes_max > headers_end) break;
        const std::size_t header_bytes = emit_header(slot, {header, nbd::reply_header_bytes_max});
        if (header_bytes > 0) {
            iovec* const before = used > 0 ? &entries_[used - 1] : nullptr;
            if (before != nullptr &&
                static_cast<std::byte*>(before->iov_base) + before->iov_len == header) {
                before->iov_len += header_bytes;
            } else {
                entries_[used++] = {header, header_bytes};
            }
            header += header_bytes;
        }
        if (pieces > 0) used += Device::gather(slot, {&entries_[used], pieces});
        bytes += header_bytes + slot.reply_bytes;
        batch_.push(*ready_.pop());
    }
    if (used > 0) send(used, bytes);
}

void NbdConnection::send(std::size_t entries, std::size_t bytes) {
    sending_ = true;
    entries_used_ = entries;
    entries_sent_ = 0;
    send_left_ = bytes;
    message_.msg_iov = &entries_[0];
    message_.msg_iovlen = entries;
    send_deadline_ = reactor_.now() + options_.send_timeout;
    watch(*send_deadline_);
    reactor_.sendmsg(send_, socket_.fd, &message_);
}

void NbdConnection::on_sent(std::int32_t result) {
    sending_ = false;
    send_deadline_.reset();
    const bool failed = result <= 0;
    const auto sent = static_cast<std::size_t>(std::max(result, 0));
    if (!failed && sent < send_left_ && phase_ != Phase::broken) {
        skip_sent(sent);
        sending_ = true;
        send_deadline_ = reactor_.now() + options_.send_timeout;
        return reactor_.sendmsg(send_, socket_.fd, &message_);
    }
    if (!failed && sent == send_left_) batch_delivered();
    batch_sent();
    if (failed && phase_ != Phase::broken) {
        // A client may leave without waiting for answers; that is no news.
        abort("send: " + rtrs::from_errno(result).message());
    }
    if (blocked_ == Blocked::handshake_reply) resume_wanted_ = true;
    at_turn_end();
}

void NbdConnection::skip_sent(std::size_t bytes) noexcept {
    send_left_ -= bytes;
    while (bytes >= entries_[entries_sent_].iov_len) bytes -= entries_[entries_sent_++].iov_len;
    iovec& cut = entries_[entries_sent_];
    cut.iov_base = static_cast<std::byte*>(cut.iov_base) + bytes;
    cut.iov_len -= bytes;
    message_.msg_iov = &cut;
    message_.msg_iovlen = entries_used_ - entries_sent_;
}

// Into the socket. Of a client that has hung up nobody knows what it has read.
void NbdConnection::batch_delivered() {
    for (Slot* slot = batch_.first; slot != nullptr; slot = slot->next) {
        if (!slot->attached || slot->tells_losses == 0) continue;
        if (phase_ == Phase::transmission && !leaving()) device_->told(*this, slot->tells_losses);
    }
}

void NbdConnection::batch_sent() {
    while (Slot* const slot = batch_.pop()) recycle(*slot);
}

// ---- the end ----

void NbdConnection::at_turn_end() { reactor_.at_turn_end(turn_end_); }

// The request that the stream stands at will not be run.
void NbdConnection::drop_unstarted() noexcept {
    // The kernel may still write to its permits.
    if (receiving_ == Receiving::direct) return;
    if (blocked_ == Blocked::permits) {
        // They may have been granted already.
        if (waiter_.linked()) device_->permits().stop_waiting(waiter_);
        for (rtrs::Permit& permit : granted_) permit = rtrs::Permit();
        device_->let_go(receiving_slot_->pieces);
    }
    PermitShares::forget(share_waiter_);
    blocked_ = Blocked::no;
    if (receiving_slot_ != nullptr) recycle(*std::exchange(receiving_slot_, nullptr));
}

void NbdConnection::set_phase(Phase phase, std::string_view why, TraceLevel level) {
    phase_ = phase;
    tracer_.trace(level, subsystem, socket_.name, why);
    if (reading()) return;
    drop_unstarted();
    leave_device();
    receive_deadline_.reset();
    if (receiving_ != Receiving::nothing) reactor_.cancel(receive_);
    at_turn_end();
}

// Whatever is done of the requests from now on, the client may ask for the same elsewhere.
void NbdConnection::leave_device() noexcept {
    if (!linked()) return;
    const std::uint32_t before = device_->left_behind().requests;
    for (std::uint32_t i = 0; i < slots_touched_; ++i) {
        if (slots_[i].attached) device_->leave_behind(slots_[i]);
    }
    const std::uint32_t left = device_->left_behind().requests - before;
    if (left > 0) {
        tracer_.trace(TraceLevel::info, subsystem, socket_.name,
                      "leaves " + std::to_string(left) +
                          " changes in progress behind: what overlaps them waits");
    }
    device_->leave(*this);
}

bool NbdConnection::leaving() noexcept {
    pollfd state{.fd = socket_.fd, .events = POLLRDHUP, .revents = 0};
    return ::poll(&state, 1, 0) > 0;
}

void NbdConnection::on_other_left() {
    if (blocked_ != Blocked::others) return;
    resume_wanted_ = true;
    at_turn_end();
}

void NbdConnection::add_stalls(std::vector<DeviceStall>& to) const {
    using Stage = DeviceStall::Stage;
    const auto add = [&](Stage stage, const nbd::Request& request, rtrs::Instant since,
                         std::optional<rtrs::Instant> until = {}) {
        to.push_back({stage, request.command, request.offset, request.length, since, until});
    };
    switch (blocked_) {
        case Blocked::others:
            add(Stage::left_behind, request_, blocked_since_);
            break;
        case Blocked::place:
            add(Stage::own_share, request_, blocked_since_);
            break;
        case Blocked::own_share:
            add(Stage::own_share, receiving_slot_->nbd, receiving_slot_->received);
            break;
        case Blocked::permits:
            add(Stage::permit, receiving_slot_->nbd, receiving_slot_->received);
            break;
        case Blocked::no:
        case Blocked::handshake_reply:
            if (expect_ == Expect::payload && receiving_slot_ != nullptr) {
                add(Stage::payload, receiving_slot_->nbd, receiving_slot_->received,
                    receive_deadline_);
            }
            break;
    }
    for (std::uint32_t i = 0; i < slots_touched_; ++i) {
        const Slot& slot = slots_[i];
        if (slot.attached && slot.started && slot.in_flight == 0) {
            add(Stage::left_behind, slot.nbd, slot.received);
        }
    }
    for (const SlotQueue* queue : {&batch_, &ready_}) {
        for (const Slot* slot = queue->first; slot != nullptr; slot = slot->next) {
            add(Stage::answered, slot->nbd, slot->received, send_deadline_);
        }
    }
}

void NbdConnection::finish() {
    if (phase_ == Phase::handshake) return abort("shutting down");
    if (phase_ == Phase::transmission) {
        set_phase(Phase::finishing, "shutting down", TraceLevel::info);
    }
}

void NbdConnection::abort(std::string_view why) {
    if (phase_ == Phase::broken || ended_) return;
    const bool expected = phase_ == Phase::finishing;
    set_phase(Phase::broken, why, expected ? TraceLevel::debug : TraceLevel::warning);
    // Wakes what waits on the socket; the answers that nobody gets are dropped.
    ::shutdown(socket_.fd, SHUT_RDWR);
    if (sending_) reactor_.cancel(send_);
    while (Slot* const slot = ready_.pop()) recycle(*slot);
}

void NbdConnection::end_if_idle() {
    if (reading() || ended_) return;
    if (receiving_ != Receiving::nothing || sending_ || outstanding_ > 0) return;
    ended_ = true;
    watchdog_.disarm();
    greeter_.disarm();
    reactor_.close_fd(std::exchange(socket_.fd, -1));
    at_turn_end();
}

void NbdConnection::watch(rtrs::Instant deadline) {
    // Deadlines that are met leave the timer alone: it looks again when it fires.
    if (!watchdog_.armed() || watchdog_.deadline() > deadline) watchdog_.arm(deadline);
}

bool NbdConnection::permits_are_short() const {
    // Nor does anybody get one while somebody waits.
    return device_->shares().waited_for() || !device_->permits().try_take();
}

void NbdConnection::on_deadline() {
    const rtrs::Instant now = reactor_.now();
    const bool receive_late = receive_deadline_ && *receive_deadline_ <= now;
    const bool send_late = send_deadline_ && *send_deadline_ <= now;
    if (receive_late && blocked_ == Blocked::others) {
        // Each of them that has left tells, and this one looks again.
        receive_deadline_ = now + options_.payload_timeout;
        watch(*receive_deadline_);
        return device_->end_leaving(*this);
    }
    const bool may_stay =
        phase_ == Phase::transmission && (receive_late || send_late) && !permits_are_short();
    if (receive_late && !may_stay) {
        return abort(phase_ == Phase::handshake ? "handshake took too long"
                                                : "a request did not arrive in time");
    }
    if (send_late && !may_stay) return abort("answers were not taken in time");
    if (receive_late) receive_deadline_ = now + options_.payload_timeout;
    if (send_late) send_deadline_ = now + options_.send_timeout;
    if (receive_deadline_) watch(*receive_deadline_);
    if (send_deadline_) watch(*send_deadline_);
}

}  // namespace rnbd
