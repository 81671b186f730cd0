// What rnbd-server.yaml says, checked (docs: config/rnbd-server.yaml, rnbd-server.yaml(5)).
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

#include "daemon/config/address_range.h"
#include "daemon/config/common.h"
#include "rnbd-server/kernel_listener.h"
#include "rnbd-server/storage_options.h"
#include "rnbd/messages.h"
#include "rtrs/base/instant.h"
#include "rtrs/heartbeat_times.h"
#include "rtrs/limits.h"

namespace rnbd {

// Offsets and sizes have room above, here and at clients.
inline constexpr std::uint64_t export_bytes_max = 1ull << 62;

enum class ConfigFabric : std::uint8_t { tcp, rdma };
const char* to_word(ConfigFabric fabric) noexcept;

// if_possible: on where the device has memory windows, off elsewhere.
enum class AlwaysInvalidate : std::uint8_t { off, on, if_possible };

struct ServerConfig : DaemonSettings {
    ServerConfig() : DaemonSettings{.control = "/run/rnbd/server.ctl"} {}

    // listen[]: where sessions come in. At least one, each address once.
    struct Listen {
        ConfigFabric fabric = ConfigFabric::tcp;
        // "HOST:PORT", canonical; port 0: any free one. rdma: one address of this machine.
        std::string address;
        // rdma: it is there for kernel clients. None: for clients of this project.
        std::optional<KernelListener> kernel;
    };

    // exports[].allow[]: who may open it and how. Nobody else may.
    struct Allow {
        // Name of the RTRS session, 1..254 bytes, no '/' and no '.'.
        std::string session;
        // Where the session must come from; none: from anywhere.
        std::optional<AddressRange> address;
        // The strongest access: read_only < read_write < migration (which includes the weaker).
        AccessMode access = AccessMode::read_only;

        bool operator==(const Allow&) const noexcept = default;
    };

    struct Export {
        // What clients ask for: 1..254 bytes, no "..", unique.
        std::string name;
        // kind, path, size_bytes (multiple of the block), io (default buffered),
        // logical_block_bytes (512 or 4096; default 512, with direct I/O 4096), use (read_only:
        // nobody may write, whatever allow says; default read_write), delay (around it).
        StorageOptions storage;
        std::vector<Allow> allow;
    };

    // amend[]: a size that an export has in another place, and that does not count.
    struct Overruled {
        std::string name;
        std::uint64_t bytes = 0;
        std::string warning;  // the text of the one that tells it
    };

    std::vector<Listen> listen;
    std::vector<Export> exports;
    std::vector<Overruled> overruled;
    // Requests per session, 1..32768 (together with max_io_bytes: rtrs/limits.h).
    std::uint32_t queue_depth = rtrs::limits::queue_depth_default;
    // Longest payload of one request, bytes, a multiple of 4096.
    std::uint32_t max_io_bytes = rtrs::limits::io_bytes_default;
    // Revoke a chunk's key while its request is served.
    AlwaysInvalidate always_invalidate = AlwaysInvalidate::on;
    // Whether this side wants payloads checksummed on TCP.
    bool data_checksum = true;
    // 10 ms .. 10 min; the timeout is at least twice the interval.
    rtrs::Duration heartbeat_interval = rtrs::heartbeat_interval_default;
    rtrs::Duration heartbeat_timeout = rtrs::heartbeat_timeout_default;
    rtrs::Duration kernel_heartbeat_timeout = rtrs::kernel_heartbeat_timeout;  // of its clients
    // Buffered reads go so many bytes per turn (rnbd-server/read_pacer.h).
    bool read_portions = true;
    // Requests may go to a disk, or to a file in memory, inside a turn (rtrs/reactor.h).
    bool prompt_storage = true;
    // Files and requests' memory are registered with the kernel.
    bool registered_io = true;
    // Direct I/O may be polled for, where the device can be (rtrs/reactor.h).
    bool polled_io = false;
    // Large payloads may leave without a copy (rtrs/fabrics.h).
    bool zero_copy_sends = false;

    std::uint32_t chunk_bytes() const noexcept {
        return max_io_bytes + rtrs::limits::header_bytes_default;
    }

    // text: the file's content; file: its name in errors.
    static std::expected<ServerConfig, std::vector<ConfigError>> parse(std::string_view text,
                                                                       std::string file);
    // Several files that are one configuration.
    static std::expected<ServerConfig, std::vector<ConfigError>> parse(
        const std::vector<ConfigSource>& sources);
    // One export alone, as exports[] has it.
    static std::expected<Export, std::vector<ConfigError>> parse_export(std::string_view text,
                                                                        std::string file);
};

// Whether both cannot listen at the same time: one's address is the other's, or part of it.
bool collide(const ServerConfig::Listen& one, const ServerConfig::Listen& other);

}  // namespace rnbd
