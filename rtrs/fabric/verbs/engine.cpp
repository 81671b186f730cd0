#include "rtrs/fabric/verbs/engine.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "rtrs/base/member_call.h"
#include "rtrs/fabric/verbs/domain.h"
#include "rtrs/fabric/verbs/endpoint.h"
#include "rtrs/fabric/verbs/listener.h"
#include "rtrs/sockets/address.h"

namespace rtrs::verbs {
namespace {

// Long enough for a few repetitions, should the disconnect request be lost.
constexpr Duration linger_time = std::chrono::seconds(10);
constexpr std::uint32_t rxe_vendor = 0xffffff;
constexpr std::uint8_t reads_wanted = 16;
// Between two looks whether the device is back, and whether the ring let go of a channel.
constexpr Duration look_interval = std::chrono::seconds(1);
constexpr Duration ring_interval = std::chrono::milliseconds(1);
// A turn's share: others' events would come for as long as these do. What is left makes the channel
// readable again. Fewer of rdma_cm's, since each request that is accepted makes a queue pair.
constexpr unsigned queue_events_per_turn = 64;
constexpr unsigned cm_events_per_turn = 16;

std::error_code make_nonblocking(int fd) noexcept {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return from_errno(errno);
    return {};
}

CmEvent copy_of(const rdma_cm_event& event) noexcept {
    CmEvent copy;
    copy.type = event.event;
    copy.id = event.id;
    copy.status = event.status;
    const auto& connection = event.param.conn;
    switch (event.event) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
        case RDMA_CM_EVENT_ESTABLISHED:
        case RDMA_CM_EVENT_REJECTED:
            copy.responder_resources = connection.responder_resources;
            copy.initiator_depth = connection.initiator_depth;
            if (connection.private_data != nullptr) {
                copy.private_bytes = connection.private_data_len;
                std::memcpy(copy.private_data.data(), connection.private_data,
                            connection.private_data_len);
            }
            break;
        default:
            break;
    }
    return copy;
}

bool has_active_port(ibv_context* device, std::uint8_t ports) noexcept {
    for (std::uint8_t port = 1; port <= ports; ++port) {
        ibv_port_attr attributes{};
        if (ibv_query_port(device, port, &attributes) == 0 && attributes.state == IBV_PORT_ACTIVE) {
            return true;
        }
    }
    return false;
}

// The engines of this process on each of librdmacm's contexts. librdmacm keeps a context open until
// the process ends, or until it sees a device of another number at the same address; a device whose
// driver cannot take contexts away (soft-RoCE) is not removed before: `rdma link delete` would wait
// for ever, and the device could not come back.
class ContextBook {
  public:
    void hold(ibv_context* context) {
        const std::scoped_lock lock(mutex_);
        ++users_[context].count;
    }
    // gone: the device was removed.
    void release(ibv_context* context, bool gone) noexcept {
        const std::scoped_lock lock(mutex_);
        const auto found = users_.find(context);
        if (found == users_.end()) return;
        found->second.gone |= gone;
        if (--found->second.count > 0) return;
        if (found->second.gone) close_files(*context);
        users_.erase(found);
    }

  private:
    struct Users {
        unsigned count = 0;
        bool gone = false;
    };

    // The kernel's side of the context ends with its files. Their numbers stay taken, because
    // librdmacm closes them once more.
    static void close_files(const ibv_context& context) noexcept {
        const int nothing = ::eventfd(0, EFD_CLOEXEC);
        if (nothing < 0) return;  // too many files: the removal waits for the end of this process
        (void)::dup3(nothing, context.async_fd, O_CLOEXEC);
        (void)::dup3(nothing, context.cmd_fd, O_CLOEXEC);
        ::close(nothing);
    }

    std::mutex mutex_;
    std::map<ibv_context*, Users> users_;
};

ContextBook& contexts() {
    static ContextBook book;
    return book;
}

}  // namespace

// An id whose queue pair has gone, until the peer answered the disconnect request.
class Engine::LingeringId final : public CmOwner, public ListLink {
  public:
    LingeringId(Engine& engine, rdma_cm_id* id)
        : id_(id), timer_(engine.reactor(), this, member_call<&LingeringId::end>) {
        id_->context = static_cast<CmOwner*>(this);
        timer_.arm(engine.reactor().now() + linger_time);
    }
    void on_cm_event(const CmEvent&) override { end(); }
    void end() {
        IntrusiveList<LingeringId>::remove(*this);
        rdma_destroy_id(id_);
        delete this;
    }

  private:
    rdma_cm_id* id_;
    Timer timer_;
};

