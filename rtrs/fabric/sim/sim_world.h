// A network of hosts on virtual time, and everything that can go wrong with it.
//
//     SimWorld world({.seed = 7});
//     SimHost& server = world.add_host({"10.0.0.1", "10.0.1.1"});
//     SimHost& client = world.add_host({"10.0.0.2", "10.0.1.2"});
//     ... server.fabric().listen("10.0.0.1:1235", ...), client.fabric().connect(...) ...
//     ... Timers on client.clock() ...
//     world.run_for(std::chrono::seconds(5));
//     world.network().cut("10.0.0.1", "10.0.0.2");
//
// Nothing happens outside of step() and run_*(); time jumps from event to event. The same seed and
// the same calls give the same run: comparing the trace_hash() of two runs proves it.
//
// How the network behaves:
//   - A message arrives after a delay drawn from [delay_min, delay_max]. Messages of one endpoint
//     keep their order; everything else is reordered freely. The completion comes back after a
//     second such delay, in no order with what the peer sends: an answer may well overtake it.
//   - disconnect() lets a drawn part of what is under way still arrive (even when its sender has
//     drained and gone: that is how late writes happen) and drops the rest.
//   - on_drained follows on_disconnected after up to drain_max. Until then source buffers may still
//     be read, as hardware does.
//   - A cut link holds everything back silently. Whoever waits for an answer fails with ETIMEDOUT
//     after transport_timeout; if the link heals before, nothing is lost. A sender that disconnects
//     while the link is cut takes its messages with it, and the peer hears nothing (half open).
//   - A message to a side that went without goodbye is answered by a reset.
//
// ASSUMES: endpoints are destroyed after on_drained only (asserted); local segments lie in regions
// of the endpoint's domain, and stay registered while posted work names them (asserted).
//
// THREAD: one. LIFE: the world outlives everything made from it. Before objects with open endpoints
// are destroyed, crash their host or call abandon(): then nothing calls them any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rtrs/base/clock.h"
#include "rtrs/base/random.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/sim/event_queue.h"

namespace rtrs {

class SimHost;
class SimWorld;

namespace sim {
class Connection;
class Network;
class Process;
class ProcessClock;
class BufferPool;
}  // namespace sim

struct SimOptions {
    std::uint64_t seed = 1;
    Duration delay_min = std::chrono::microseconds(2);
    Duration delay_max = std::chrono::microseconds(60);
    Duration drain_max = std::chrono::microseconds(100);
    Duration connect_timeout = std::chrono::seconds(3);
    Duration transport_timeout = std::chrono::seconds(5);
    // How long what has arrived waits before it is handed out, as in a completion queue. The news
    // that the peer has ended does not wait (EndpointOptions::EndNews).
    Duration queue_time{};
    // Reads the source memory when the message arrives, not when it is posted: this finds callers
    // that reuse a buffer too early.
    bool late_source_reads = true;
    // Counts sources that were changed between being posted and being read (changed_sources).
    bool watch_sources = false;
    // How post_revoke answers. drawn: one or the other at random.
    enum class Revoke : std::uint8_t { effective, pending, drawn };
    Revoke revoke = Revoke::drawn;
    // Whether pending revokes take places of the send queue. Those that find no place wait.
    enum class RevokePlace : std::uint8_t { of_its_own, of_sends };
    RevokePlace revoke_place = RevokePlace::of_its_own;
    // When an unsignalled request leaves the send queue: when it has arrived, or (as on most
    // hardware) only when a later signalled one completes.
    enum class UnsignalledSlot : std::uint8_t { freed_by_arrival, freed_by_completion };
    UnsignalledSlot unsignalled_slot = UnsignalledSlot::freed_by_arrival;
    // What Endpoint::source_release() returns; by_completion: completions of signalled sends are
    // late, too.
    Endpoint::SourceRelease source_release = Endpoint::SourceRelease::by_answer;
    // The deepest send queue, whatever is asked for; 0: no bound.
    std::uint32_t send_queue_depth_max = 0;
    // How many keys a host has; more: ENOMEM. At most 2^20 - 1.
    std::uint32_t keys_max = 1u << 19;
};

// What the network does to traffic. Addresses are those of hosts ("10.0.0.1"); each call names a
// pair.
class SimNetwork {
  public:
    explicit SimNetwork(SimWorld& world);
    ~SimNetwork();

    // Holds back everything between a and b silently, until heal().
    void cut(const std::string& a, const std::string& b);
    void cut_one_way(const std::string& from, const std::string& to);
    // Between a and b, messages of more than bytes_max are held back silently, and everything
    // behind them, as by a wrong MTU. Does not affect connections for small packets
    // (EndpointOptions::Packets).
    void lose_large(const std::string& a, const std::string& b, std::uint32_t bytes_max);
    void heal(const std::string& a, const std::string& b);
    void heal_all();
    // What would arrive at `to` from `from` within the duration arrives at the duration's end.
    void stall(const std::string& from, const std::string& to, Duration duration);
    // Of one connection between them (the which-th, modulo their number), what it carries from
    // `from` to `to` arrives only after keep_nothing() or heal_all(), whatever becomes of the
    // sender. The sender nevertheless hears that everything was taken, as with a proxy that keeps
    // it.
    void keep(const std::string& from, const std::string& to, std::uint32_t which);
    void keep_nothing(const std::string& a, const std::string& b);
    // Ends every connection between a and b with ECONNRESET.
    // by_first: only a's side learns it now; b's side learns it when it next sends (half open).
    enum class Seen : std::uint8_t { by_both, by_first };
    void reset(const std::string& a, const std::string& b, Seen seen);
    // Number of connections that have at least one side.
    std::size_t connections() const noexcept;

