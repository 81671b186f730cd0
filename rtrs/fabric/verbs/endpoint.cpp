#include "rtrs/fabric/verbs/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rtrs::verbs {
namespace {

// Answers, keys and request headers; larger payloads are fetched by the device.
constexpr std::uint32_t inline_bytes_wanted = 128;
constexpr unsigned completions_per_close = ~0u;

// How often the peer repeats a message that found no receive here, and after how long (12: 0.64
// ms). Receives that run dry for longer break the agreement (P7); 7 would mean for ever.
constexpr std::uint8_t receiver_not_ready_retries = 6;
constexpr std::uint8_t receiver_not_ready_timer = 12;
constexpr std::uint8_t transport_retries = 7;
// InfiniBand's "consumer defined": the peer's program said no.
constexpr int rejected_by_consumer = 28;

constexpr int resolve_timeout_ms = 2000;

std::uint32_t sends_allowed(const DeviceLimits& limits, std::uint32_t wanted,
                            std::uint32_t revoke_places) noexcept {
    const std::uint32_t most = std::min(limits.work_requests_max, limits.completions_max / 2);
    return std::max(1u, std::min(wanted, most > revoke_places ? most - revoke_places : 1u));
}

std::uint32_t receives_allowed(const DeviceLimits& limits, std::uint32_t wanted) noexcept {
    return std::max(1u, std::min({wanted, limits.work_requests_max, limits.completions_max / 2}));
}

std::error_code error_of(const CmEvent& event) noexcept {
    if (event.status < 0) return from_errno(event.status);
    switch (event.type) {
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
            return from_errno(EHOSTUNREACH);
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return from_errno(ENODEV);
        case RDMA_CM_EVENT_DISCONNECTED:
            return Error::closed_by_peer;
        default:
            return from_errno(ECONNRESET);
    }
}

}  // namespace

std::expected<std::unique_ptr<VerbsEndpoint>, std::error_code> VerbsEndpoint::create(
    const Setup& setup) {
    if (!depths_valid(setup.depths)) return std::unexpected(from_errno(EINVAL));
    if (const auto error = setup.engine->usable()) return std::unexpected(error);
    return std::unique_ptr<VerbsEndpoint>(new VerbsEndpoint(setup));
}

VerbsEndpoint::VerbsEndpoint(const Setup& setup)
    : engine_(setup.engine),
      use_(std::in_place, *engine_),
      domain_(setup.domain),
      handler_(setup.handler),
      timer_(engine_->reactor(), this,
             [](void* self) { static_cast<VerbsEndpoint*>(self)->fail(from_errno(ETIMEDOUT)); }),
      sends_max_(sends_allowed(engine_->limits(), setup.depths.send_queue_depth, revoke_places)),
      receives_max_(receives_allowed(engine_->limits(), setup.depths.receive_queue_depth)),
      end_news_(setup.depths.end_news),
      sends_(sends_max_ + revoke_places),
      receives_(receives_max_) {
    if (sends_max_ < setup.depths.send_queue_depth ||
        receives_max_ < setup.depths.receive_queue_depth) {
        engine_->trace(TraceLevel::warning,
                       "queues of " + std::to_string(setup.depths.send_queue_depth) +
                           " sends and " + std::to_string(setup.depths.receive_queue_depth) +
                           " receives are wanted; the device allows " + std::to_string(sends_max_) +
                           " and " + std::to_string(receives_max_));
    }
}

VerbsEndpoint::~VerbsEndpoint() { RTRS_ASSERT(state_ == State::drained || state_ == State::idle); }

// --- The dialling side.

void VerbsEndpoint::dial(const Address* source, const Address& destination, Bytes private_data) {
    RTRS_ASSERT(private_data.size() <= private_data_request_max);
    std::ranges::copy(private_data, private_data_.begin());
    private_bytes_ = private_data.size();
    state_ = State::resolving;
    timer_.arm(engine_->reactor().now() + engine_->connect_timeout());
    resolve(source, destination);
}

