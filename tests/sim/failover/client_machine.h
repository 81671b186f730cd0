// A client machine pair: one process of a name at a time, or two while one takes over from another.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/failover/client_life.h"

namespace failover {

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
