// The internals of a simulated host: its process (clock, keys, listeners) and the network that
// connects the hosts. Users see it only through sim_world.h and fabric.h.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>

#include "rtrs/base/timer_queue.h"
#include "rtrs/fabric/sim/sim_memory.h"
#include "rtrs/fabric/sim/sim_world.h"

namespace rtrs::sim {

class Connection;
class Process;

struct SocketAddress {
    std::string host;  // normalised, without brackets
    std::uint16_t port = 0;
    std::string text() const;
};
// "10.0.0.1:1235", "[fe80::1]:1235".
std::optional<SocketAddress> parse_address(const std::string& text);
// "10.0.0.1", "fe80::1", "[fe80::1]": normalised; empty if not understood.
std::string parse_host(const std::string& text);

// Virtual time as one process sees it: its timers do not expire while its host is stalled.
class ProcessClock final : public Clock, public EventSink {
  public:
    // host: null for a clock that nothing stalls.
    ProcessClock(SimWorld& world, const SimHost* host) noexcept : world_(world), host_(host) {}
    Instant now() const noexcept override { return world_.now(); }
    void stop() noexcept { stopped_ = true; }
    void on_event(std::uint64_t wake) override;

  protected:
    void arm(Timer& timer, Instant deadline) override;
    void disarm(Timer& timer) noexcept override { timers_.disarm(timer); }

  private:
    void schedule_wake(Instant deadline);

    SimWorld& world_;
    const SimHost* host_;
    TimerQueue timers_;
    Instant wake_at_ = Instant::max();
    std::uint64_t wake_ = 0;  // only the newest wake-up counts
    bool stopped_ = false;
};

class SimListener final : public Listener {
  public:
    SimListener(Process& process, SocketAddress address, ListenerHandler& handler) noexcept
        : process_(process), address_(std::move(address)), handler_(handler) {}
    ~SimListener() override;
    std::string address() const override { return address_.text(); }
    const SocketAddress& bound() const noexcept { return address_; }
    ListenerHandler& handler() noexcept { return handler_; }

  private:
    Process& process_;
    SocketAddress address_;
    ListenerHandler& handler_;
};

class SimFabric final : public Fabric {
  public:
    explicit SimFabric(Process& process) noexcept : process_(process) {}
    const char* name() const noexcept override { return "sim"; }
    Duration connect_timeout() const noexcept override;
    // It loses no packet for its size, but the client's doubts are to be simulated.
    bool limits_packets() const noexcept override { return true; }
    std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() override;
    std::expected<std::unique_ptr<Listener>, std::error_code> listen(
        const std::string& address, ListenerHandler& handler) override;
    std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(
        ProtectionDomain& domain, const std::string& source, const std::string& destination,
        Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) override;

  private:
    std::optional<std::string> pick_source(const std::string& source,
                                           const std::string& destination) const;
    Process& process_;
};

// One process of a host, from its start to its crash.
class Process {
  public:
    Process(SimWorld& world, SimHost* host);
    SimWorld& world() noexcept { return world_; }
    SimHost& host() noexcept { return *host_; }
    SimFabric& fabric() noexcept { return fabric_; }
    ProcessClock& clock() noexcept { return clock_; }
    KeyTable& keys() noexcept { return keys_; }
    bool alive() const noexcept { return alive_; }
    void die() noexcept;

    SimListener* find_listener(const SocketAddress& destination) noexcept;
    bool bind(SimListener& listener);
    void unbind(SimListener& listener) noexcept;
    bool port_taken(const SocketAddress& address) noexcept;

  private:
    SimWorld& world_;
    SimHost* host_;
    ProcessClock clock_;
    KeyTable keys_;
    SimFabric fabric_;
    std::multimap<std::uint16_t, SimListener*> listeners_;
    bool alive_ = true;
};

// Which host has which address, the state of every link, and all connections.
class Network {
  public:
    using AddressId = std::uint32_t;
    static constexpr AddressId nowhere = static_cast<AddressId>(-1);
    struct Link {
        bool cut = false;
        std::uint32_t bytes_max = UINT32_MAX;  // longer messages are held back (lose_large)
        Instant stalled_until{};
        // Heals everything except a stall, which ends by itself.
        void heal() noexcept {
            cut = false;
            bytes_max = UINT32_MAX;
        }
    };

    explicit Network(SimWorld& world) noexcept : world_(world) {}
    ~Network();
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;
    void add(SimHost& host, const std::string& address);
    AddressId id(const std::string& address) const noexcept;
    SimHost& host(AddressId address) noexcept { return *hosts_[address]; }
    Link& link(AddressId from, AddressId to) noexcept { return links_[from][to]; }
    std::vector<Link>& links_from(AddressId from) noexcept { return links_[from]; }
    std::size_t addresses() const noexcept { return hosts_.size(); }

    void add(Connection& connection);
    void remove(Connection& connection) noexcept;
    std::vector<Connection*>& connections() noexcept { return connections_; }
    // Calls each(connection, side) for the connections between them; side: the one that `from` has.
    template <typename Each>
    void for_each_between(AddressId from, AddressId to, Each each);
    std::uint64_t next_connection() noexcept { return ++connection_; }
    // Resumes all traffic whose way is free again.
    void unblock();
    SimWorld& world() noexcept { return world_; }

  private:
    SimWorld& world_;
    std::unordered_map<std::string, AddressId> ids_;
    std::vector<SimHost*> hosts_;
    std::vector<std::vector<Link>> links_;
    std::vector<Connection*> connections_;
    std::uint64_t connection_ = 0;
};

}  // namespace rtrs::sim