    // For the fabric.
    sim::Network& inside() noexcept { return *inside_; }

  private:
    std::unique_ptr<sim::Network> inside_;
};

// A machine with one process on it. A crash ends the process. fabric() and clock() are then those
// of the next process, and objects made from the old ones are never called again: destroy them at
// any time.
class SimHost {
  public:
    SimHost(SimWorld& world, std::vector<std::string> addresses);
    ~SimHost();
    SimHost(const SimHost&) = delete;
    SimHost& operator=(const SimHost&) = delete;

    const std::string& address(std::size_t index = 0) const { return addresses_.at(index); }
    const std::vector<std::string>& addresses() const noexcept { return addresses_; }
    // Listens on ports of its addresses, on "0.0.0.0:PORT" and "[::]:PORT"; port 0 picks one. Dials
    // from `source` or, if that is empty, from its own address with the index that the destination
    // has at its host (from the first, if it has fewer).
    Fabric& fabric() noexcept;
    Clock& clock() noexcept;

    // by_reset: as by kill -9; peers learn at once, and dialling is refused until something listens
    // again. never: as by a power failure; silence until restart(), then resets.
    enum class CrashSeen : std::uint8_t { by_reset, never };
    void crash(CrashSeen seen);
    void restart();
    // As by SIGSTOP: no timer, event or message is handled before the duration is over.
    void stall(Duration duration);

    bool up() const noexcept { return up_; }
    Instant stalled_until() const noexcept { return stalled_until_; }
    // For the fabric.
    SimWorld& world() noexcept { return world_; }
    sim::Process& process() noexcept { return *processes_.back(); }
    std::uint16_t next_port() noexcept;

  private:
    SimWorld& world_;
    std::vector<std::string> addresses_;
    // The last one is alive; the others are kept until their objects are destroyed.
    std::vector<std::unique_ptr<sim::Process>> processes_;
    Instant stalled_until_{};
    std::uint16_t port_ = 32767;
    bool up_ = true;
};

class SimWorld {
  public:
    explicit SimWorld(const SimOptions& options = {});
    ~SimWorld();
    SimWorld(const SimWorld&) = delete;
    SimWorld& operator=(const SimWorld&) = delete;

    // addresses: numeric, without port, each used once in the world.
    SimHost& add_host(std::vector<std::string> addresses);
    SimNetwork& network() noexcept { return network_; }
    const SimOptions& options() const noexcept { return options_; }

    Instant now() const noexcept { return now_; }
    Random& random() noexcept { return random_; }
    // A clock that no stall or crash affects: for the test itself.
    Clock& clock() noexcept;
    // Runs script at this instant (now, if it has passed).
    void at(Instant instant, std::function<void()> script);

    // Advances time to the next event and runs it. False: nothing will ever happen by itself.
    bool step();
    // Runs all events up to and including the instant, at which time then stands.
    void run_until(Instant instant);
    void run_for(Duration duration) { run_until(now_ + duration); }
    // Runs until done() is true or the limit has passed; returns done(), which is asked after every
    // event.
    bool run_until(const std::function<bool()>& done, Duration limit);
    // Crashes every host, quietly.
    void abandon();

    // The hash of all events so far, and of whatever is mixed in.
    std::uint64_t trace_hash() const noexcept { return hash_; }
    void mix(std::uint64_t value) noexcept { hash_ = (hash_ ^ value) * 0x100000001b3u; }
    std::uint64_t events() const noexcept { return events_; }
    // How often a caller changed posted memory before it was read, which fabric.h forbids.
    std::uint64_t changed_sources() const noexcept { return changed_sources_; }

    // For the fabric.
    void schedule(Instant instant, sim::EventSink& sink, std::uint64_t argument);
    Duration draw_delay() noexcept;
    Duration draw_below(Duration bound) noexcept;
    sim::BufferPool& buffers() noexcept { return *buffers_; }
    void note_changed_source() noexcept { ++changed_sources_; }

  private:
    struct Script;

    SimOptions options_;
    Random random_;
    Instant now_{};
    std::uint64_t hash_ = 0xcbf29ce484222325u;
    std::uint64_t events_ = 0;
    std::uint64_t changed_sources_ = 0;
    sim::EventQueue queue_;
    std::unique_ptr<sim::BufferPool> buffers_;
    std::unique_ptr<Script> script_;
    std::vector<std::unique_ptr<SimHost>> hosts_;
    SimNetwork network_;
    std::unique_ptr<sim::ProcessClock> clock_;
};

}  // namespace rtrs
