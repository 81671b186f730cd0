// One reliable connection over verbs.
//
// | State       | On                               | Goes to     | Does                           |
// | ----------- | -------------------------------- | ----------- | ------------------------------ |
// | resolving   | address resolved                 | resolving   | queue pair; resolve the route  |
// | resolving   | route resolved                   | connecting  | connect request                |
// | connecting  | established                      | established | on_established                 |
// | connecting  | rejected by the peer's program   | closing     | on_rejected                    |
// | adopted     | end of turn (receives are there) | accepting   | accept                         |
// | accepting   | established, or a first message  | established | on_established                 |
// | all of them | any other end, timeout           | closing     | on_disconnected                |
// | established | disconnected, failed completion  | closing     | on_disconnected (end_news)     |
// | all of them | disconnect()                     | closing     | the same, with no reason       |
// | closing     | end of turn                      | drained     | see below, then on_drained     |
//
// How it ends: what has completed is delivered; the queue pair goes to the error state with the
// disconnect request and is destroyed, after which the device touches no buffer; the rest is
// reported as flushed from the rings. The destruction of a queue pair is the one guarantee about
// buffers that every device gives, and it does not depend on completions that a broken device may
// never deliver.
//
// Files: endpoint.cpp life cycle, endpoint_work.cpp posted work and completions.
//
// THREAD: the fabric's. Handlers are called from events and turn-end tasks only (P3).
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "rtrs/base/intrusive_list.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/verbs/domain.h"
#include "rtrs/fabric/verbs/engine.h"
#include "rtrs/fabric/verbs/receive_ring.h"
#include "rtrs/fabric/verbs/send_ring.h"
#include "rtrs/sockets/address.h"

namespace rtrs::verbs {

class VerbsEndpoint final : public Endpoint, public CmOwner, public ListLink {
  public:
    struct Setup {
        std::shared_ptr<Engine> engine;
        VerbsDomain& domain;
        const EndpointOptions& depths;
        EndpointHandler& handler;
    };
    // ERRORS: EINVAL (depths), ENODEV, ENOTSUP.
    static std::expected<std::unique_ptr<VerbsEndpoint>, std::error_code> create(
        const Setup& setup);
    ~VerbsEndpoint() override;

    // Begins to connect. To be called once, and instead of adopt(). source: null for any. The
    // private data is copied.
    void dial(const Address* source, const Address& destination, Bytes private_data);
    // Takes over a connect request's id, which is accepted at the end of the turn. After an error
    // the id belongs to the request again, except for its context.
    // ERRORS: ECONNRESET (the peer has gone), ENODEV, ENOMEM and EINVAL (queues beyond the device's
    // limits).
    std::error_code adopt(rdma_cm_id* id, const CmEvent& request, Bytes private_data);

    std::error_code post(std::span<const WorkRequest> chain) override;
    std::error_code post_receive(std::uint64_t context, Segment buffer) override;
    // A device may retransmit until it has the acknowledgement, and reads the memory again for
    // that.
    SourceRelease source_release() const noexcept override { return SourceRelease::by_completion; }
    std::uint32_t copied_bytes_max() const noexcept override { return inline_bytes_max_; }
    RevokeResult post_revoke(MemoryWindow window, std::uint64_t context) override;
    void disconnect(std::error_code why) override;
    Duration quiet() const noexcept override;
    // Each send is signalled then, so that quiet() knows what the peer's device takes.
    void ask_network(bool on) noexcept override;
    std::string local_address() const override { return local_address_; }
    std::string remote_address() const override { return remote_address_; }

    void on_cm_event(const CmEvent& event) override;
    // For the engine: the completion queue has something, or had something.
    void on_completions();
    // Makes the next completion raise an event.
    void arm() noexcept;
    // Whether a turn would find something. Looks once, and handles nothing.
    bool has_completion() noexcept;
    WatchedQueue& watched_queue() noexcept { return watched_queue_; }

