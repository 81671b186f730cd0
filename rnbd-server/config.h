// The checked content of rnbd-server.yaml (docs: config/rnbd-server.yaml, rnbd-server.yaml(5)).
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

#include "daemon/config/address_range.h"
#include "daemon/config/common.h"
#include "rnbd-server/kernel_listener.h"
#include "rnbd-server/storage_options.h"
#include "rnbd/messages.h"
#include "rtrs/base/instant.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/limits.h"

namespace rnbd {

// The limit leaves room for calculations with offsets and sizes, here and at clients.
inline constexpr std::uint64_t export_bytes_max = 1ull << 62;

enum class ConfigFabric : std::uint8_t { tcp, rdma };
const char* to_word(ConfigFabric fabric) noexcept;

// if_possible: on if the device has memory windows, else off.
enum class AlwaysInvalidate : std::uint8_t { off, on, if_possible };

struct ServerConfig : DaemonSettings {
    ServerConfig() : DaemonSettings{.control = "/run/rnbd/server.ctl"} {}

    // listen[]: where the server listens for sessions. At least one entry, each address once.
    struct Listen {
        ConfigFabric fabric = ConfigFabric::tcp;
        // "HOST:PORT", canonical; port 0: any free port. rdma: one address of this machine.
        std::string address;
        // rdma: set if the listener is for kernel clients. None: it is for clients of this project.
        std::optional<KernelListener> kernel;
    };

    // exports[].allow[]: a session that may open the export, and how. No other session may.
    struct Allow {
        // The name of the RTRS session, 1..254 bytes, no '/' and no '.'.
        std::string session;
        // The addresses that the session may come from; none: any address.
        std::optional<AddressRange> address;
        // The strongest access that is allowed: read_only < read_write < migration. Each includes
        // the weaker ones.
        AccessMode access = AccessMode::read_only;

        bool operator==(const Allow&) const noexcept = default;
    };

    struct Export {
        // The name that clients ask for: 1..254 bytes, no "..", unique.
        std::string name;
        // kind, path, size_bytes (multiple of the block), io (default buffered),
        // logical_block_bytes (512 or 4096; default 512, with direct I/O 4096), use (read_only:
        // nobody may write, whatever allow says; default read_write), delay (around the storage).
        StorageOptions storage;
        std::vector<Allow> allow;
    };

    // amend[]: a size that another place gives for an export, and that is not in force.
    struct Overruled {
        std::string name;
        std::uint64_t bytes = 0;
        std::string warning;  // the text of the warning about it
    };

    std::vector<Listen> listen;
    std::vector<Export> exports;
    std::vector<Overruled> overruled;
    // Requests per session, 1..32768 (together with max_io_bytes: rtrs/limits.h).
    std::uint32_t queue_depth = rtrs::limits::queue_depth_default;
    // The longest payload of one request, in bytes, a multiple of 4096.
    std::uint32_t max_io_bytes = rtrs::limits::io_bytes_default;
    // Whether a chunk's key is revoked while its request is served.
    AlwaysInvalidate always_invalidate = AlwaysInvalidate::on;
    // Whether this side wants checksums of payloads on TCP.
    bool data_checksum = true;
    // 10 ms .. 10 min; the timeout is at least twice the interval.
    rtrs::Duration heartbeat_interval = rtrs::heartbeat_interval_default;
    rtrs::Duration heartbeat_timeout = rtrs::heartbeat_timeout_default;
    // The timeout for kernel clients.
    rtrs::Duration kernel_heartbeat_timeout = rtrs::kernel_heartbeat_timeout;
    // Large buffered reads are paced: a limited number of bytes per turn
    // (rnbd-server/read_pacer.h).
    bool read_portions = true;
    // Requests may be submitted to a disk, or to a file in memory, inside a turn (rtrs/reactor.h).
    bool prompt_storage = true;
    // Files and the memory of requests are registered with the kernel.
    bool registered_io = true;
    // Completions of direct I/O may be polled for, if the device supports it (rtrs/reactor.h).
    bool polled_io = false;
    // Large payloads may be sent without a copy (rtrs/fabrics.h).
    bool zero_copy_sends = false;

    std::uint32_t chunk_bytes() const noexcept {
        return max_io_bytes + rtrs::limits::header_bytes_default;
    }

    // text: the content of the file; file: its name, for errors.
    static std::expected<ServerConfig, std::vector<ConfigError>> parse(std::string_view text,
                                                                       std::string file);
    // The same for several files that together are one configuration.
    static std::expected<ServerConfig, std::vector<ConfigError>> parse(
        const std::vector<ConfigSource>& sources);
    // Parses a single export, in the form of an entry of exports[].
    static std::expected<Export, std::vector<ConfigError>> parse_export(std::string_view text,
                                                                        std::string file);
};

// Whether the two cannot listen at the same time, because the address of one equals the other's or
// is a part of it.
bool collide(const ServerConfig::Listen& one, const ServerConfig::Listen& other);

}  // namespace rnbd
