// A volume in memory behind the real declarations of rnbd/remote_volume.h and rtrs/client.h: links
// in place of rnbd_client_library and rtrs_core. One volume per process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "rnbd/remote_volume.h"
#include "rtrs/reactor.h"

namespace rnbd::fake {

struct Operation {
    VolumeIo io;
    std::uint32_t permit = 0;
};

struct Settings {
    rtrs::Reactor* reactor = nullptr;
    std::uint32_t queue_depth = 64;
    std::uint32_t max_io_bytes = 128u << 10;
    VolumeGeometry geometry{.size_bytes = 64u << 20,
                            .logical_block_bytes = 512,
                            .physical_block_bytes = 4096,
                            .discard_bytes_max = 1u << 20,
                            .discard_granularity_bytes = 4096,
                            .write_zeroes_bytes_max = 1u << 20,
                            .fast_zero = true,
                            .extents = true,
                            .write_cache = true,
                            .force_unit_access = true};
    VolumeState state = VolumeState::open;
    rtrs::Instant since{};
    std::string reason;
    bool hold_time_over = false;
    bool waits_for_given_up = false;
    std::error_code open_error;
    VolumeLosses losses;
    std::uint32_t blocks_limit = 0;  // as the device has set it
    AccessMode access = AccessMode::read_write;
    std::error_code refuses_new;  // the session does
    // Completions: at the end of the turn, or when complete() is called.
    bool held = false;
    // Data is not moved: what is left is the cost of everything else.
    bool null = false;
    // In another order than submitted.
    bool shuffled = false;
    // What an operation ends with; none: success.
    std::function<std::error_code(const VolumeIo&)> fails;
    std::vector<ExtentDescriptor> extents;
};

// Read when the volume is made, and while it works.
Settings& settings();
// What was submitted, oldest first, until cleared. Only recorded while held.
std::vector<Operation>& log();
std::uint32_t waiting();
// Completes what is held.
void complete();
std::uint32_t permits_free();
std::byte* memory();

// The session and the volume with handlers that do nothing.
struct World {
    World();
    ~World();
    struct Parts;
    std::unique_ptr<Parts> parts;
    RemoteVolume& volume();
};

}  // namespace rnbd::fake
