// A client machine pair: one process of a name at a time (or two, while one takes over from
// another), each with a session, volumes, and users that check what the volumes do.
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

// What is to be counted of all users.
struct Counters {
    std::uint64_t requests = 0;
    std::uint64_t failed = 0;
    std::uint64_t flushes = 0;
    std::uint64_t losses_told = 0;
};

class ClientLife;

// One volume of one process, and its load.
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
    void stop_load() { remaining_ = 0; }
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

// One process.
class ClientLife final : public rnbd::RemoteSessionHandler {
  public:
    ClientLife(const Surroundings& surroundings, rtrs::SimHost& its_host,
               const rtrs::ClientSessionOptions& options, Counters& its_counters,
               const std::vector<ServerVolume*>& volumes);
    void on_session_closed() override { session_closed = true; }

    void begin_close();
    // Volumes first, then the session. True when all is closed.
    bool continue_close();
    bool idle() const;
    bool ready() const;
    std::string complaint() const;
    Instant oldest() const;

    // Of a request that was answered, or is not yet.
    struct Wait {
        Instant began{};
        Instant until{};
        Duration duration() const noexcept { return until - began; }
    };
    void note_wait(const Wait& wait) {
        if (wait.duration() > patience_) long_waits_.push_back(wait);
    }
    // Since they were taken last: those that were longer than failover may take.
    std::vector<Wait> take_long_waits(Instant now);

    rtrs::SimHost& host;
    Counters& counters;
    const std::uint32_t number;  // of its life, from 1
    bool superseded = false;     // another process of the same name was started
    bool closing = false;
    bool session_closed = false;
    rnbd::RemoteSession session;
    std::vector<std::unique_ptr<VolumeUser>> users;

  private:
    const Duration patience_;
    std::vector<Wait> long_waits_;
};

class ClientMachine {
  public:
    ClientMachine(const Surroundings& surroundings, rtrs::SimHost& first, rtrs::SimHost& second,
                  std::uint32_t number, std::vector<std::string> servers,
                  std::vector<ServerVolume*> its_volumes);

    void start();
    void crash(rtrs::SimHost::CrashSeen seen);
    void restart();
    // Starts a second process while the first one lives.
    void start_twin();
    // The first one ends; true when it has.
    void end_old();
    bool poll_old();
    void crash_old();
    void change_a_path();
    void remap_a_volume(std::uint32_t which);
    // Closes the path over this network and dials it again.
    void reconnect(std::uint32_t network);
    // The path over this network has dialled and waits for the server to know it.
    bool exchanges(std::uint32_t network) const;
    // Since when the path over this network is connected; none: it is not.
    std::optional<Instant> connected_since(std::uint32_t network) const;
    // Sees that every path is there and tried. False: one is just closing, ask again.
    bool restore_paths();

    ClientLife* life() noexcept { return life_; }
    ClientLife* old() noexcept { return old_; }
    rtrs::SimHost& host() noexcept { return *hosts_[current_]; }
    rtrs::SimHost& other_host() noexcept { return *hosts_[1 - current_]; }
    // Gracefully ended, all is home.
    void remove();

    Counters counters;
    bool died = false;  // a process did, once

  private:
    rtrs::ClientSessionOptions session_options();
    void change_settings(rtrs::ClientSession& session);

    const Surroundings& surroundings_;
    std::array<rtrs::SimHost*, 2> hosts_;
    std::size_t current_ = 0;
    std::uint32_t number_;
    std::uint64_t lives_ = 0;
    std::vector<std::string> servers_;  // an address per network
    std::vector<ServerVolume*> volumes_;
    ClientLife* life_ = nullptr;
    ClientLife* old_ = nullptr;
};

}  // namespace failover