  private:
    enum class State : std::uint8_t {
        idle,
        resolving,
        connecting,
        adopted,
        accepting,
        established,
        closing,
        drained
    };
    // Places in the send queue for revokes, in addition to those that post() may take. Further
    // revokes wait.
    static constexpr std::uint32_t revoke_places = 64;
    enum class QueueState : std::uint8_t { empty, more };
    class Batch;

    explicit VerbsEndpoint(const Setup& setup);

    // Life cycle.
    void resolve(const Address* source, const Address& destination);
    void address_resolved();
    void connect_now();
    void accept_now();
    void established(Bytes private_data);
    void became_established();
    void rejected(const CmEvent& event);
    rdma_conn_param connection_parameters() const noexcept;
    std::error_code make_queue_pair();
    // ERRORS: the device's; ECONNRESET (an accepted one's peer has gone).
    std::error_code create_deepest_queue_pair();
    std::error_code create_queue_pair(std::uint32_t inline_bytes);
    bool request_is_over() const noexcept;
    bool halve_sends();
    void shorten_receiver_wait() noexcept;
    void schedule() noexcept { engine_->reactor().at_turn_end(turn_task_); }
    void fail(std::error_code reason) noexcept;
    void tell();
    void end_of_turn();
    void close();
    void destroy_queue_pair();
    void flush();
    ibv_qp* queue() const noexcept { return id_->qp; }

    // Work.
    std::error_code check(std::span<const WorkRequest> chain) const noexcept;
    std::error_code check(const WorkRequest& request) const noexcept;
    void push_unsent(std::span<const WorkRequest> chain) noexcept;
    std::error_code submit(std::span<const WorkRequest> chain);
    std::error_code submit_bind(const WorkRequest& request);
    std::error_code find_segments(const WorkRequest& request, ibv_sge* segments, int& count);
    std::error_code post_to_device(const ReceiveRing::Entry& entry);
    bool room_for_revoke() const noexcept;
    bool revoke_now(VerbsWindow& window);
    void revoke_waiting();

    // Completions.
    QueueState poll(unsigned batches_max);
    void completed(const ibv_wc& completion);
    void failed(const ibv_wc& completion) noexcept;
    void send_completed(const ibv_wc& completion, std::uint64_t number);
    void receive_completed(const ibv_wc& completion);
    void deliver_revoked(VerbsWindow& window);
    void deliver(CompletionOpcode opcode, CompletionStatus status, std::uint64_t context);

    std::shared_ptr<Engine> engine_;
    std::optional<Engine::Use> use_;
    VerbsDomain& domain_;
    EndpointHandler& handler_;
    State state_ = State::idle;
    bool established_ = false;  // on_established was delivered
    bool told_ = false;         // on_rejected or on_disconnected was delivered
    bool rejected_ = false;
    bool connected_ = false;      // there is a connection to disconnect
    bool peer_ended_it_ = false;  // the peer sent the disconnect request
    std::error_code reason_;
    rdma_cm_id* id_ = nullptr;
    ibv_cq* completions_ = nullptr;
    std::optional<ibv_wc> seen_;  // has_completion() took it out of the queue
    WatchedQueue watched_queue_{*this};
    std::uint32_t inline_bytes_max_ = 0;
    // Private data to send with the connect request or the answer; later the peer's, while it is
    // handed out.
    std::array<std::byte, 256> private_data_{};
    std::size_t private_bytes_ = 0;
    std::uint8_t reads_out_ = 0;
    std::uint8_t reads_in_ = 0;
    std::string local_address_;
    std::string remote_address_;
    MemberTask<&VerbsEndpoint::end_of_turn> turn_task_{*this};
    Timer timer_;

    std::uint32_t sends_max_;  // contexts that post() may take
    std::uint32_t receives_max_;
    EndpointOptions::EndNews end_news_;
    std::uint32_t works_ = 0;  // contexts that post() has taken
    Instant received_at_{};    // when a receive completed last
    Instant sent_at_{};        // when a send completed last
    std::uint64_t asked_ = 0;  // the first send after ask_network(true)
    SendRing sends_;
    ReceiveRing receives_;
    // Revokes for which the send queue had no place yet.
    IntrusiveList<VerbsWindow> waiting_revokes_;
};

}  // namespace rtrs::verbs
