// A server under test, and what is known of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/as_client.h"
#include "tests/conformance/scenario.h"

namespace conformance {

struct ServerOptions {
    std::string address;
    // Another of its addresses, reached from another of ours: for second paths. "SOURCE@HOST:PORT".
    std::string second_address{};
    // One of the other family.
    std::string other_family{};
    // 1 MiB or more, overwritten; open to both sessions, in all access modes.
    std::string volume;
    // Whose writes take half a second or more.
    std::string slow_volume{};
    std::string session = "conformance";
    std::string other_session = "conformance-2";
    // What the server is configured for.
    Duration heartbeat_interval = std::chrono::seconds(5);
    Duration heartbeat_timeout = std::chrono::seconds(30);
    // Restarts the server and returns when it listens again.
    std::string restart{};
    // Leave out what is known to hurt the kernel that it runs in.
    bool gentle = false;
};

struct ServerTask {
    Lab& lab;
    Report& report;
    ServerOptions options;

    Endpoints first() const { return {options.address, {}}; }
    Endpoints second() const;
    // A path that is up, with connections 0 and 1.
    std::unique_ptr<ClientPath> path(std::uint16_t connections = 2);
    std::unique_ptr<ClientPath> unconnected() {
        return std::make_unique<ClientPath>(lab, report, first());
    }
};

// In the order in which they run. server_connect.cpp, server_requests.cpp, server_life.cpp.
std::vector<Scenario<ServerTask>> server_connect_scenarios();
std::vector<Scenario<ServerTask>> server_request_scenarios();
std::vector<Scenario<ServerTask>> server_life_scenarios();

// Octets that depend on their place and on salt.
Octets pattern(std::size_t bytes, unsigned salt);

}  // namespace conformance