void VerbsEndpoint::resolve(const Address* source, const Address& destination) {
    const auto id = engine_->create_id(*this);
    if (!id) return fail(id.error());
    id_ = *id;
    Address from = source != nullptr ? *source : Address{};
    Address to = destination;
    if (rdma_resolve_addr(id_, source != nullptr ? from.get() : nullptr, to.get(),
                          resolve_timeout_ms) != 0) {
        fail(from_errno(errno));
    }
}

void VerbsEndpoint::address_resolved() {
    if (const auto error = engine_->usable()) return fail(error);
    if (!engine_->is_on_device(*id_)) return fail(from_errno(ENODEV));
    reads_out_ = reads_in_ = engine_->limits().reads_max;
    if (const auto error = make_queue_pair()) return fail(error);
    if (rdma_resolve_route(id_, resolve_timeout_ms) != 0) fail(from_errno(errno));
}

void VerbsEndpoint::connect_now() {
    state_ = State::connecting;
    rdma_conn_param parameters = connection_parameters();
    if (rdma_connect(id_, &parameters) != 0) fail(from_errno(errno));
}

rdma_conn_param VerbsEndpoint::connection_parameters() const noexcept {
    rdma_conn_param parameters{};
    parameters.private_data = private_data_.data();
    parameters.private_data_len = static_cast<std::uint8_t>(private_bytes_);
    parameters.responder_resources = reads_in_;
    parameters.initiator_depth = reads_out_;
    parameters.retry_count = transport_retries;
    parameters.rnr_retry_count = receiver_not_ready_retries;
    return parameters;
}

void VerbsEndpoint::rejected(const CmEvent& event) {
    // iWARP has no reasons: there a refusal by the program is one that says something.
    const bool by_program = event.status == rejected_by_consumer ||
                            (event.status == -ECONNREFUSED && event.private_bytes > 0);
    if (state_ != State::connecting || !by_program) {
        return fail(from_errno(state_ == State::connecting ? ECONNREFUSED : ECONNRESET));
    }
    rejected_ = true;
    private_bytes_ = event.private_bytes;
    std::ranges::copy(event.data(), private_data_.begin());
    fail(Error::rejected);
}

// --- The accepting side.

std::error_code VerbsEndpoint::adopt(rdma_cm_id* id, const CmEvent& request, Bytes private_data) {
    id_ = id;
    id_->context = static_cast<CmOwner*>(this);
    std::ranges::copy(private_data, private_data_.begin());
    private_bytes_ = private_data.size();
    const std::uint8_t most = engine_->limits().reads_max;
    reads_in_ = std::min(request.responder_resources, most);
    reads_out_ = std::min(request.initiator_depth, most);
    const auto error = engine_->is_on_device(*id) ? make_queue_pair() : from_errno(ENODEV);
    if (error) {
        destroy_queue_pair();
        id_ = nullptr;
        return error;
    }
    state_ = State::adopted;
    timer_.arm(engine_->reactor().now() + engine_->connect_timeout());
    // The caller posts its receives first: the peer may send as soon as it is accepted.
    schedule();
    return {};
}

void VerbsEndpoint::accept_now() {
    state_ = State::accepting;
    rdma_conn_param parameters = connection_parameters();
    if (rdma_accept(id_, &parameters) != 0) return fail(from_errno(ECONNRESET));
    connected_ = true;
    local_address_ = to_text(*rdma_get_local_addr(id_));
    remote_address_ = to_text(*rdma_get_peer_addr(id_));
    shorten_receiver_wait();
}

// --- Both.

std::error_code VerbsEndpoint::make_queue_pair() {
    const auto entries = static_cast<int>(sends_.capacity() + receives_max_);
    completions_ = ibv_create_cq(engine_->device(), entries, this, engine_->completion_channel(),
                                 engine_->next_completion_vector());
    if (completions_ == nullptr) return from_errno(errno);
    if (const int error = ibv_req_notify_cq(completions_, 0)) return from_errno(error);
    if (const auto error = create_deepest_queue_pair()) return error;
    std::error_code failed;
    receives_.for_each([&](const ReceiveRing::Entry& entry) {
        if (!failed) failed = post_to_device(entry);
    });
    return failed;
}

