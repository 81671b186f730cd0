// The checked content of rnbd-client.yaml (docs: config/rnbd-client.yaml, rnbd-client.yaml(5)).
//
// Plain values; the caller owns them. parse() reports all errors at once; load_config() of
// daemon/config/files.h does the same for files.
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
    // The N of /dev/nbdN, 0..index_max; none: "auto", any free device.
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
        // The local address to dial from, "HOST" without brackets, of the same family as the
        // destination; empty: the system chooses.
        std::string source;
        rtrs::PathPriority priority = rtrs::PathPriority::prefer;

        bool operator==(const Path&) const noexcept = default;
        // True if both have the same fabric and addresses; the priority is ignored.
        bool same_way(const Path& other) const noexcept;
        // "SOURCE@HOST:PORT" or "HOST:PORT", with "rdma:" before it if that is the fabric.
        std::string to_string() const;
        // Parses the form of to_string(); "tcp:" may be given, too.
        static std::optional<Path> parse(std::string_view text);
        // The same without the fabric.
        static std::optional<Path> parse_addresses(std::string_view text);
    };

    struct Session {
        // 1..254 bytes, no '/' and no '.', unique. The server's allow rules know it.
        std::string name;
        // 1..128, each once.
        std::vector<Path> paths;
        // How long requests wait while no path is up, 0 .. 365 d; none: for ever.
        std::optional<rtrs::Duration> hold_time;
        // For how long after the last path was lost new requests may still wait, 0 .. hold_time;
        // after that they fail at once. None: as hold_time.
        std::optional<rtrs::Duration> fail_fast_time;
        // Failed attempts after which a path is given up, at most reconnect_attempts_max
        // (daemon/config/types.h); none: never.
        std::optional<std::uint32_t> max_reconnect_attempts;
        // The delay before the first attempt, and the longest delay before later ones, 1 ms .. 1 h,
        // min <= max.
        rtrs::Duration reconnect_delay_min = std::chrono::milliseconds(10);
        rtrs::Duration reconnect_delay_max = std::chrono::seconds(1);
        // How long an attempt to bring a path up may take, 10 ms .. 10 min.
        rtrs::Duration connect_timeout = std::chrono::seconds(5);
        // 10 ms .. 10 min; the timeout is at least twice the interval. If the file does not give
        // the interval, it is derived from the timeout.
        rtrs::Duration heartbeat_interval = rtrs::heartbeat_interval_default;
        rtrs::Duration heartbeat_timeout = rtrs::heartbeat_timeout_default;
        // The age of an unanswered request at which its path is probed, 10 ms .. 1 h.
        rtrs::Duration request_deadline = std::chrono::seconds(2);
        // The silence after a probe at which the path is given up, 5 ms .. heartbeat_timeout. If
        // the file does not give it, it is a quarter of heartbeat_timeout.
        rtrs::Duration probe_timeout = std::chrono::milliseconds(1250);
        // The rule by which one of several paths is chosen for a request.
        rtrs::PathPolicy policy = rtrs::PathPolicy::min_inflight;
        // I/O connections per path, 1..64.
        std::uint32_t connections = 1;
        // Whether this side wants checksums of payloads on TCP.
        bool data_checksum = true;
    };

    struct Device {
        // The NBD export name: 1..254 bytes, unique.
        std::string name;
        // The name of one of the sessions.
        std::string session;
        // The export's name at the server, 1..254 bytes.
        std::string volume;
        AccessMode access = AccessMode::read_write;
        // Each address once; at least one if there is no kernel device. Devices may share an
        // address, where clients choose one by name.
        std::vector<NbdAddress> nbd;
        // The kernel's block device that this device is attached to; no two devices have the same.
        std::optional<KernelDeviceName> kernel;
        // Connections between the kernel's device and this process, 1..16.
        std::uint32_t kernel_connections = 4;
    };

    std::vector<Session> sessions;
    std::vector<Device> devices;

    // text: the content of the file; file: its name, for errors.
    static std::expected<ClientConfig, std::vector<ConfigError>> parse(std::string_view text,
                                                                       std::string file);
    // The same for several files that together are one configuration.
    static std::expected<ClientConfig, std::vector<ConfigError>> parse(
        const std::vector<ConfigSource>& sources);
};

}  // namespace rnbd
