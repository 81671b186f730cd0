// Requests that are done, to bytes of the socket: the answers of a turn in one sendmsg.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "rnbd-client/nbd/connection.h"
#include "rtrs/base/probe.h"

namespace rnbd {
namespace {

using nbd::Command;
using nbd::NbdError;

// One sendmsg: at least one answer, then until one of these is reached.
constexpr std::size_t batch_answers_max = 512;
constexpr std::size_t batch_bytes_max = 1u << 20;
constexpr std::size_t entries_max = 1024;  // UIO_MAXIOV
// What is not larger leaves at once: a few answers that somebody may be waiting for.
constexpr std::size_t called_bytes_max = 32u << 10;
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

bool NbdConnection::prepare_sending() {
    entries_ = rtrs::LazyArray<iovec>(entries_max);
    headers_ = rtrs::LazyMemory(headers_bytes);
    return entries_ && headers_;
}

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
    reactor_.begin_request();
    slot->received = reactor_.now();
    slot->refusal = NbdError::none;
    slot->attached = false;
    slot->text = "";
    slot->reply_bytes = 0;
    return slot;
}

void NbdConnection::recycle(Slot& slot) noexcept {
    if (slot.attached) {
        device_->release(slot);
        give_back_share(slot);
    }
    slot.next = free_slots_;
    free_slots_ = &slot;
    --outstanding_;
    reactor_.end_request();
    if (blocked_ == Blocked::place) {
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
    if (sending_ || phase_ == Phase::broken || ready_.first == nullptr) return;
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
    if (used > 0) send({&entries_[0], used}, bytes);
}

void NbdConnection::send_handshake_replies() {
    handshake_entry_ = {handshake_replies_.data(), handshake_replies_.size()};
    send({&handshake_entry_, 1}, handshake_replies_.size());
}

void NbdConnection::send(std::span<iovec> entries, std::size_t bytes) {
    sending_ = true;
    send_left_ = bytes;
    message_.msg_iov = entries.data();
    message_.msg_iovlen = entries.size();
    set_send_deadlines();
    reactor_.sendmsg(
        send_, socket_.fd, &message_,
        bytes <= called_bytes_max ? rtrs::Reactor::SendBy::call : rtrs::Reactor::SendBy::ring);
}

// send_deadline_ is the whole batch's.
void NbdConnection::set_send_deadlines() {
    if (!send_deadline_) send_deadline_ = reactor_.now() + options_.send_timeout;
    answers_stall_ = reactor_.now() + options_.stall_timeout / answer_looks;
    watch(std::min(*send_deadline_, *answers_stall_));
}

void NbdConnection::on_sent(std::int32_t result) {
    const bool looked_at = std::exchange(send_looked_at_, false);
    const bool failed = result <= 0;
    const auto sent = static_cast<std::size_t>(std::max(result, 0));
    if (!failed && sent < send_left_ && phase_ != Phase::broken) {
        skip_sent(sent);
        set_send_deadlines();
        return reactor_.sendmsg(send_, socket_.fd, &message_);
    }
    sending_ = false;
    send_deadline_.reset();
    answers_stall_.reset();
    if (!failed && sent == send_left_) batch_delivered();
    batch_sent();
    const bool gone = result == -EPIPE || result == -ECONNRESET;
    if (failed && gone && phase_ == Phase::handshake) {
        closed_in_handshake();
    } else if (failed && phase_ != Phase::broken) {
        // A client may leave without waiting for answers; that is no news.
        const bool still = looked_at && (result == -ECANCELED || result == -EINTR);
        abort(still ? "answers are not taken, and others wait for their permits"
                    : "send: " + rtrs::from_errno(result).message());
    }
    if (blocked_ == Blocked::handshake_reply) resume_wanted_ = true;
    at_turn_end();
}

void NbdConnection::skip_sent(std::size_t bytes) noexcept {
    send_left_ -= bytes;
    while (bytes >= message_.msg_iov->iov_len) {
        bytes -= message_.msg_iov->iov_len;
        ++message_.msg_iov;
        --message_.msg_iovlen;
    }
    iovec& cut = *message_.msg_iov;
    cut.iov_base = static_cast<std::byte*>(cut.iov_base) + bytes;
    cut.iov_len -= bytes;
}

// Into the socket. Of a client that has hung up nobody knows what it has read.
void NbdConnection::batch_delivered() {
    for (Slot* slot = batch_.first; slot != nullptr; slot = slot->next) {
        if (!slot->attached) continue;
        device_->shares().served(device_->share(), share_);
        if (slot->tells_losses == 0) continue;
        if (phase_ == Phase::transmission && !leaving()) device_->told(*this, slot->tells_losses);
    }
}

void NbdConnection::batch_sent() {
    while (Slot* const slot = batch_.pop()) recycle(*slot);
}

}  // namespace rnbd
