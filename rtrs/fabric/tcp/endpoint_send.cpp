#include <sys/socket.h>

#include <cerrno>

#include "rtrs/fabric/tcp/endpoint.h"

namespace rtrs::tcp {
namespace {

Opcode frame_opcode(WorkOpcode opcode) noexcept {
    switch (opcode) {
        case WorkOpcode::send:
            return Opcode::send;
        case WorkOpcode::send_immediate:
            return Opcode::send_immediate;
        case WorkOpcode::send_invalidate:
            return Opcode::send_invalidate;
        case WorkOpcode::write:
            return Opcode::write;
        case WorkOpcode::write_immediate:
            return Opcode::write_immediate;
        case WorkOpcode::read:
            return Opcode::read_request;
        case WorkOpcode::bind_window:
            break;
    }
    RTRS_ASSERT(false);  // a bind has no frame
    return Opcode::disconnect;
}

// Works of a turn after which what there is leaves, if a call may send it: the peer begins with it
// while the turn goes on. A dozen answers with data, twice as many requests.
constexpr std::uint32_t early_works = 32;

// Only what the opcode uses: the parser refuses stray fields.
FrameHeader header_for(const WorkRequest& request) noexcept {
    FrameHeader header;
    header.opcode = frame_opcode(request.opcode);
    switch (header.opcode) {
        case Opcode::write_immediate:
            header.immediate = request.immediate;
            [[fallthrough]];
        case Opcode::write:
        case Opcode::read_request:
            header.address = request.remote.address;
            header.key = request.remote.key;
            break;
        case Opcode::send_immediate:
            header.immediate = request.immediate;
            break;
        case Opcode::send_invalidate:
            header.key = request.invalidate;
            break;
        default:
            break;
    }
    return header;
}

}  // namespace

std::error_code TcpEndpoint::post(std::span<const WorkRequest> chain) {
    if (state_ != State::established && state_ != State::closing) return from_errno(ENOTCONN);
    if (const int error = check(chain)) return from_errno(error);
    if (chain.size() == 1 && done_at_once(chain[0])) return {};
    for (const WorkRequest& request : chain) submit(request);
    schedule();
    if (sends_.works() >= early_works) send_early();
    return {};
}

// Once in a turn at the most, as the reactor lets it. With several busy peers nobody waits for us
// to find work, but all of them for us to be done with it.
void TcpEndpoint::send_early() {
    if (state_ != State::established || sending() || receives_in_bulk()) return;
    if (!peer_elsewhere_ || reactor_.serves_several_streams()) return;
    if (reactor_.may_call_send()) start_send();
}

int TcpEndpoint::check(std::span<const WorkRequest> chain) const noexcept {
    if (chain.size() > sends_.works_free()) return ENOBUFS;
    std::uint32_t reads = reads_.count();
    for (const WorkRequest& request : chain) {
        if (const int error = check(request)) return error;
        if (request.opcode == WorkOpcode::read && ++reads > agreement_.peer_reads_max) {
            return ENOBUFS;
        }
    }
    return 0;
}

int TcpEndpoint::check(const WorkRequest& request) const noexcept {
    if (request.local.size() > max_segments) return EINVAL;
    if (request.opcode == WorkOpcode::bind_window) {
        if (request.local.size() != 1 || request.window.of == nullptr) return EINVAL;
        return static_cast<const TcpWindows&>(*request.window.of)
            .check_bind(request.window.number, request.local[0]);
    }
    if (request.opcode == WorkOpcode::read && request.local.size() != 1) return EINVAL;
    std::uint64_t bytes = 0;
    for (const Segment& segment : request.local) bytes += segment.bytes;
    return bytes > payload_bytes_max ? EMSGSIZE : 0;
}

// A bind that nobody is to be told of has no place in the queue.
bool TcpEndpoint::done_at_once(const WorkRequest& request) noexcept {
    if (request.opcode != WorkOpcode::bind_window || request.signal != Signal::none) return false;
    if (state_ != State::established) return false;
    bind(request);
    return true;
}

void TcpEndpoint::bind(const WorkRequest& request) noexcept {
    static_cast<TcpWindows&>(*request.window.of).bind(request.window.number, request.local[0]);
}

void TcpEndpoint::submit(const WorkRequest& request) {
    SendQueue::Work work;
    work.context = request.context;
    work.signal = request.signal;
    if (state_ == State::closing) {  // flushed with all else
        sends_.add_work(work);
        return;
    }
    switch (request.opcode) {
        case WorkOpcode::bind_window:
            bind(request);
            break;
        case WorkOpcode::read:
            post_read(request);
            work.unanswered = true;
            break;
        default:
            sends_.append(header_for(request), request.local, agreement_.payload_crc);
            break;
    }
    const std::uint64_t number = sends_.add_work(work);
    if (work.unanswered) reads_.items[(reads_.tail - 1) % reads_max].work = number;
}

std::uint32_t TcpEndpoint::post_read(const WorkRequest& request) {
    const ReadRequest read{request.local[0].bytes, next_read_id_++};
    std::array<std::byte, read_request_bytes> payload;
    emit_read_request(read, payload.data());
    const Segment segment{payload.data(), read_request_bytes};
    sends_.append(header_for(request), {&segment, 1}, agreement_.payload_crc);
    reads_.push({request.local[0], 0, read.id});
    return read.id;
}

void TcpEndpoint::start_send() {
    if (sending() || send_broken_) return;
    const bool zero_copy = zero_copies_ && zero_copies_->may_begin();
    const auto message =
        zero_copy ? sends_.next_message(ZeroCopySends::bytes_min) : sends_.next_message();
    if (!message) return;
    if (message->by_itself) {
        zero_copy_sending_ = &zero_copies_->begin(sends_.sent_position());
        sends_.hold_from(zero_copies_->held_from());
        reactor_.sendmsg_zero_copy(*zero_copy_sending_, fd_, message->content);
    } else {
        // What waits for the payload behind it is not worth the call.
        const bool by_ring = message->continues || (receives_in_bulk() && !answers_bulk());
        reactor_.sendmsg(send_operation_, fd_, message->content,
                         by_ring ? Reactor::SendBy::ring : Reactor::SendBy::call,
                         message->continues ? MSG_MORE : 0);
    }
}

void TcpEndpoint::on_zero_copy(Operation& operation, const Operation::Result& result) {
    auto& send = static_cast<ZeroCopySends::Send&>(operation);
    static_cast<TcpEndpoint*>(send.owner)->zero_copy_told(send, result);
}

void TcpEndpoint::zero_copy_told(const ZeroCopySends::Send& send, const Operation::Result& result) {
    if (!result.more) release_zero_copies();
    if (zero_copy_sending_ == &send) {
        zero_copy_sending_ = nullptr;
        return on_zero_copy_sent(result);
    }
    if (result.copied) give_up_zero_copies();
    if (state_ != State::established) return schedule();
    complete_works();
}

void TcpEndpoint::release_zero_copies() noexcept {
    zero_copies_->release();
    if (zero_copies_->holds()) {
        sends_.hold_from(zero_copies_->held_from());
        return;
    }
    sends_.hold_nothing();
    if (zero_copies_->given_up()) reset_at_close(false);
}

void TcpEndpoint::give_up_zero_copies() noexcept {
    if (zero_copies_->given_up()) return;
    zero_copies_->give_up();
    release_zero_copies();
}

// What this kernel, this socket or the limit of pinned memory does not allow leaves with a copy.
void TcpEndpoint::on_zero_copy_sent(const Operation::Result& result) {
    switch (-result.value) {
        case EINVAL:
        case EOPNOTSUPP:
        case ENOMEM:
        case ENOBUFS:
            give_up_zero_copies();
            return schedule();
        default:
            return on_sent(result);
    }
}

// A ring of a process that was killed lives, and keeps files claimed, for as long as the kernel
// holds memory that a send of it read: no longer than the socket, if closing that is a reset.
void TcpEndpoint::reset_at_close(bool wanted) noexcept {
    const linger at_once{wanted ? 1 : 0, 0};
    (void)::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// What the kernel would send again it reads from memory that its owner is to have back: connect(2)
// to nowhere makes it forget all that, and what it has not sent yet.
void TcpEndpoint::let_go_of_held() noexcept {
    if (!zero_copies_->holds()) return;
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;
    (void)::connect(fd_, &nowhere, sizeof nowhere);
}

// While large payloads come in, requests that leave by themselves make the peer answer in smaller
// batches.
bool TcpEndpoint::receives_in_bulk() const noexcept {
    return large_expected_ > 0 || direct_operation_.in_flight;
}

// An answer to a payload that takes longer than the call leaves before the next one is given to the
// storage, not behind that and behind the receive of one more.
bool TcpEndpoint::answers_bulk() const noexcept {
    constexpr std::uint32_t payload_bytes_min = 64u << 10;
    return accepted_ && frame_.payload_bytes >= payload_bytes_min;
}

void TcpEndpoint::on_sent(const Operation::Result& result) {
    if (result.value > 0) sends_.sent(static_cast<std::size_t>(result.value));
    release_answers(sends_.sent_position());
    if (state_ != State::established) return schedule();
    if (result.value == -EPIPE || result.value == -ECONNRESET) {
        // What the peer said last may still be unread; the receive side meets the end soon.
        send_broken_ = true;
        return;
    }
    if (result.value < 0 && result.value != -EINTR && result.value != -EAGAIN) {
        return fail(from_errno(result.value));
    }
    complete_works();
    if (sends_.pending()) schedule();
}

void TcpEndpoint::complete_works() {
    while (state_ == State::established) {
        const auto work = sends_.take_done();
        if (!work) return;
        if (work->signal == Signal::completion) {
            complete(CompletionOpcode::send, CompletionStatus::success, work->context);
        }
    }
}

void TcpEndpoint::release_answers(std::uint64_t position) noexcept {
    while (!answers_.empty() && answers_.front().end <= position) {
        if (answers_.front().slot != 0) domain_.end_placing(answers_.front().slot);
        answers_.pop();
    }
}

}  // namespace rtrs::tcp
