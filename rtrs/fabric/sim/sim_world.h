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
// Nothing happens between calls of step() and run_*(); time jumps from event to event. The same
// seed and the same calls give the same run: trace_hash() of two runs proves it.
//
// How the network behaves:
//   - A message arrives after a delay drawn from [delay_min, delay_max]; the messages of one
//     endpoint keep their order, all else reorders freely. Its completion comes back after a second
//     such delay, in no order with what the peer sends: an answer may well overtake it.
//   - disconnect() lets a drawn part of what is under way still arrive (also when its sender has
//     drained and gone: that is how late writes happen) and drops the rest.
//   - on_drained follows on_disconnected after up to drain_max. Until then source buffers may still
//     be read, as hardware does.
//   - A cut link holds everything back in silence. Who waits for an answer fails with ETIMEDOUT
//     after transport_timeout; if the link heals before, nothing is lost. A sender that disconnects
//     while the link is cut takes its messages with it, and the peer hears nothing (half open).
//   - A message to a side that is gone without goodbye is answered by a reset.
//
// ASSUMES: endpoints are destroyed after on_drained only (asserted); local segments lie in regions
// of the endpoint's domain, and stay registered while posted work names them (asserted).
//
// THREAD: one. LIFE: the world outlives all that was made from it. Before objects with open
// endpoints are destroyed, crash their host or call abandon(): then nothing calls them any more.
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
    // How long what arrives waits before it is handed out, as in a completion queue. News of the
    // peer's end does not (EndpointOptions::EndNews).
    Duration queue_time{};
    // Read the source memory when the message arrives, not when it is posted: finds callers that
    // reuse a buffer too early.
    bool late_source_reads = true;
    // Count sources that were changed between being posted and being read (changed_sources).
    bool watch_sources = false;
    // How post_revoke answers. drawn: now this, now that.
    enum class Revoke : std::uint8_t { effective, pending, drawn };
    Revoke revoke = Revoke::drawn;
    // Whether those that are pending take places of the send queue. Beyond it they wait.
    enum class RevokePlace : std::uint8_t { of_its_own, of_sends };
    RevokePlace revoke_place = RevokePlace::of_its_own;
    // When an unsignalled request leaves the send queue: when it has arrived, or (as most hardware)
    // only when a later signalled one completes.
    enum class UnsignalledSlot : std::uint8_t { freed_by_arrival, freed_by_completion };
    UnsignalledSlot unsignalled_slot = UnsignalledSlot::freed_by_arrival;
    // What endpoints say of it; by_completion: completions of signalled sends are late, too.
    Endpoint::SourceRelease source_release = Endpoint::SourceRelease::by_answer;
    // The deepest send queue, whatever is asked for; 0: no bound.
    std::uint32_t send_queue_depth_max = 0;
    // Keys of one host; beyond: ENOMEM. At most 2^20 - 1.
    std::uint32_t keys_max = 1u << 19;
};

// What the network does to traffic. Addresses are hosts' ("10.0.0.1"); each call names a pair.
class SimNetwork {
  public:
    explicit SimNetwork(SimWorld& world);
    ~SimNetwork();

    // Everything between a and b is held back in silence, until heal().
    void cut(const std::string& a, const std::string& b);
    void cut_one_way(const std::string& from, const std::string& to);
    // Between a and b what carries more than so much is held back in silence, and all that is
    // behind it, as by a wrong MTU; not of connections for small ones (EndpointOptions::Packets).
    void lose_large(const std::string& a, const std::string& b, std::uint32_t bytes_max);
    void heal(const std::string& a, const std::string& b);
    void heal_all();
    // What arrives at `to` from `from` within the duration arrives at its end.
    void stall(const std::string& from, const std::string& to, Duration duration);
    // What one of the connections between them brings from `from` to `to` (the which-th, modulo
    // their number) arrives after keep_nothing() or heal_all(), though its sender hears that all is
    // taken: as by a proxy that keeps it. Whatever becomes of the sender.
    void keep(const std::string& from, const std::string& to, std::uint32_t which);
    void keep_nothing(const std::string& a, const std::string& b);
    // Ends every connection between a and b with ECONNRESET.
    // by_first: only a's side learns now; b's side when it sends next (half open).
    enum class Seen : std::uint8_t { by_both, by_first };
    void reset(const std::string& a, const std::string& b, Seen seen);
    // Connections that have at least one side.
    std::size_t connections() const noexcept;

    // For the fabric.
    sim::Network& inside() noexcept { return *inside_; }

  private:
    std::unique_ptr<sim::Network> inside_;
};

// A machine with one process on it. A crash ends the process; fabric() and clock() are then those
// of the next one, and nothing made from the old ones is ever called again: destroy it at leisure.
class SimHost {
  public:
    SimHost(SimWorld& world, std::vector<std::string> addresses);
    ~SimHost();
    SimHost(const SimHost&) = delete;
    SimHost& operator=(const SimHost&) = delete;

    const std::string& address(std::size_t index = 0) const { return addresses_.at(index); }
    const std::vector<std::string>& addresses() const noexcept { return addresses_; }
    // Listens on ports of its addresses, on "0.0.0.0:PORT" and "[::]:PORT"; port 0 picks one.
    // Dials from `source`, else from its address with the index that the destination has at its
    // host (the first, if it has fewer).
    Fabric& fabric() noexcept;
    Clock& clock() noexcept;

    // by_reset: as kill -9; peers learn at once, dialling is refused until something listens again.
    // never: as a lost power supply; silence until restart(), then resets.
    enum class CrashSeen : std::uint8_t { by_reset, never };
    void crash(CrashSeen seen);
    void restart();
    // As SIGSTOP: no timer, event or message is handled before the duration is over.
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
    // The last one lives; the others wait for their objects to be destroyed.
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
    // A clock that no stall or crash touches: for the test itself.
    Clock& clock() noexcept;
    // Runs script at that instant (now, if it has passed).
    void at(Instant instant, std::function<void()> script);

    // The next event, with its jump in time; false: nothing will ever happen by itself.
    bool step();
    // All events up to and including the instant; then it is that instant.
    void run_until(Instant instant);
    void run_for(Duration duration) { run_until(now_ + duration); }
    // Until done() or the duration is over; returns done(). Asked after every event.
    bool run_until(const std::function<bool()>& done, Duration limit);
    // Crashes every host, quietly.
    void abandon();

    // Of all events so far, and of whatever is mixed in.
    std::uint64_t trace_hash() const noexcept { return hash_; }
    void mix(std::uint64_t value) noexcept { hash_ = (hash_ ^ value) * 0x100000001b3u; }
    std::uint64_t events() const noexcept { return events_; }
    // How often a caller changed what it had posted, before it was read: fabric.h forbids it.
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