// At each depth it is tried without inlining, too: some devices refuse what they cannot inline. And
// that before a shorter queue, which makes requests wait for each other, where inlining only spares
// the device a fetch. On mlx5 little is lost: what that counts as work requests are blocks of 64
// bytes, of which a request with 128 inlined bytes takes six and one without takes four, and it
// inlines into what is left of those anyway.
std::error_code VerbsEndpoint::create_deepest_queue_pair() {
    const std::uint32_t wanted = sends_max_;
    std::error_code error;
    do {
        error = create_queue_pair(inline_bytes_wanted);
        if (error) error = create_queue_pair(0);
        if (error && request_is_over()) return from_errno(ECONNRESET);
    } while ((error == from_errno(EINVAL) || error == from_errno(ENOMEM)) && halve_sends());
    if (!error && sends_max_ < wanted) {
        engine_->trace(TraceLevel::warning, "a queue of " + std::to_string(wanted) +
                                                " sends is wanted; the device has room for " +
                                                std::to_string(sends_max_));
    }
    return error;
}

// The error of a queue pair does not say why. But what rdma_cm has to say for each of them it says
// by itself, too, unless the peer (or the device) has gone.
bool VerbsEndpoint::request_is_over() const noexcept {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    int mask = 0;
    return rdma_init_qp_attr(id_, &attributes, &mask) != 0 && errno == EINVAL;
}

// False: it is as short as every fabric's. Nothing was posted yet.
bool VerbsEndpoint::halve_sends() {
    RTRS_ASSERT(sends_.empty());
    if (sends_max_ <= send_queue_depth_least) return false;
    sends_max_ = std::max(sends_max_ / 2, send_queue_depth_least);
    sends_ = SendRing(sends_max_ + revoke_places);
    return true;
}

std::error_code VerbsEndpoint::create_queue_pair(std::uint32_t inline_bytes) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = completions_;
    attributes.recv_cq = completions_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = sends_.capacity();
    attributes.cap.max_recv_wr = receives_max_;
    attributes.cap.max_send_sge = max_segments;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = inline_bytes;
    if (rdma_create_qp(id_, domain_.get(), &attributes) != 0) return from_errno(errno);
    inline_bytes_max_ = attributes.cap.max_inline_data;
    return {};
}

// rdma_cm leaves it at 0, which means 655 ms.
void VerbsEndpoint::shorten_receiver_wait() noexcept {
    ibv_qp_attr attributes{};
    attributes.min_rnr_timer = receiver_not_ready_timer;
    (void)ibv_modify_qp(queue(), &attributes, IBV_QP_MIN_RNR_TIMER);
}

void VerbsEndpoint::on_cm_event(const CmEvent& event) {
    if (event.type == RDMA_CM_EVENT_DISCONNECTED) peer_ended_it_ = true;
    if (state_ == State::closing || state_ == State::drained) return;
    switch (event.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            return address_resolved();
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            return connect_now();
        case RDMA_CM_EVENT_ESTABLISHED:
            return established(event.data());
        case RDMA_CM_EVENT_REJECTED:
            return rejected(event);
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return fail(error_of(event));
        case RDMA_CM_EVENT_DISCONNECTED:
            fail(error_of(event));
            if (end_news_ == EndpointOptions::EndNews::at_once) tell();
            return;
        default:
            return;  // address changes and the like: the connection lives on
    }
}

