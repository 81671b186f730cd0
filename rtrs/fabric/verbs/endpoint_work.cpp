#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "rtrs/fabric/verbs/endpoint.h"

namespace rtrs::verbs {
namespace {

constexpr std::size_t batch_works_max = 16;
constexpr int completions_per_poll = 32;
// One endpoint's share of a turn.
constexpr unsigned batches_per_turn = 16;
constexpr unsigned rxe_with_invalidation = 1u << 2;

// A work id names its ring in the lowest bit and its number in that ring above.
constexpr std::uint64_t send_id(std::uint64_t number) noexcept { return number << 1; }
constexpr std::uint64_t receive_id = 1;
constexpr bool is_receive(std::uint64_t id) noexcept { return (id & 1) != 0; }
constexpr std::uint64_t number_of(std::uint64_t id) noexcept { return id >> 1; }

ibv_wr_opcode opcode_of(WorkOpcode opcode) noexcept {
    switch (opcode) {
        case WorkOpcode::send:
            return IBV_WR_SEND;
        case WorkOpcode::send_immediate:
            return IBV_WR_SEND_WITH_IMM;
        case WorkOpcode::send_invalidate:
            return IBV_WR_SEND_WITH_INV;
        case WorkOpcode::write:
            return IBV_WR_RDMA_WRITE;
        case WorkOpcode::write_immediate:
            return IBV_WR_RDMA_WRITE_WITH_IMM;
        case WorkOpcode::read:
            return IBV_WR_RDMA_READ;
        case WorkOpcode::bind_window:
            break;
    }
    return IBV_WR_BIND_MW;
}

std::uint64_t bytes_of(const WorkRequest& request) noexcept {
    std::uint64_t bytes = 0;
    for (const Segment& segment : request.local) bytes += segment.bytes;
    return bytes;
}

enum class Queue : std::uint8_t { send, receive };

CompletionStatus status_of(ibv_wc_status status, Queue queue) noexcept {
    switch (status) {
        case IBV_WC_SUCCESS:
            return CompletionStatus::success;
        case IBV_WC_WR_FLUSH_ERR:
            return CompletionStatus::flushed;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            return CompletionStatus::remote_access;
        case IBV_WC_LOC_LEN_ERR:
            return CompletionStatus::length;
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_LOC_QP_OP_ERR:
            // rxe's words for a message that is longer than the receive.
            return queue == Queue::receive ? CompletionStatus::length : CompletionStatus::transport;
        default:
            return CompletionStatus::transport;
    }
}

std::error_code reason_of(ibv_wc_status status, Queue queue) noexcept {
    if (status_of(status, queue) == CompletionStatus::length) return Error::protocol;
    switch (status) {
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            return Error::remote_access;
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return Error::protocol;
        case IBV_WC_RETRY_EXC_ERR:
            return from_errno(ETIMEDOUT);
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_QP_OP_ERR:
        case IBV_WC_MW_BIND_ERR:
            return from_errno(EFAULT);
        default:
            return from_errno(ECONNRESET);
    }
}

}  // namespace

// Work requests that go to the device in one call.
class VerbsEndpoint::Batch {
  public:
    explicit Batch(VerbsEndpoint& owner) noexcept : owner_(owner) {}
    bool full() const noexcept { return count_ == batch_works_max; }
    std::error_code add(const WorkRequest& request);
    std::error_code submit() noexcept;

