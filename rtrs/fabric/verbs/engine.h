// What all parts of one verbs fabric share: the device, rdma_cm's event channel, the completion
// channel, and their operations in the reactor's ring.
//
// Each endpoint has its own completion queue, all on one channel: a queue is sized for its
// endpoint, cannot be overrun by others, and ends with its endpoint. A completion makes the channel
// readable; the queue is then armed again and emptied. Where the reactor busy-polls, a queue that
// had something is not armed but polled until the reactor goes to sleep: there is no interrupt, no
// event and no system call for what comes meanwhile.
//
// The device's asynchronous events are not read: librdmacm keeps one context per device and
// process, and several fabrics would take each other's events from it. What the events say also
// arrives as failed completions and as events of rdma_cm.
//
// The device may go away and come back:
//
// | State   | On                               | Goes to | Does                                   |
// | ------- | -------------------------------- | ------- | -------------------------------------- |
// | there   | rdma_cm says that it was removed | leaving | nothing new is made on it              |
// | leaving | the last endpoint has drained    | leaving | completions are not waited for         |
// | leaving | the ring let go of their channel | gone    | gives back all that is the device's    |
// | gone    | the fabric's address has one     | there   | domains and listeners take up again    |
// |         | (it looks once a second)         |         |                                        |
//
// Where the kernel waits for the users of a device (soft-RoCE), the removal can end only in state
// gone. A fabric that was made without a device's address is not told of removals.
//
// THREAD: the fabric's. Lives until the fabric, its endpoints, listeners and domains have gone.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/log_rate_limit.h"
#include "rtrs/fabrics.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rtrs::verbs {

class VerbsDomain;
class VerbsEndpoint;
class VerbsListener;

// An event of rdma_cm, copied so that it can be acknowledged before it is handled: the handler may
// then destroy the id.
struct CmEvent {
    rdma_cm_event_type type = RDMA_CM_EVENT_CONNECT_ERROR;
    rdma_cm_id* id = nullptr;
    int status = 0;
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t private_bytes = 0;
    std::array<std::byte, 256> private_data{};
    Bytes data() const noexcept { return Bytes(private_data).first(private_bytes); }
};

// What an rdma_cm_id's context points to.
class CmOwner {
  public:
    virtual void on_cm_event(const CmEvent& event) = 0;

  protected:
    ~CmOwner() = default;
};

// An endpoint's entry in the list of endpoints whose completion queue is polled.
struct WatchedQueue : ListLink {
    explicit WatchedQueue(VerbsEndpoint& its_endpoint) noexcept : endpoint(its_endpoint) {}
    VerbsEndpoint& endpoint;
};

// The device's limits, as far as they matter here.
struct DeviceLimits {
    std::uint32_t work_requests_max = 0;  // per queue
    std::uint32_t completions_max = 0;    // per completion queue
    std::uint32_t message_bytes_max = 0;
    std::uint32_t segments_max = 0;
    std::uint8_t reads_max = 0;  // outstanding, per direction
    // rxe reports "with invalidation" by a bit that means something else on other devices.
    bool invalidation_is_bit_2 = false;
    // Writes and sends can carry an immediate. Without it there is no RTRS.
    bool immediates = true;
};

class Engine : public std::enable_shared_from_this<Engine> {
  public:
    // ERRORS: ENODEV (no device, or none behind options.local_host), EINVAL (host not understood),
    // EMFILE, ENOMEM.
    static std::expected<std::shared_ptr<Engine>, std::error_code> create(
        Reactor& reactor, const VerbsFabricOptions& options);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Begins to wait for events.
    void start();
    // The fabric ends: nothing is handed out any more. The engine keeps itself alive until the ring
    // has let go of it.
    void stop();

    Reactor& reactor() noexcept { return reactor_; }
    // Null while the device is gone.
    ibv_context* device() const noexcept { return device_; }
    // While there is no device, the name of the last one.
    const std::string& device_name() const noexcept { return device_name_; }
    bool device_is_there() const noexcept { return device_state_ == DeviceState::there; }
    const DeviceLimits& limits() const noexcept { return limits_; }
    Duration connect_timeout() const noexcept { return connect_timeout_; }
    ibv_comp_channel* completion_channel() const noexcept { return completion_channel_; }
    // Spreads the queues over the device's interrupts.
    int next_completion_vector() noexcept;
    // An id on the event channel. ERRORS: ENOMEM, EMFILE, ENODEV.
    std::expected<rdma_cm_id*, std::error_code> create_id(CmOwner& owner);