void VerbsEndpoint::established(Bytes private_data) {
    if (state_ == State::established) return;  // a message was here before
    if (state_ == State::connecting) {
        connected_ = true;
        local_address_ = to_text(*rdma_get_local_addr(id_));
        remote_address_ = to_text(*rdma_get_peer_addr(id_));
        shorten_receiver_wait();
        private_bytes_ = std::min(private_data.size(), private_data_reply_max);
        std::ranges::copy(private_data.first(private_bytes_), private_data_.begin());
    } else {
        private_bytes_ = 0;
    }
    became_established();
}

void VerbsEndpoint::ask_network(bool on) noexcept {
    sends_.signal_all(on);
    if (on) asked_ = sends_.next();
}

// Until the peer's device has taken the question, what it takes of what was posted before is as
// good as an answer; what it takes later is not. Nothing at all is quiet, too: a device may keep a
// queue without a word. (Soft-RoCE of Linux 6.1 does, at the peer: it executes a bind again when it
// sends again what came before, which fails the second time.)
Duration VerbsEndpoint::quiet() const noexcept {
    if (state_ != State::established) return Duration::zero();
    const Instant since = sends_.waits(asked_) ? std::max(received_at_, sent_at_) : received_at_;
    return engine_->reactor().now() - since;
}

void VerbsEndpoint::became_established() {
    state_ = State::established;
    received_at_ = engine_->reactor().now();
    timer_.disarm();
    established_ = true;
    handler_.on_established(Bytes(private_data_).first(private_bytes_));
    // What came before was left in the queue, and makes no other event.
    engine_->poll_again(*this);
}

void VerbsEndpoint::disconnect(std::error_code) { fail({}); }

void VerbsEndpoint::fail(std::error_code reason) noexcept {
    if (state_ == State::closing || state_ == State::drained) return;
    state_ = State::closing;
    reason_ = reason;
    timer_.disarm();
    schedule();
}

void VerbsEndpoint::tell() {
    if (std::exchange(told_, true)) return;
    if (rejected_) {
        handler_.on_rejected(Bytes(private_data_).first(private_bytes_));
    } else {
        handler_.on_disconnected(reason_);
    }
}

void VerbsEndpoint::end_of_turn() {
    if (state_ == State::adopted) return accept_now();
    if (state_ == State::closing) close();
}

void VerbsEndpoint::close() {
    // Of one that was never established this is the first that its owner hears.
    if (!established_) tell();
    if (completions_ != nullptr) poll(completions_per_close);
    tell();
    // To error, and a word to the peer (or the answer to its own).
    if (connected_) (void)rdma_disconnect(id_);
    destroy_queue_pair();
    flush();
    if (linked()) IntrusiveList<VerbsEndpoint>::remove(*this);
    if (watched_queue_.linked()) IntrusiveList<WatchedQueue>::remove(watched_queue_);
    Reactor::cancel_turn_end(turn_task_);
    if (id_ != nullptr) {
        rdma_cm_id* id = std::exchange(id_, nullptr);
        if (connected_ && !peer_ended_it_) {
            engine_->linger(id);
        } else {
            rdma_destroy_id(id);
        }
    }
    state_ = State::drained;
    use_.reset();
    handler_.on_drained();  // may destroy this
}

void VerbsEndpoint::destroy_queue_pair() {
    if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
    if (completions_ == nullptr) return;
    if (state_ == State::closing) poll(completions_per_close);
    (void)ibv_destroy_cq(std::exchange(completions_, nullptr));
}

void VerbsEndpoint::flush() {
    sends_.flush([&](const SendContext& context) {
        if (context.kind == SendContext::Kind::revoke)
            return waiting_revokes_.push_back(*context.window);
        --works_;
        deliver(CompletionOpcode::send, CompletionStatus::flushed, context.context);
    });
    while (!receives_.empty()) {
        deliver(CompletionOpcode::receive, CompletionStatus::flushed, receives_.pop().context);
    }
    // The bind of no bytes may not have been executed.
    while (!waiting_revokes_.empty()) {
        VerbsWindow& window = waiting_revokes_.pop_front();
        window.replace();
        deliver_revoked(window);
    }
}

}  // namespace rtrs::verbs
