// Bytes of the socket, to requests on the device: what is read when, and what a request waits for.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rnbd-client/nbd/connection.h"
#include "rtrs/base/probe.h"

namespace rnbd {
namespace {

using nbd::Bytes;
using nbd::Command;
using nbd::NbdError;
using rtrs::Reactor;
using rtrs::TraceLevel;

// From this much on, payload is worth a receive of its own straight to where it belongs.
constexpr std::uint32_t direct_bytes_min = 16u << 10;
// What is received while large WRITEs come: their header, and little of the payload.
constexpr std::uint32_t small_receive_bytes = 512;

}  // namespace

bool NbdConnection::between_requests() const noexcept {
    return expect_ == Expect::request && header_fill_ == 0;
}

void NbdConnection::block(Blocked on) noexcept {
    blocked_ = on;
    blocked_since_ = reactor_.now();
    // The time that we make the client wait is not the client's.
    if (on != Blocked::handshake_reply) receive_deadline_.reset();
    payload_stalls_.reset();
}

void NbdConnection::want_input() {
    if (receiving_ != Receiving::nothing || blocked_ != Blocked::no || !reading()) return;
    if (!between_requests() && !receive_deadline_) {
        receive_deadline_ = reactor_.now() + options_.payload_timeout;
        watch(*receive_deadline_);
    }
    if (expect_ == Expect::payload) {
        const bool at_once = std::exchange(had_time_to_send_, false);
        const rtrs::Duration timeout = options_.stall_timeout / (at_once ? stall_looks : 1);
        payload_stalls_ = reactor_.now() + timeout;
        watch(*payload_stalls_);
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
        const bool over = result.value <= 0 && result.value != -ENOBUFS;
        if (over && phase_ == Phase::parting) ends_first_ = false;
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
    const bool looked_at = std::exchange(looked_at_, false);
    if (looked_at && result == -ECANCELED) {
        return abort("a request does not arrive, and others wait for its permits");
    }
    if (result <= 0) return on_stream_end(result);
    // After large payload there is mostly more at once.
    first_try_ = Reactor::FirstTry::at_once;
    payload_arrived(static_cast<std::size_t>(result));
}

void NbdConnection::on_stream_end(std::int32_t result) {
    const bool gone = result == 0 || result == -ECONNRESET;
    if (phase_ == Phase::handshake && gone) return closed_in_handshake();
    if (result < 0) return abort("receive: " + rtrs::from_errno(result).message());
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

// No news: who probes a port, or looks whether somebody listens, does so.
void NbdConnection::closed_in_handshake() {
    set_phase(Phase::finishing, "closed during the handshake", TraceLevel::debug);
}

// What the stream waited for is there.
void NbdConnection::resume() {
    if (!reading()) return;
    const Blocked was = std::exchange(blocked_, Blocked::no);
    switch (was) {
        case Blocked::no:
        case Blocked::handshake_reply:
            break;
        case Blocked::others:  // its deadline stays while there are any
        case Blocked::place:
            admit();
            break;
        case Blocked::own_share:
        case Blocked::permits:
            had_time_to_send_ = reactor_.now() >= blocked_since_ + options_.stall_timeout;
            if (device_->permits_for(receiving_slot_->nbd) == receiving_slot_->pieces) {
                if (was == Blocked::permits || take_permits(*receiving_slot_)) {
                    begin(*receiving_slot_);
                } else {
                    block(Blocked::permits);
                }
                break;
            }
            // The volume has come back with other limits meanwhile.
            for (rtrs::Permit& permit : granted_) permit = rtrs::Permit();
            give_back_share(*receiving_slot_);
            acquire(*receiving_slot_);
            break;
    }
    if (stash_used_ < stash_.size()) {
        stash_used_ += consume(Bytes(stash_).subspan(stash_used_));
    }
    if (stash_used_ == stash_.size()) want_input();
}

// ---- from bytes to requests

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
        send_handshake_replies();
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
        // From when it began to wait, whoever else has left since.
        const rtrs::Instant until =
            receive_deadline_.value_or(reactor_.now() + options_.payload_timeout);
        block(Blocked::others);
        receive_deadline_ = until;
        return watch(until);
    }
    receive_deadline_.reset();
    Slot* const slot = take_slot();
    if (slot == nullptr) return block(Blocked::place);
    slot->nbd = request_;
    RTRS_PROBE(request_received, slot, static_cast<unsigned>(slot->nbd.command), slot->nbd.offset,
               slot->nbd.length);
    session_.size_bytes = device_->size_bytes();
    const nbd::Refusal refusal = nbd::check(request_, session_);
    if (refusal.error != NbdError::none) {
        if (nbd::too_long(request_, session_)) tell_of_the_maximum();
        return refuse(*slot, refusal);
    }
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
    slot.pieces = permits;
    share_claim_.permits = permits;
    share_claim_.of = device_->permits().permits_max();
    if (!device_->shares().take_or_wait(device_->share(), share_claim_)) {
        if (may_wait()) return block(Blocked::own_share);
        device_->shares().forget(device_->share(), share_claim_);
        return refuse_at_once(slot);
    }
    if (take_permits(slot)) return begin(slot);
    if (may_wait()) return block(Blocked::permits);
    device_->permits().stop_waiting(waiter_);
    give_back_share(slot);
    refuse_at_once(slot);
}

// False: they come later.
bool NbdConnection::take_permits(const Slot& slot) {
    waiter_.count = slot.pieces;
    waiter_.permits = std::span(granted_).first(slot.pieces);
    return device_->permits().take_or_wait(waiter_);
}

// With a permit the volume would say it (fail_fast_time). Those that joined in time go on waiting.
bool NbdConnection::may_wait() const noexcept { return !device_->permits().refuses_new(); }

void NbdConnection::refuse_at_once(Slot& slot) {
    receiving_slot_ = nullptr;
    refuse(slot, {NbdError::io, "no path is up"});
}

void NbdConnection::give_back_share(const Slot& slot) noexcept {
    device_->shares().give_back(device_->share(), share_, slot.pieces);
}

void NbdConnection::begin(Slot& slot) {
    RTRS_PROBE(request_permit, &slot, slot.pieces);
    device_->attach(slot, std::span(granted_).first(slot.pieces));
    slot.attached = true;
    if (slot.nbd.command != Command::write) {
        receiving_slot_ = nullptr;
        had_time_to_send_ = false;
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
    payload_stalls_.reset();
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

}  // namespace rnbd
