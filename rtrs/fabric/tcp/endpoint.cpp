#include "rtrs/fabric/tcp/endpoint.h"

#include <cerrno>
#include <utility>

#include "rtrs/base/member_call.h"
#include "rtrs/fabric/tcp/dial.h"
#include "rtrs/fabric/tcp/socket_options.h"

namespace rtrs::tcp {
std::expected<std::unique_ptr<TcpEndpoint>, std::error_code> TcpEndpoint::create(
    const Setup& setup) {
    if (!depths_valid(setup.depths)) return std::unexpected(from_errno(EINVAL));
    ReservedMemory read_memory(ReservedMemory::bytes_for<Read>(reads_max) +
                               ReservedMemory::bytes_for<Answer>(answers_max));
    if (read_memory.empty()) return std::unexpected(from_errno(ENOMEM));
    std::unique_ptr<TcpEndpoint> endpoint(new TcpEndpoint(setup, std::move(read_memory)));
    if (!endpoint->sends_.ready() || !endpoint->receives_.ready()) {
        return std::unexpected(from_errno(ENOMEM));
    }
    return endpoint;
}

TcpEndpoint::TcpEndpoint(const Setup& setup, ReservedMemory read_memory)
    : reactor_(setup.reactor),
      domain_(setup.domain),
      handler_(setup.handler),
      tracer_(setup.tracer),
      silence_max_(setup.depths.silence_max),
      packets_(setup.depths.packets),
      sends_(setup.depths.send_queue_depth, answers_max),
      read_memory_(std::move(read_memory)),
      receives_(setup.depths.receive_queue_depth) {}

TcpEndpoint::~TcpEndpoint() { RTRS_ASSERT(state_ == State::idle || state_ == State::drained); }

void TcpEndpoint::dial(const DialOptions& options) {
    RTRS_ASSERT(state_ == State::idle);
    state_ = State::connecting;
    domain_.add(*this);
    dial_ = std::make_unique<Dial>(*this, options);
    dial_->start();
}

void TcpEndpoint::adopt(int fd, const Agreement& agreement) {
    RTRS_ASSERT(state_ == State::idle);
    state_ = State::adopted;
    accepted_ = true;
    domain_.add(*this);
    fd_ = fd;
    limit_silence(fd, silence_max_);
    agreement_ = agreement;
    schedule();
}

void TcpEndpoint::send_without_copies() {
    zero_copies_ = std::make_unique<ZeroCopySends>(&on_zero_copy, this);
    let_go_.emplace(reactor_, this, member_call<&TcpEndpoint::let_go_of_held>);
    reset_at_close(true);
}

void TcpEndpoint::disconnect(std::error_code why) {
    RTRS_ASSERT(state_ != State::idle);
    if (state_ != State::closing && state_ != State::drained) farewell_ = why;
    fail({});
}

void TcpEndpoint::finish(std::error_code why) {
    if (state_ != State::established || send_broken_) return disconnect(why);
    lingers_ = true;
    lingering_ = std::make_unique<Lingering>(*this);
    disconnect(why);
}

std::string TcpEndpoint::local_address() const {
    return state_ == State::connecting || fd_ < 0 ? std::string() : rtrs::local_address(fd_);
}

Duration TcpEndpoint::unacknowledged() const noexcept {
    return fd_ < 0 ? Duration::zero() : unacknowledged_by(fd_);
}

Duration TcpEndpoint::quiet() const noexcept {
    return fd_ < 0 || sending() || sends_.pending() ? Duration::zero() : quietness_of(fd_);
}

void TcpEndpoint::ask_network(bool on) noexcept {
    if (fd_ >= 0) on ? try_silence_soon(fd_) : limit_silence(fd_, silence_max_);
}

std::string TcpEndpoint::remote_address() const {
    return state_ == State::connecting || fd_ < 0 ? std::string() : rtrs::remote_address(fd_);
}

// The one way into closing. Everything that the owner learns of it comes at the end of a turn.
void TcpEndpoint::fail(std::error_code reason) {
    if (state_ == State::closing || state_ == State::drained) return;
    const State before = std::exchange(state_, State::closing);
    reason_ = reason;
    if (before == State::established) say_goodbye();
    if (dial_) dial_->stop();
    if (fd_ >= 0) ::shutdown(fd_, lingers_ ? SHUT_WR : SHUT_RDWR);
    if (zero_copies_) end_zero_copies();
    reactor_.cancel(send_operation_);
    if (zero_copy_sending_ != nullptr) reactor_.cancel(*zero_copy_sending_);
    if (!lingers_) reactor_.cancel(stream_operation_);
    reactor_.cancel(direct_operation_);
    schedule();
}

// At an end that somebody asked for, the peer has a moment to take what is on its way.
void TcpEndpoint::end_zero_copies() noexcept {
    if (lingers_) return;  // until the end of that
    if (reason_ || !zero_copies_->holds()) return let_go_of_held();
    let_go_->arm(reactor_.now() + LastBytes::interval);
}

void TcpEndpoint::refuse(std::error_code reason, const std::string& what) {
    const bool news = state_ == State::established || state_ == State::connecting;
    if (news && tracer_ != nullptr) {
        const std::string peer = fd_ < 0 ? std::string() : rtrs::remote_address(fd_);
        tracer_->trace(TraceLevel::warning, "rtrs.fabric.tcp", peer,
                       "the peer broke the protocol: " + what);
    }
    fail(reason);
}

// A courtesy: tells the peer why, if the stream is between two frames and the socket takes it now.
void TcpEndpoint::say_goodbye() noexcept {
    if (sending() || send_broken_ || !sends_.at_frame_boundary()) return;
    FrameHeader header;
    header.opcode = Opcode::disconnect;
    header.immediate = static_cast<std::uint32_t>(disconnect_reason(reason_ ? reason_ : farewell_));
    std::array<std::byte, header_bytes> frame;
    emit_header(header, frame.data());
    (void)::send(fd_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void TcpEndpoint::end_of_turn() {
    if (state_ == State::adopted) establish({});
    deliver_revoked();
    if (state_ == State::established) {
        complete_works();
        start_send();
        arm_receive();
    }
    if (state_ == State::closing) close_step();
}

void TcpEndpoint::establish(Bytes private_data) {
    state_ = State::established;
    handler_.on_established(private_data);
    arm_receive();
}

void TcpEndpoint::close_step() {
    if (!told_) {
        told_ = true;
        if (rejected_) {
            handler_.on_rejected(dial_->private_data());
        } else {
            handler_.on_disconnected(reason_);
        }
    }
    if (lingers_) return await_peers_end();
    if (!ring_idle()) return;  // each completion comes back here
    release_answers(~std::uint64_t{0});
    if (revokes_pending_ > 0) return;
    if (let_go_) let_go_->disarm();
    flush();
    deliver_revoked();
    state_ = State::drained;
    Reactor::cancel_turn_end(turn_task_);
    TcpDomain::remove(*this);
    dial_.reset();
    if (zero_copies_) reset_at_close(false);  // nothing is held; what is on its way is to arrive
    if (fd_ >= 0) reactor_.close_fd(std::exchange(fd_, -1));
    handler_.on_drained();  // may destroy this
}

TcpEndpoint::Lingering::Lingering(TcpEndpoint& endpoint)
    : last_bytes(endpoint.fd_, endpoint.reactor_.now()),
      look(endpoint.reactor_, &endpoint, member_call<&TcpEndpoint::look_at_last_bytes>) {
    look.arm(endpoint.reactor_.now() + LastBytes::interval);
}

void TcpEndpoint::await_peers_end() {
    if (stream_operation_.in_flight || direct_operation_.in_flight) return;
    reactor_.recv_provided(stream_operation_, fd_, 0, Reactor::FirstTry::at_once);
}

void TcpEndpoint::look_at_last_bytes() noexcept {
    if (!lingering_->last_bytes.goes_on(reactor_.now())) return end_lingering();
    lingering_->look.arm(reactor_.now() + LastBytes::interval);
}

void TcpEndpoint::end_lingering() noexcept {
    lingers_ = false;
    lingering_->look.disarm();
    if (zero_copies_) let_go_of_held();
    ::shutdown(fd_, SHUT_RDWR);
    reactor_.cancel(stream_operation_);
    schedule();
}

bool TcpEndpoint::ring_idle() const noexcept {
    return !sending() && !(zero_copies_ && zero_copies_->holds()) && !stream_operation_.in_flight &&
           !direct_operation_.in_flight && (!dial_ || dial_->idle());
}

void TcpEndpoint::flush() {
    while (const auto work = sends_.take()) {
        complete(CompletionOpcode::send, CompletionStatus::flushed, work->context);
    }
    while (!receives_.empty()) {
        complete(CompletionOpcode::receive,
                 std::exchange(first_receive_status_, CompletionStatus::flushed),
                 receives_.pop().context);
    }
}

void TcpEndpoint::complete(CompletionOpcode opcode, CompletionStatus status,
                           std::uint64_t context) {
    Completion completion;
    completion.opcode = opcode;
    completion.status = status;
    completion.context = context;
    handler_.on_completion(completion);
}

RevokeResult TcpEndpoint::post_revoke(MemoryWindow window, std::uint64_t context) {
    RTRS_ASSERT(state_ != State::drained);
    const RevokeResult result =
        static_cast<TcpWindows&>(*window.of).revoke(window.number, *this, context);
    if (result == RevokeResult::pending) ++revokes_pending_;
    return result;
}

void TcpEndpoint::revoked() noexcept {
    --revokes_pending_;
    ++revokes_to_tell_;
    schedule();
}

void TcpEndpoint::deliver_revoked() {
    while (revokes_to_tell_ > 0) {
        --revokes_to_tell_;
        const auto context = domain_.take_revoked(*this);
        RTRS_ASSERT(context);
        complete(CompletionOpcode::revoke, CompletionStatus::success, *context);
    }
}

void TcpEndpoint::fail_placing(std::uint32_t slot) {
    if (direct_slot_ == slot) fail(Error::remote_access);
}

}  // namespace rtrs::tcp