Engine::Engine(Reactor& reactor, const VerbsFabricOptions& options) noexcept
    : reactor_(reactor),
      tracer_(options.tracer),
      connect_timeout_(options.connect_timeout),
      local_host_(options.local_host),
      busy_timer_(reactor, this, member_call<&Engine::run_busy>),
      device_timer_(reactor, this, member_call<&Engine::look_for_device>) {}

std::expected<std::shared_ptr<Engine>, std::error_code> Engine::create(
    Reactor& reactor, const VerbsFabricOptions& options) {
    std::shared_ptr<Engine> engine(new Engine(reactor, options));
    if (const auto error = engine->open(options.local_host)) return std::unexpected(error);
    return engine;
}

Engine::~Engine() {
    if (anchor_ != nullptr) rdma_destroy_id(anchor_);
    if (completion_channel_ != nullptr) (void)ibv_destroy_comp_channel(completion_channel_);
    release_device(device_state_ == DeviceState::leaving ? Removed::yes : Removed::no);
    if (devices_ != nullptr) rdma_free_devices(devices_);
    if (cm_channel_ != nullptr) rdma_destroy_event_channel(cm_channel_);
}

std::error_code Engine::open(const std::string& local_host) {
    cm_channel_ = rdma_create_event_channel();
    if (cm_channel_ == nullptr) return from_errno(errno == ENOENT ? ENODEV : errno);
    if (const auto error = make_nonblocking(cm_channel_->fd)) return error;
    if (const auto error = choose_device(local_host)) return error;
    hold_device();
    if (const auto error = query_limits()) return error;
    return open_completion_channel();
}

std::error_code Engine::open_completion_channel() {
    completion_channel_ = ibv_create_comp_channel(device_);
    if (completion_channel_ == nullptr) return from_errno(errno);
    return make_nonblocking(completion_channel_->fd);
}

std::error_code Engine::choose_device(const std::string& local_host) {
    if (local_host.empty()) return choose_first_device();
    if (const auto error = bind_anchor()) return error;
    device_ = anchor_->verbs;  // null for the wildcard address
    return device_ != nullptr ? std::error_code{} : choose_first_device();
}

std::error_code Engine::bind_anchor() {
    auto address = parse_host(local_host_);
    if (!address) return address.error();
    auto id = create_id(anchor_owner_);
    if (!id) return id.error();
    anchor_ = *id;
    if (rdma_bind_addr(anchor_, address->get()) != 0) {
        return from_errno(errno == EADDRNOTAVAIL ? ENODEV : errno);
    }
    return {};
}

void Engine::hold_device() {
    contexts().hold(device_);
    device_name_ = ibv_get_device_name(device_->device);
}

void Engine::release_device(Removed removed) noexcept {
    if (device_ == nullptr) return;
    contexts().release(std::exchange(device_, nullptr), removed == Removed::yes);
}

std::error_code Engine::choose_first_device() {
    int count = 0;
    devices_ = rdma_get_devices(&count);
    if (devices_ == nullptr || count == 0) return from_errno(ENODEV);
    device_ = devices_[0];
    for (int i = 0; i < count; ++i) {
        ibv_device_attr attributes{};
        if (ibv_query_device(devices_[i], &attributes) != 0) continue;
        if (!has_active_port(devices_[i], attributes.phys_port_cnt)) continue;
        device_ = devices_[i];
        break;
    }
    return {};
}

std::error_code Engine::query_limits() {
    ibv_device_attr attributes{};
    if (const int error = ibv_query_device(device_, &attributes)) return from_errno(error);
    ibv_port_attr port{};
    if (const int error = ibv_query_port(device_, 1, &port)) return from_errno(error);
    limits_.work_requests_max = static_cast<std::uint32_t>(std::max(1, attributes.max_qp_wr));
    limits_.completions_max = static_cast<std::uint32_t>(std::max(1, attributes.max_cqe));
    limits_.message_bytes_max = std::min(Endpoint::payload_bytes_max, port.max_msg_sz);
    limits_.segments_max = static_cast<std::uint32_t>(std::max(1, attributes.max_sge));
    limits_.reads_max = static_cast<std::uint8_t>(std::clamp(
        std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom), 0, int{reads_wanted}));
    limits_.invalidation_is_bit_2 = attributes.vendor_id == rxe_vendor;
    // Of the iWARP devices only Chelsio's can write with immediate (RFC 7306).
    limits_.immediates =
        device_->device->transport_type != IBV_TRANSPORT_IWARP || device_name_.starts_with("cxgb4");
    if (limits_.segments_max < Endpoint::max_segments ||
        limits_.work_requests_max < 2 * Endpoint::send_queue_depth_least) {
        return from_errno(EOPNOTSUPP);
    }
    trace(TraceLevel::info, "up to " + std::to_string(limits_.work_requests_max) +
                                " work requests a queue, " +
                                std::to_string(limits_.message_bytes_max) + " bytes a message, " +
                                std::to_string(limits_.reads_max) + " reads at a time");
    return {};
}

