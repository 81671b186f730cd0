// What both roles of the tool stand on: a reactor that is turned while something is waited for, the
// fabric, memory, and links (connections) that note all that arrives.
//
// Scenarios are written as one thing after the other; what stops one of them is thrown as Stop and
// caught by whoever runs scenarios. Nothing is thrown from inside handlers.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rtrs/fabrics.h"
#include "tests/conformance/bytes_by_hand.h"

namespace conformance {

using rtrs::Duration;
using rtrs::Instant;

// The scenario cannot go on.
struct Stop {
    std::string why;
};

class Memory {
  public:
    explicit Memory(std::size_t bytes);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    std::byte* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }
    rtrs::MutableBytes all() const noexcept { return {data_, bytes_}; }
    rtrs::Segment segment(std::size_t offset, std::size_t bytes) const {
        return {data_ + offset, static_cast<std::uint32_t>(bytes)};
    }
    Octets octets(std::size_t offset, std::size_t bytes) const;
    void put(std::size_t offset, const Octets& octets) const;
    void fill(std::size_t offset, std::size_t bytes, std::uint8_t value) const;

  private:
    std::size_t bytes_;
    std::byte* data_;
};

struct LabOptions {
    std::string fabric = "tcp";  // or "verbs"
    std::string local_host;      // verbs: which device
    // What has to happen may take so long.
    Duration patience = std::chrono::seconds(20);
    // What must not happen is looked out for so long.
    Duration lookout = std::chrono::milliseconds(300);
};

class Lab {
  public:
    // Throws Stop.
    explicit Lab(const LabOptions& options);
    ~Lab();
    // Turns the reactor until done() or the time is over; done().
    bool wait(Duration at_most, const std::function<bool()>& done);
    bool wait(const std::function<bool()>& done) { return wait(options.patience, done); }
    // The same, and Stop if it does not happen.
    void need(std::string_view what, const std::function<bool()>& done);
    void pause(Duration time);
    Instant now() const { return reactor->now(); }
    Octets uuid();
    bool tcp() const { return options.fabric == "tcp"; }
    // RNR NAKs that this machine's devices have counted, in both directions; 0 without devices.
    static std::uint64_t receiver_not_ready();

    LabOptions options;
    std::unique_ptr<rtrs::Reactor> reactor;
    std::unique_ptr<rtrs::Fabric> fabric;

  private:
    std::uint64_t random_ = 0;
};

// The mean time between heartbeats, where they come at this interval: of so many that one which is
// heard of late, and makes the next look early, changes little of it. Stop if they do not come.
Duration mean_interval(Lab& lab, const std::vector<Instant>& heartbeats, Duration interval);

// Registered memory of one path: where messages are sent from.
class Room {
  public:
    explicit Room(Lab& lab);
    // Copies octets to where they can be sent from. They stay until several MiB later.
    rtrs::Segment stage(const Octets& octets);
    rtrs::ProtectionDomain& domain() { return *domain_; }

  private:
    std::unique_ptr<rtrs::ProtectionDomain> domain_;
    Memory staging_;
    std::unique_ptr<rtrs::MemoryRegion> region_;
    std::size_t next_ = 0;
};

struct Arrival {
    rtrs::CompletionOpcode opcode{};
    std::uint32_t immediate = 0;
    std::uint32_t bytes = 0;    // as the fabric says
    bool body_written = false;  // something came into the receive
    Octets body;
    rtrs::Key invalidated = 0;
    Instant when{};
};

class Link final : public rtrs::EndpointHandler {
  public:
    struct Receives {
        std::uint32_t count = 0;
        std::uint32_t bytes = 8;
    };
    Link(Lab& lab, Room& room, std::uint16_t cid, Receives receives);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    // Takes the endpoint and posts the receives: first those of post_first, then the small ones.
    void adopt(std::unique_ptr<rtrs::Endpoint> endpoint);
    void post_receives();
    // One bigger receive, before all others.
    void post_big(std::uint32_t bytes);

    // Each posts one signalled work request; false if the fabric refused.
    bool send(const Octets& octets);
    bool send_immediate(const Octets& octets, std::uint32_t immediate);
    bool send_invalidate(rtrs::Key key);
    bool write(const std::vector<rtrs::Segment>& from, rtrs::RemoteBuffer to);
    bool write_immediate(const std::vector<rtrs::Segment>& from, rtrs::RemoteBuffer to,
                         std::uint32_t immediate);
    bool post(const rtrs::WorkRequest& work);
    void disconnect();
    bool up() const { return established && !disconnected; }
    // Has it come to an answer, whatever it is?
    bool settled() const { return established || rejected || disconnected; }

    Lab& lab;
    Room& room;
    std::uint16_t cid;
    std::unique_ptr<rtrs::Endpoint> endpoint;
    bool established = false, rejected = false, disconnected = false, drained = false;
    bool denied = false;           // a completion said that remote access was refused
    std::error_code reason{};      // of the disconnect
    Octets private_data;           // of accept or reject
    std::deque<Arrival> arrivals;  // those that `taken` left
    // Called in the reactor's turn; true: not to be kept in arrivals.
    std::function<bool(const Arrival&)> taken;
    std::function<void(std::uint64_t context)> revoked;

    void on_established(rtrs::Bytes data) override;
    void on_rejected(rtrs::Bytes data) override;
    void on_completion(const rtrs::Completion& completion) override;
    void on_disconnected(std::error_code why) override;
    void on_drained() override;

  private:
    void receive(std::uint32_t slot);
    Receives receives_;
    Memory memory_;
    std::unique_ptr<rtrs::MemoryRegion> region_;
    std::unique_ptr<Memory> big_;
    std::unique_ptr<rtrs::MemoryRegion> big_region_;
};

}  // namespace conformance