  private:
    VerbsEndpoint& owner_;
    std::size_t count_ = 0;
    std::array<ibv_send_wr, batch_works_max> works_;
    std::array<std::array<ibv_sge, max_segments>, batch_works_max> segments_;
};

std::error_code VerbsEndpoint::Batch::add(const WorkRequest& request) {
    ibv_send_wr& work = works_[count_] = {};
    int segments = 0;
    if (const auto error = owner_.find_segments(request, segments_[count_].data(), segments)) {
        return error;
    }
    work.sg_list = segments_[count_].data();
    work.num_sge = segments;
    work.opcode = opcode_of(request.opcode);
    const auto posted = owner_.sends_.push({.context = request.context,
                                            .report = request.signal == Signal::completion
                                                          ? SendContext::Report::always
                                                          : SendContext::Report::failure_only});
    ++owner_.works_;
    work.wr_id = send_id(posted.number);
    if (posted.signalled == SendRing::Signalled::yes) work.send_flags |= IBV_SEND_SIGNALED;
    if (request.opcode != WorkOpcode::read && segments > 0 &&
        bytes_of(request) <= owner_.inline_bytes_max_) {
        work.send_flags |= IBV_SEND_INLINE;
    }
    if (request.opcode == WorkOpcode::send_invalidate) {
        work.invalidate_rkey = request.invalidate;
    } else {
        work.imm_data = htonl(request.immediate);
    }
    work.wr.rdma.remote_addr = request.remote.address;
    work.wr.rdma.rkey = request.remote.key;
    if (count_ > 0) works_[count_ - 1].next = &work;
    ++count_;
    return {};
}

std::error_code VerbsEndpoint::Batch::submit() noexcept {
    if (count_ == 0) return {};
    count_ = 0;
    ibv_send_wr* refused = nullptr;
    return from_errno(ibv_post_send(owner_.queue(), works_.data(), &refused));
}

// --- Posting.

std::error_code VerbsEndpoint::post(std::span<const WorkRequest> chain) {
    if (state_ != State::established && state_ != State::closing) return from_errno(ENOTCONN);
    if (const auto error = check(chain)) return error;
    if (state_ == State::closing) {
        push_unsent(chain);
        return {};
    }
    const std::uint32_t before = works_;
    if (const auto error = submit(chain)) {
        // What the device refuses now is lost like a connection: some of the chain may be on its
        // way, and all of it has to complete.
        push_unsent(chain.subspan(works_ - before));
        fail(error);
    }
    return {};
}

// To be flushed with all else.
void VerbsEndpoint::push_unsent(std::span<const WorkRequest> chain) noexcept {
    for (const WorkRequest& request : chain) {
        sends_.push({.context = request.context});
        ++works_;
    }
}

std::error_code VerbsEndpoint::check(std::span<const WorkRequest> chain) const noexcept {
    // The ring has them: revokes have places of their own.
    if (chain.size() > sends_max_ - works_) return from_errno(ENOBUFS);
    for (const WorkRequest& request : chain) {
        if (const auto error = check(request)) return error;
    }
    return {};
}

std::error_code VerbsEndpoint::check(const WorkRequest& request) const noexcept {
    if (request.local.size() > max_segments) return from_errno(EINVAL);
    if (request.opcode == WorkOpcode::bind_window) {
        if (request.local.size() != 1 || request.window.of == nullptr) {
            return from_errno(EINVAL);
        }
        return window_of(request.window).check_bind(request.local[0]);
    }
    if (request.opcode == WorkOpcode::read) {
        if (request.local.size() != 1) return from_errno(EINVAL);
        if (reads_out_ == 0) return from_errno(EOPNOTSUPP);
    }
    if (bytes_of(request) > engine_->limits().message_bytes_max) return from_errno(EMSGSIZE);
    return std::ranges::all_of(request.local,
                               [&](const Segment& segment) {
                                   return segment.bytes == 0 || domain_.find(segment) != nullptr;
                               })
               ? std::error_code{}
               : from_errno(EFAULT);
}

std::error_code VerbsEndpoint::submit(std::span<const WorkRequest> chain) {
    Batch batch(*this);
    for (const WorkRequest& request : chain) {
        if (request.opcode == WorkOpcode::bind_window) {  // has a call of its own
            if (const auto error = batch.submit()) return error;
            if (const auto error = submit_bind(request)) return error;
            continue;
        }
        if (const auto error = batch.add(request)) return error;
        if (!batch.full()) continue;
        if (const auto error = batch.submit()) return error;
    }
    return batch.submit();
}

std::error_code VerbsEndpoint::submit_bind(const WorkRequest& request) {
    const auto posted = sends_.push({.context = request.context,
                                     .report = request.signal == Signal::completion
                                                   ? SendContext::Report::always
                                                   : SendContext::Report::failure_only});
    ++works_;
    return window_of(request.window)
        .bind(queue(), request.local[0], send_id(posted.number),
              posted.signalled == SendRing::Signalled::yes ? unsigned{IBV_SEND_SIGNALED} : 0u);
}

std::error_code VerbsEndpoint::find_segments(const WorkRequest& request, ibv_sge* segments,
                                             int& count) {
    for (const Segment& segment : request.local) {
        if (segment.bytes == 0) continue;
        const VerbsRegion* region = domain_.find(segment);
        if (region == nullptr) return from_errno(EFAULT);
        segments[count++] = {.addr = reinterpret_cast<std::uint64_t>(segment.data),
                             .length = segment.bytes,
                             .lkey = region->get()->lkey};
    }
    return {};
}

std::error_code VerbsEndpoint::post_receive(std::uint64_t context, Segment buffer) {
    if (receives_.full()) return from_errno(ENOBUFS);
    const ReceiveRing::Entry entry{context, buffer};
    if (id_ != nullptr && id_->qp != nullptr && state_ != State::closing) {
        if (const auto error = post_to_device(entry)) return error;
    }
    receives_.push(entry);
    return {};
}

std::error_code VerbsEndpoint::post_to_device(const ReceiveRing::Entry& entry) {
    ibv_recv_wr work{};
    ibv_sge segment{};
    work.wr_id = receive_id;
    if (entry.buffer.bytes > 0) {
        const VerbsRegion* region = domain_.find(entry.buffer);
        if (region == nullptr) return from_errno(EFAULT);
        segment = {.addr = reinterpret_cast<std::uint64_t>(entry.buffer.data),
                   .length = entry.buffer.bytes,
                   .lkey = region->get()->lkey};
        work.sg_list = &segment;
        work.num_sge = 1;
    }
    ibv_recv_wr* refused = nullptr;
    return from_errno(ibv_post_recv(queue(), &work, &refused));
}

// --- Revokes.

RevokeResult VerbsEndpoint::post_revoke(MemoryWindow revoked, std::uint64_t context) {
    RTRS_ASSERT(state_ != State::drained);
    VerbsWindow& window = window_of(revoked);
    if (!window.bound()) return RevokeResult::effective;
    if (state_ != State::established) {
        window.replace();
        return RevokeResult::effective;
    }
    window.begin_revoke(context);
    if (!waiting_revokes_.empty() || !revoke_now(window)) waiting_revokes_.push_back(window);
    return RevokeResult::pending;
}

// They take none of the places of works: whoever waits for one of those waits for a work to
// complete.
bool VerbsEndpoint::room_for_revoke() const noexcept {
    return sends_.used() - works_ < revoke_places;
}

// False: no place in the send queue.
bool VerbsEndpoint::revoke_now(VerbsWindow& window) {
    if (!room_for_revoke()) return false;
    const auto posted = sends_.push({.kind = SendContext::Kind::revoke,
                                     .report = SendContext::Report::always,
                                     .window = &window});
    if (const auto error = window.unbind(queue(), send_id(posted.number))) fail(error);
    return true;
}

void VerbsEndpoint::revoke_waiting() {
    while (!waiting_revokes_.empty() && state_ == State::established && room_for_revoke()) {
        revoke_now(waiting_revokes_.pop_front());
    }
}

// --- Completions.

void VerbsEndpoint::on_completions() {
    if (completions_ == nullptr) return;
    // Where the kernel sets queue pairs up (iWARP), the peer's first message may be here before the
    // event that says we are connected: it is left there until then.
    if (state_ == State::connecting) return;
    // Armed first: what comes after the last look makes another event.
    if (!engine_->watches(*this)) arm();
    if (poll(batches_per_turn) == QueueState::more) engine_->poll_again(*this);
}

void VerbsEndpoint::arm() noexcept {
    if (completions_ == nullptr) return;
    if (ibv_req_notify_cq(completions_, 0) != 0) fail(from_errno(EIO));
}

bool VerbsEndpoint::has_completion() noexcept {
    if (seen_ || state_ == State::closing) return true;  // a turn has work with it
    if (completions_ == nullptr) return false;
    ibv_wc completion;
    const int count = ibv_poll_cq(completions_, 1, &completion);
    if (count < 0) fail(from_errno(EIO));
    if (count > 0) seen_ = completion;
    return count != 0;
}

VerbsEndpoint::QueueState VerbsEndpoint::poll(unsigned batches_max) {
    if (seen_) completed(*std::exchange(seen_, std::nullopt));
    std::array<ibv_wc, completions_per_poll> batch;
    for (unsigned i = 0; i < batches_max; ++i) {
        const int count = ibv_poll_cq(completions_, completions_per_poll, batch.data());
        if (count < 0) fail(from_errno(EIO));
        for (int at = 0; at < count; ++at) completed(batch[static_cast<std::size_t>(at)]);
        if (count < completions_per_poll) {
            revoke_waiting();
            return QueueState::empty;
        }
    }
    revoke_waiting();
    return QueueState::more;
}

void VerbsEndpoint::completed(const ibv_wc& completion) {
    (is_receive(completion.wr_id) ? received_at_ : sent_at_) = engine_->reactor().now();
    if (state_ == State::accepting && completion.status == IBV_WC_SUCCESS) {
        // The peer's first message overtook its last word of the handshake.
        private_bytes_ = 0;
        became_established();
    }
    if (completion.status != IBV_WC_SUCCESS) {
        if (state_ != State::closing) {
            engine_->trace(TraceLevel::debug,
                           remote_address_ + (is_receive(completion.wr_id) ? ": receive: " : ": ") +
                               ibv_wc_status_str(completion.status));
        }
        failed(completion);
        tell();
    }
    if (is_receive(completion.wr_id)) {
        receive_completed(completion);
    } else {
        send_completed(completion, number_of(completion.wr_id));
    }
}

void VerbsEndpoint::failed(const ibv_wc& completion) noexcept {
    const std::error_code reason =
        reason_of(completion.status, is_receive(completion.wr_id) ? Queue::receive : Queue::send);
    // The peer's goodbye, which a failure causes on its side too, may overtake what says why.
    if (state_ == State::closing && reason_ == Error::closed_by_peer &&
        completion.status != IBV_WC_WR_FLUSH_ERR) {
        reason_ = reason;
    }
    fail(reason);
}

void VerbsEndpoint::send_completed(const ibv_wc& completion, std::uint64_t number) {
    const CompletionStatus status = status_of(completion.status, Queue::send);
    const bool known = sends_.complete(number, [&](const SendContext& done, std::uint64_t at) {
        // What was executed before the one that failed succeeded.
        const CompletionStatus its = at == number ? status : CompletionStatus::success;
        if (done.kind == SendContext::Kind::revoke) {
            if (its != CompletionStatus::success) done.window->replace();
            return deliver_revoked(*done.window);
        }
        --works_;
        if (its == CompletionStatus::success && done.report == SendContext::Report::failure_only) {
            return;
        }
        deliver(CompletionOpcode::send, its, done.context);
    });
    if (!known) fail(from_errno(EIO));
}

void VerbsEndpoint::receive_completed(const ibv_wc& completion) {
    if (receives_.empty()) return fail(from_errno(EIO));
    Completion told;
    told.context = receives_.pop().context;
    told.opcode = CompletionOpcode::receive;
    told.status = status_of(completion.status, Queue::receive);
    if (told.status == CompletionStatus::success) {
        told.bytes = completion.byte_len;
        const unsigned with_invalidation =
            IBV_WC_WITH_INV |
            (engine_->limits().invalidation_is_bit_2 ? rxe_with_invalidation : 0u);
        if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) {
            told.opcode = CompletionOpcode::receive_immediate;
            told.immediate = ntohl(completion.imm_data);
        } else if ((completion.wc_flags & with_invalidation) != 0) {
            told.opcode = CompletionOpcode::receive_invalidate;
            told.invalidated = completion.invalidated_rkey;
        }
    }
    handler_.on_completion(told);
}

void VerbsEndpoint::deliver_revoked(VerbsWindow& window) {
    const std::uint64_t context = window.revoke_context();
    window.revoked();
    deliver(CompletionOpcode::revoke, CompletionStatus::success, context);
}

void VerbsEndpoint::deliver(CompletionOpcode opcode, CompletionStatus status,
                            std::uint64_t context) {
    Completion completion;
    completion.opcode = opcode;
    completion.status = status;
    completion.context = context;
    handler_.on_completion(completion);
}

}  // namespace rtrs::verbs
