// A client under test, and what is known of it.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/as_server.h"
#include "tests/conformance/driver.h"
#include "tests/conformance/scenario.h"

namespace conformance {

struct ClientOptions {
    std::string driver;
    // Where the tool listens and how the client goes there: "[SOURCE@]HOST:PORT". Port 0: any.
    std::vector<std::string> addresses;
    std::string session = "conformance";
    std::string volume = "volume";
    // What the client is configured for.
    Duration heartbeat_interval = std::chrono::seconds(5);
    Duration heartbeat_timeout = std::chrono::seconds(30);
    // A new attempt on a path comes within this.
    Duration reconnect = std::chrono::seconds(60);
    bool extensions = false;
    // The least queue depth that the client takes; told in the report.
    std::uint32_t depth_min = 1;
};

struct ClientTask {
    Lab& lab;
    Report& report;
    Driver& driver;
    ClientOptions options;
};

// One session of the client, from its first connection to its end.
class Round {
  public:
    Round(ClientTask& task, const HostOptions& options, std::size_t paths = 1);
    // Ends the session, whatever state it is in.
    ~Round();
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

    // Maps the volume; Stop if it does not come up on every path.
    void up();
    // The words for the driver.
    std::vector<std::string> up_words() const;
    // Reads and compares with the disk; writes and does so.
    void read(std::string_view id, std::uint64_t at, std::size_t bytes);
    void write(std::string_view id, std::uint64_t at, std::size_t bytes, unsigned salt);
    // Waits for the next attempt on that path: its first connection request.
    const Dial& next_dial(std::size_t address = 0);
    // Waits until a path of the client is up there again.
    HostPath& path_up(std::size_t address = 0);
    // Held requests that are that I/O.
    std::size_t held(BlockOp op) const;

    ClientTask& task;
    Host host;

  private:
    bool started_ = false;
};

// A volume that can all.
VolumeWords able_volume();

// client_sessions.cpp, client_life.cpp
std::vector<Scenario<ClientTask>> client_session_scenarios();
std::vector<Scenario<ClientTask>> client_life_scenarios();

}  // namespace conformance
