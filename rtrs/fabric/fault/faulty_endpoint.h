// One endpoint of a FaultyFabric. It stands between the inner endpoint and its handler, and delays
// events while keeping their order.
#pragma once

#include <deque>
#include <vector>

#include "rtrs/fabric/fault/faulty_fabric.h"

namespace rtrs::fault {

class FaultyEndpoint final : public Endpoint, public EndpointHandler, public ListLink {
  public:
    FaultyEndpoint(FaultyFabric& fabric, EndpointHandler& handler);
    ~FaultyEndpoint() override;
    void set_inner(std::unique_ptr<Endpoint> inner) { inner_ = std::move(inner); }
    // In place of set_inner(): the endpoint was never connected, and ends with this reason.
    void refuse(std::error_code reason);
    void lose();
    void stall(Duration duration) noexcept;
    // Recomputes when the next event is due.
    void reschedule();

    std::error_code post(std::span<const WorkRequest> chain) override;
    std::error_code post_receive(std::uint64_t context, Segment buffer) override;
    SourceRelease source_release() const noexcept override { return inner_->source_release(); }
    std::uint32_t copied_bytes_max() const noexcept override { return inner_->copied_bytes_max(); }
    RevokeResult post_revoke(MemoryWindow window, std::uint64_t context) override;
    using Endpoint::disconnect;
    void disconnect(std::error_code why) override;
    void finish(std::error_code why) override;
    Duration unacknowledged() const noexcept override { return inner_->unacknowledged(); }
    Duration quiet() const noexcept override { return inner_->quiet(); }
    void ask_network(bool on) noexcept override { inner_->ask_network(on); }
    std::string local_address() const override;
    std::string remote_address() const override;

    void on_established(Bytes private_data) override;
    void on_rejected(Bytes private_data) override;
    void on_completion(const Completion& completion) override;
    void on_disconnected(std::error_code reason) override;
    void on_drained() override;

  private:
    struct Event {
        enum class Kind : std::uint8_t { established, rejected, completion, disconnected };
        Kind kind = Kind::completion;
        Instant due{};
        Completion completion{};
        std::error_code reason{};
        std::vector<std::byte> private_data{};
    };

    void take(Event event, Duration extra_delay);
    void flush(CompletionOpcode opcode, std::uint64_t context);
    Instant held_until() const noexcept;
    void run_due();
    void hand_out(const Event& event);

    FaultyFabric& fabric_;
    EndpointHandler& handler_;
    std::unique_ptr<Endpoint> inner_;
    std::deque<Event> events_;
    Instant last_due_{};
    Instant stalled_until_{};
    Timer due_timer_;
    Timer loss_timer_;
    std::uint64_t posts_ = 0;
    bool established_ = false;
    bool running_ = false;  // inside run_due()
    bool inner_drained_ = false;
    bool drained_ = false;
    std::error_code loss_ = from_errno(ECONNRESET);
    bool lost_ = false;           // by us: the inner endpoint's reason does not count
    bool disconnecting_ = false;  // by the caller: no event is delayed any more
};

}  // namespace rtrs::fault
