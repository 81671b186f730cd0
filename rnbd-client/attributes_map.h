// Parses what is written to the attribute map_device. Pure.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/attributes/tree.h"
#include "daemon/attributes/values.h"
#include "rnbd/messages.h"
#include "rtrs/limits.h"

namespace rnbd {

struct MapOptions {
    // The kernel's default port, and the largest number of paths that it accepts.
    static constexpr int port_default = rtrs::limits::port_default;
    static constexpr std::size_t paths_max = 6;

    std::string session;  // 1..255 bytes; making the session checks further rules
    std::string volume;   // 1..255 bytes
    struct Path {
        AttributeAddress address;
        int port = port_default;  // that of the last dest_port= before the path
    };
    std::vector<Path> paths;
    AccessMode access = AccessMode::read_write;

    // processors: nr_poll_queues= may be from -1 to this number; it has no effect.
    // ERRORS: EINVAL, ENOMEM (too many paths), ENODEV (gid: addresses).
    static std::expected<MapOptions, AttributeError> parse(std::string_view text, int processors);
};

// The path in the form of the configuration: "[10.0.0.1@]10.0.0.2:1234", "[fe80::1]:1234".
std::string configured_path(const AttributeAddress& address, int port);

}  // namespace rnbd