void Engine::start() {
    reactor_.add_lookout(watch_);
    reactor_.poll_readable(cm_operation_, cm_channel_->fd);
    reactor_.poll_readable(completions_operation_, completion_channel_->fd);
}

void Engine::stop() {
    stopped_ = true;
    Reactor::remove_lookout(watch_);
    busy_timer_.disarm();
    device_timer_.disarm();
    lingering_.for_each([](LingeringId& id) { id.end(); });
    reactor_.cancel(cm_operation_);
    if (completions_operation_.in_flight) reactor_.cancel(completions_operation_);
    wait_for_ring(shared_from_this());
}

void Engine::wait_for_ring(const std::shared_ptr<Engine>& engine) {
    if (!engine->cm_operation_.in_flight && !engine->completions_operation_.in_flight) return;
    engine->reactor_.post([engine] { wait_for_ring(engine); });
}

int Engine::next_completion_vector() noexcept {
    const int vectors = std::max(1, device_->num_comp_vectors);
    next_vector_ = (next_vector_ + 1) % vectors;
    return next_vector_;
}

std::expected<rdma_cm_id*, std::error_code> Engine::create_id(CmOwner& owner) {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(cm_channel_, &id, &owner, RDMA_PS_TCP) != 0) {
        return std::unexpected(from_errno(errno));
    }
    return id;
}

std::error_code Engine::usable() const {
    if (!device_is_there()) return from_errno(ENODEV);
    if (limits_.immediates) return {};
    trace(TraceLevel::error,
          "this iWARP device cannot write with immediate, which RTRS is made of; "
          "use an InfiniBand or RoCE device, or TCP");
    return from_errno(ENOTSUP);
}

bool Engine::is_on_device(const rdma_cm_id& id) {
    if (id.verbs == device_ && device_ != nullptr) return true;
    const auto times = elsewhere_.happened(reactor_.now());
    if (!times) return false;
    trace(TraceLevel::error,
          "the addresses lead to device " +
              std::string(id.verbs == nullptr ? "none" : ibv_get_device_name(id.verbs->device)) +
              ", not here" + how_often(*times));
    return false;
}

void Engine::linger(rdma_cm_id* id) {
    if (stopped_) {
        rdma_destroy_id(id);
        return;
    }
    lingering_.push_back(*new LingeringId(*this, id));
}

// Without the privilege CAP_IPC_LOCK the limit is what is most often in the way.
void Engine::tell_no_memory(std::size_t bytes) {
    const auto times = no_memory_.happened(reactor_.now());
    if (!times) return;
    std::string text = "cannot register " + std::to_string(bytes) +
                       " bytes of memory: " + from_errno(ENOMEM).message();
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        text += "; the limit of locked memory (ulimit -l, LimitMEMLOCK=) is " +
                std::to_string(limit.rlim_cur / 1024) + " KiB";
    }
    trace(TraceLevel::warning, text + how_often(*times));
}

void Engine::trace(TraceLevel level, std::string_view text) const {
    if (tracer_ != nullptr) tracer_->trace(level, "rtrs.fabric.verbs", device_name_, text);
}

// --- The device goes, and comes back.

void Engine::add(VerbsDomain& domain) noexcept { domains_.push_back(domain); }
void Engine::add(VerbsListener& listener) noexcept { listeners_.push_back(listener); }

void Engine::Anchor::on_cm_event(const CmEvent& event) {
    if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) engine_.device_removed();
}

void Engine::device_removed() {
    if (!device_is_there()) return;
    device_state_ = DeviceState::leaving;
    trace(TraceLevel::error, "the device has been removed");
    device_timer_.arm(reactor_.now());
}

void Engine::use_ended() noexcept {
    --uses_;
    if (device_state_ == DeviceState::leaving && !stopped_) device_timer_.arm(reactor_.now());
}

// Each endpoint hears of the removal by itself, or runs into its timeout.
void Engine::let_go_step() {
    if (uses_ > 0) return;
    if (completions_operation_.in_flight) {
        reactor_.cancel(completions_operation_);
        device_timer_.arm(reactor_.now() + ring_interval);
        return;
    }
    let_go(Removed::yes);
    device_timer_.arm(reactor_.now() + look_interval);
}