    // Objects that outlive a device and take up its successor, in the order of these calls.
    void add(VerbsDomain& domain) noexcept;
    void add(VerbsListener& listener) noexcept;
    // Held by an endpoint that has something on the device, from its creation until it has drained.
    class Use {
      public:
        explicit Use(Engine& engine) noexcept : engine_(engine) { ++engine_.uses_; }
        ~Use() { engine_.use_ended(); }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;

      private:
        Engine& engine_;
    };

    // Returns ENOTSUP, and logs it, if the device cannot carry RTRS; ENODEV while the device is
    // gone.
    std::error_code usable() const;
    // True if the id's address has bound it to this device. Logs it if not, seldom.
    bool is_on_device(const rdma_cm_id& id);

    // Takes an id without queue pair whose disconnect request is not yet answered: for a while, the
    // request is repeated should it be lost.
    void linger(rdma_cm_id* id);

    // The endpoint's completion queue holds more than one turn may handle.
    void poll_again(VerbsEndpoint& endpoint) noexcept;
    // False: the endpoint's completion queue has to be armed. True: it is polled instead, and armed
    // before the reactor sleeps.
    bool watches(VerbsEndpoint& endpoint) noexcept;

    // Memory that the device did not take, for want of it: says so, with the limit. Seldom.
    void tell_no_memory(std::size_t bytes);

    void trace(TraceLevel level, std::string_view text) const;

  private:
    class LingeringId;
    enum class DeviceState : std::uint8_t { there, leaving, gone };
    // Polls the completion queues that are not armed.
    class Watch final : public Lookout {
      public:
        explicit Watch(Engine& engine) noexcept : engine_(engine) {}
        bool look() noexcept override;
        bool before_sleep() noexcept override;
        IntrusiveList<WatchedQueue> queues;

      private:
        Engine& engine_;
    };
    // Owner of the anchor: is told when the device has gone.
    class Anchor final : public CmOwner {
      public:
        explicit Anchor(Engine& engine) noexcept : engine_(engine) {}
        void on_cm_event(const CmEvent& event) override;

      private:
        Engine& engine_;
    };

    Engine(Reactor& reactor, const VerbsFabricOptions& options) noexcept;
    std::error_code open(const std::string& local_host);
    std::error_code open_completion_channel();
    std::error_code choose_device(const std::string& local_host);
    std::error_code choose_first_device();
    std::error_code bind_anchor();
    std::error_code query_limits();
    void hold_device();
    enum class Removed : std::uint8_t { no, yes };
    void release_device(Removed removed) noexcept;
    void device_removed();
    void use_ended() noexcept;
    void let_go_step();
    void let_go(Removed removed);
    void look_for_device();
    std::error_code take_up();
    void on_cm_readable();
    bool take_cm_event();
    void on_completions_readable();
    void run_busy();
    static void wait_for_ring(const std::shared_ptr<Engine>& engine);

    Reactor& reactor_;
    Tracer* tracer_;
    Duration connect_timeout_;
    std::string local_host_;
    rdma_event_channel* cm_channel_ = nullptr;
    ibv_context** devices_ = nullptr;  // librdmacm's list, if no address chose the device
    // Bound to the fabric's address: keeps the device open, and is told when it goes away.
    Anchor anchor_owner_{*this};
    rdma_cm_id* anchor_ = nullptr;
    ibv_context* device_ = nullptr;
    std::string device_name_;
    ibv_comp_channel* completion_channel_ = nullptr;
    DeviceLimits limits_;
    DeviceState device_state_ = DeviceState::there;
    std::uint32_t uses_ = 0;
    bool stopped_ = false;
    int next_vector_ = 0;
    MemberOperation<&Engine::on_cm_readable> cm_operation_{*this};
    MemberOperation<&Engine::on_completions_readable> completions_operation_{*this};
    IntrusiveList<LingeringId> lingering_;
    IntrusiveList<VerbsEndpoint> busy_;
    Timer busy_timer_;
    Watch watch_{*this};
    IntrusiveList<VerbsDomain> domains_;
    IntrusiveList<VerbsListener> listeners_;
    Timer device_timer_;
    std::error_code told_error_;  // why the device cannot be taken up; logged once
    LogRateLimit no_memory_;
    LogRateLimit elsewhere_;
};

}  // namespace rtrs::verbs
