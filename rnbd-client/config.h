// What rnbd-client.yaml says, checked (docs: config/rnbd-client.yaml, rnbd-client.yaml(5)).
//
// Plain values; the caller owns them. parse() reports everything that is wrong at once;
// load_config() of daemon/config/files.h does so of files.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/common.h"
#include "rnbd-client/nbd/address.h"
#include "rnbd/messages.h"
#include "rtrs/base/instant.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/path_policy.h"

namespace rnbd {

// A block device of the kernel's NBD driver.
struct KernelDeviceName {
    static constexpr std::uint32_t index_max = 32767;
    // The N of /dev/nbdN, 0..index_max; none: "auto", one that is free.
    std::optional<std::uint32_t> index;

    bool operator==(const KernelDeviceName&) const noexcept = default;
    std::string to_string() const;
    static std::optional<KernelDeviceName> parse(std::string_view text);
};

struct ClientConfig : DaemonSettings {
    ClientConfig() : DaemonSettings{.control = "/run/rnbd/client.ctl"} {}

    // sessions[].paths[]
    struct Path {
        enum class Fabric : std::uint8_t { tcp, rdma };
        Fabric fabric = Fabric::tcp;
        // "HOST:PORT", canonical.
        std::string destination;
        // Local address to dial from, "HOST" without brackets; empty: the system's choice. Of the
        // same family as the destination.
        std::string source;
        rtrs::PathPriority priority = rtrs::PathPriority::prefer;

        bool operator==(const Path&) const noexcept = default;
        // The same way to the server, whatever its priority.
        bool same_way(const Path& other) const noexcept;
        // "SOURCE@HOST:PORT" or "HOST:PORT", with "rdma:" before it if that is its fabric.
        std::string to_string() const;
        // What to_string() gives; "tcp:" may be said too.
        static std::optional<Path> parse(std::string_view text);
        // Without the fabric.
        static std::optional<Path> parse_addresses(std::string_view text);
    };

    struct Session {
        // 1..254 bytes, no '/' and no '.', unique. The server's allow rules know it.
        std::string name;
        // 1..128, each once.
        std::vector<Path> paths;
        // How long requests wait while no path is up, 0 .. 365 d; none: for ever.
        std::optional<rtrs::Duration> hold_time;
        // How long without any path new requests still join those that wait, 0 .. hold_time; after
        // that they fail at once. None: as hold_time.
        std::optional<rtrs::Duration> fail_fast_time;
        // Failed attempts after which a path is given up, 0..1000000; none: never.
        std::optional<std::uint32_t> max_reconnect_attempts;
        // Wait before the first and before a late attempt, 1 ms .. 1 h, min <= max.
        rtrs::Duration reconnect_delay_min = std::chrono::milliseconds(10);
        rtrs::Duration reconnect_delay_max = std::chrono::seconds(1);
        // What an attempt to bring a path up may take, 10 ms .. 10 min.
        rtrs::Duration connect_timeout = std::chrono::seconds(5);
        // 10 ms .. 10 min; the timeout is at least twice the interval, which goes by it if the file
        // does not say.
        rtrs::Duration heartbeat_interval = rtrs::heartbeat_interval_default;
        rtrs::Duration heartbeat_timeout = rtrs::heartbeat_timeout_default;
        // Age of an unanswered request at which its path is probed, 10 ms .. 1 h.
        rtrs::Duration request_deadline = std::chrono::seconds(2);
        // Silence after a probe at which the path is given up, 5 ms .. heartbeat_timeout; a quarter
        // of that if the file does not say.
        rtrs::Duration probe_timeout = std::chrono::milliseconds(1250);
        // Which of several paths takes a request.
        rtrs::PathPolicy policy = rtrs::PathPolicy::min_inflight;
        // I/O connections per path, 1..64.
        std::uint32_t connections = 1;
        // Whether this side wants payloads checksummed on TCP.
        bool data_checksum = true;
    };

    struct Device {
        // The NBD export name: 1..254 bytes, unique.
        std::string name;
        // Name of one of the sessions.
        std::string session;
        // The export's name at the server, 1..254 bytes.
        std::string volume;
        AccessMode access = AccessMode::read_write;
        // Each once; at least one if there is no kernel device. Devices may share an address:
        // clients choose by name.
        std::vector<NbdAddress> nbd;
        // The block device that it is attached to; no two devices have the same.
        std::optional<KernelDeviceName> kernel;
        // Between that and this process, 1..16.
        std::uint32_t kernel_connections = 4;
    };

    std::vector<Session> sessions;
    std::vector<Device> devices;

    // text: the file's content; file: its name in errors.
    static std::expected<ClientConfig, std::vector<ConfigError>> parse(std::string_view text,
                                                                       std::string file);
    // Several files that are one configuration.
    static std::expected<ClientConfig, std::vector<ConfigError>> parse(
        const std::vector<ConfigSource>& sources);
};

}  // namespace rnbd
