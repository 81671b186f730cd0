// One volume of one process of a client, and its load, which checks what the volume does.
//
// A user remembers what each of its writes and flushes promised; what they are checked against is
// argued in history.h.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rnbd/remote_volume.h"
#include "tests/sim/failover/server_app.h"

namespace failover {

class ClientLife;

class VolumeUser final : public rnbd::RemoteVolumeHandler {
  public:
    VolumeUser(const Surroundings& surroundings, ClientLife& life, ServerVolume& volume);

    void on_volume_changed(rnbd::RemoteVolume&) override {}
    void on_volume_closed(rnbd::RemoteVolume&) override;

    // Adds to what is to be done.
    // pace: the mean time between two; zero: as fast as they are answered.
    void load(std::uint32_t requests, Duration pace) {
        remaining_ += requests;
        pace_ = pace;
        pump();
    }
    // Reads every block and flushes, each when a permit is free.
    void verify();
    bool idle() const noexcept { return outstanding_ == 0 && remaining_ == 0 && !prepared_; }
    // Of the oldest request that is not answered; none: now.
    Instant oldest() const;
    bool open() const { return volume_->state() == rnbd::VolumeState::open; }
    const std::string& reason() const { return volume_->reason(); }
    void close();
    // Closes the volume, whatever is in flight, and opens another of its name.
    void remap();
    bool closed() const noexcept { return closed_; }
    std::uint32_t outstanding() const noexcept { return outstanding_; }

    // Of a process that goes on beside a newer one of its name.
    void give_up_unanswered_writes();

  private:
    struct Op {
        bool busy = false;
        BlockOperation operation = BlockOperation::read;
        std::uint32_t block = 0;
        Number number = 0;
        bool zeroes = false;  // a write without data
        Instant began{};
        History::ReadStart read{};
        Medium::Snapshot promised{};  // flush: what it is to make durable
    };

    void map_again();
    void pump();
    void tick();
    std::optional<rtrs::Permit> take_permit();
    void wait_for_permits();
    void stop_waiting();
    bool issue();
    void choose(Op& op);
    std::uint32_t choose_block();
    void prepare(Op& op, rtrs::Permit& permit);
    void submit(rtrs::Permit permit);
    static void responded(void* context, rtrs::Permit permit, std::error_code error);
    void done(rtrs::Permit permit, std::error_code error);
    void write_done(const Op& op, std::error_code error);
    void flush_done(const Op& op, std::error_code error);
    void check_error(const Op& op, std::error_code error);
    Op& op(rtrs::PermitId id);
    void trace(const Op& op, std::string_view what);

    const Surroundings& surroundings_;
    ClientLife& life_;
    SimStorage& storage_;
    History& history_;
    rtrs::Timer timer_;
    rtrs::Timer remap_timer_;
    std::vector<Op> ops_;  // by permit
    std::vector<bool> writing_;
    Medium::Snapshot promised_{};  // acknowledged to this user, and to be there after a flush
    Duration pace_{0};
    std::uint32_t remaining_ = 0;
    std::uint32_t verify_next_ = 0;  // block + 1 counts down
    std::uint32_t outstanding_ = 0;
    std::uint32_t last_failed_ = 0;  // block
    std::uint32_t last_failed_count_ = 0;
    rtrs::Permit prepared_;
    // Waits in the queue for permits; then they are here until they are used.
    struct Waiter : rtrs::PermitWaiter {
        explicit Waiter(VolumeUser& its_user);
        VolumeUser& user;
        std::array<rtrs::Permit, 2> places;
    } waiter_{*this};
    std::vector<rtrs::Permit> granted_;
    bool closed_ = false;
    bool remapping_ = false;
    std::unique_ptr<rnbd::RemoteVolume> volume_;
};

}  // namespace failover