void Engine::let_go(Removed removed) {
    lingering_.for_each([](LingeringId& id) { id.end(); });
    listeners_.for_each([](VerbsListener& listener) { listener.let_go(); });
    domains_.for_each([](VerbsDomain& domain) { domain.let_go(); });
    if (completion_channel_ != nullptr) {
        (void)ibv_destroy_comp_channel(std::exchange(completion_channel_, nullptr));
    }
    if (anchor_ != nullptr) rdma_destroy_id(std::exchange(anchor_, nullptr));
    device_state_ = DeviceState::gone;
    release_device(removed);
}

void Engine::look_for_device() {
    if (device_state_ == DeviceState::leaving) return let_go_step();
    if (device_state_ == DeviceState::gone) {
        if (const auto error = take_up()) {
            if (error != from_errno(ENODEV) && std::exchange(told_error_, error) != error) {
                trace(TraceLevel::error, "the device cannot be used again: " + error.message());
            }
            let_go(Removed::no);
            device_timer_.arm(reactor_.now() + look_interval);
            return;
        }
        told_error_ = {};
        trace(TraceLevel::info, "the device is back");
    }
    bool all_listen = true;
    listeners_.for_each([&](VerbsListener& listener) {
        if (listener.take_up()) all_listen = false;
    });
    if (!all_listen) device_timer_.arm(reactor_.now() + look_interval);
}

std::error_code Engine::take_up() {
    if (const auto error = bind_anchor()) return error;
    if (anchor_->verbs == nullptr) return from_errno(ENODEV);
    device_ = anchor_->verbs;
    hold_device();
    if (const auto error = query_limits()) return error;
    if (const auto error = open_completion_channel()) return error;
    std::error_code failed;
    domains_.for_each([&](VerbsDomain& domain) {
        if (!failed) failed = domain.take_up();
    });
    if (failed) return failed;
    device_state_ = DeviceState::there;
    reactor_.poll_readable(completions_operation_, completion_channel_->fd);
    return {};
}

// --- In the reactor's turn.

void Engine::on_cm_readable() {
    const auto self = shared_from_this();
    for (unsigned i = 0; i < cm_events_per_turn && !stopped_ && take_cm_event(); ++i) {
    }
    if (!stopped_) reactor_.poll_readable(cm_operation_, cm_channel_->fd);
}

bool Engine::take_cm_event() {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(cm_channel_, &event) != 0) {
        if (errno == EAGAIN || errno == EINTR) return false;
        // One connection's: librdmacm could not set up its id, and has ended it.
        trace(TraceLevel::warning, "an event was lost: " + from_errno(errno).message());
        return false;
    }
    const CmEvent copy = copy_of(*event);
    // A request's new id has the context of its listener's.
    auto* owner = static_cast<CmOwner*>(event->id->context);
    rdma_ack_cm_event(event);
    owner->on_cm_event(copy);
    return true;
}

void Engine::on_completions_readable() {
    const auto self = shared_from_this();
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    for (unsigned i = 0; i < queue_events_per_turn && !stopped_; ++i) {
        if (ibv_get_cq_event(completion_channel_, &queue, &context) != 0) break;
        ibv_ack_cq_events(queue, 1);
        static_cast<VerbsEndpoint*>(context)->on_completions();
    }
    const bool leaves = device_state_ == DeviceState::leaving && uses_ == 0;
    if (!stopped_ && !leaves) {
        reactor_.poll_readable(completions_operation_, completion_channel_->fd);
    }
}

void Engine::poll_again(VerbsEndpoint& endpoint) noexcept {
    if (endpoint.linked()) return;
    busy_.push_back(endpoint);
    busy_timer_.arm(reactor_.now());
}

bool Engine::watches(VerbsEndpoint& endpoint) noexcept {
    if (!reactor_.polls_busily() || stopped_) return false;
    WatchedQueue& queue = endpoint.watched_queue();
    if (!queue.linked()) watch_.queues.push_back(queue);
    return true;
}

bool Engine::Watch::look() noexcept {
    bool news = false;
    queues.for_each([&](WatchedQueue& queue) {
        if (!queue.endpoint.has_completion()) return;
        news = true;
        engine_.poll_again(queue.endpoint);
    });
    return news;
}

bool Engine::Watch::before_sleep() noexcept {
    bool news = false;
    while (!queues.empty()) {
        VerbsEndpoint& endpoint = queues.pop_front().endpoint;
        endpoint.arm();
        // What came before it was armed makes no event.
        if (!endpoint.has_completion()) continue;
        news = true;
        engine_.poll_again(endpoint);
    }
    return news;
}

void Engine::run_busy() {
    const auto self = shared_from_this();
    // Those that come again wait for the next turn.
    IntrusiveList<VerbsEndpoint> now;
    while (!busy_.empty()) now.push_back(busy_.pop_front());
    while (!now.empty()) now.pop_front().on_completions();
}

}  // namespace rtrs::verbs
