// What a run is made of. All of it is drawn from the seed; then the command line may change it.
//
// Every option is one unsigned number with a name, so that the line that repeats a run and the
// shrinker need no more than a table.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/base/instant.h"

namespace failover {

using rtrs::Duration;
using rtrs::Instant;

// What can go wrong, or is done to a running system.
enum class Fault : std::uint8_t {
    cut,              // a network between one client and its server, in silence
    cut_one_way,      // ... in one direction
    delay,            // messages of one direction arrive late
    reset,            // connections end, both sides learn
    half_open,        // connections end, one side learns
    flap,             // a network that comes and goes
    outage,           // a network is gone for everybody
    isolation,        // a client loses every network
    dead_path,        // a cut that outlasts every time-out, while other paths are well
    server_kill,      // and a restart
    server_stop,      // an orderly one, and a start with another configuration
    machine_crash,    // of a server: what was not flushed may be lost
    client_crash,     // and a new process of the same name
    twin,             // a new process of the same name while the old one still runs
    server_stall,     // SIGSTOP
    client_stall,     // ditto
    storage_slow,     // milliseconds
    storage_late,     // seconds
    storage_failing,  // EIO, ENOSPC
    device_closed,    // the server forgets an open device
    session_closed,   // the server ends a session
    path_change,      // a path is added, removed, reconnected, disconnected
    // Only of wide runs.
    volume_remap,     // a user closes its volume under load, and opens it again
    device_taken,     // the server takes an open device away, also with operations in flight
    cache_lost,       // a storage goes on without what was not flushed, and the server with it
    large_lost,       // a network between one client and its server carries nothing that is long
    connection_kept,  // what one connection brings in one direction is taken, and kept
    count
};
inline constexpr std::size_t fault_kinds = static_cast<std::size_t>(Fault::count);
// From this seed on runs are wide. Those before it stay what they were when they found something.
inline constexpr std::uint64_t first_wide_seed = 1'000'001;
extern const std::array<std::string_view, fault_kinds> fault_names;

struct Options {
    std::uint64_t seed = 1;

    std::uint32_t servers = 1;         // 1..2
    std::uint32_t clients = 1;         // 1..3
    std::uint32_t volumes = 1;         // per client, 1..2
    std::uint32_t paths = 1;           // 1..3, each on a network of its own
    std::uint32_t blocks = 8;          // per volume, 1..16
    std::uint32_t rounds = 4;          // a quiet stretch, then load and faults
    std::uint32_t requests = 40;       // per volume and round
    std::uint32_t depth = 4;           // requests that a volume's user keeps in flight
    std::uint32_t faults = 3;          // per round
    std::uint32_t steps = UINT32_MAX;  // only so many faults in the whole run
    std::uint32_t quiet_s = 30;        // longest quiet stretch

    std::uint32_t queue_depth = 8;     // at the server
    std::uint32_t io_connections = 1;  // per path
    std::uint32_t always_invalidate = 1;
    std::uint32_t client_failover = 1;  // the extension is offered
    std::uint32_t server_failover = 1;  // ... and accepted
    std::uint32_t identity = 1;         // clients say which machine they are
    std::uint32_t epoch = 1;            // servers tell theirs
    std::uint32_t policy = 0;

    std::uint32_t heartbeat_ms = 500;
    std::uint32_t heartbeat_timeout_ms = 2000;
    std::uint32_t half_open_ms = 2000;
    std::uint32_t connect_timeout_ms = 2000;
    std::uint32_t reconnect_max_ms = 1000;
    std::uint32_t hold_ms = 0;       // 0: for ever
    std::uint32_t fail_fast_ms = 0;  // 0: never

    std::uint32_t delay_us = 60;   // of the network, at most
    std::uint32_t drain_us = 100;  // until a lost connection's buffers are free, at most
    std::uint32_t transport_timeout_ms = 5000;
    std::uint32_t late_ms = 8000;  // longest late operation of a storage
    std::uint32_t orderly = 1;     // 0: sessions are closed under load

    // What a wide run has.
    std::uint32_t wide_faults = 0;   // per round, beside the others
    std::uint32_t zeroes = 0;        // some writes carry no data: discard, write zeroes
    std::uint32_t waiters = 0;       // users queue for permits
    std::uint32_t messages = 0;      // paths have a connection for messages
    std::uint32_t flips = 0;         // a server may come back with the extension, or without
    std::uint32_t operators = 0;     // priorities and times to wait are changed
    std::uint32_t send_queue = 0;    // places of a connection's at most; 0: what is asked for
    std::uint32_t attempts_max = 0;  // a path gives up after so many; 0: never
    std::uint32_t deadline_ms = 0;   // of a request, until its path is probed; 0: the usual

    std::uint32_t fault_mask = (1u << fault_kinds) - 1;

    bool allows(Fault fault) const noexcept {
        return (fault_mask >> static_cast<unsigned>(fault) & 1) != 0;
    }
    bool exactly_once() const noexcept {
        return client_failover != 0 && server_failover != 0 && flips == 0;
    }

    static Options from_seed(std::uint64_t seed);
};

// One entry of the table of numbers.
struct OptionName {
    std::string_view name;  // "--clients"
    std::uint32_t Options::* value;
    std::uint32_t least, most;
    std::optional<std::uint32_t> simplest;  // what the shrinker tries to come to
};
std::span<const OptionName> option_names() noexcept;

// What the command line changes: "--clients 1", "--no-fault cut".
class Overrides {
  public:
    // ERRORS: a text that says what is wrong; empty if the words were taken.
    std::string add(const std::string& option, const std::string& value);
    Options apply(Options options) const;
    // " --clients 1 --no-fault cut"
    std::string line() const;
    void set(const OptionName& option, std::uint32_t value);
    void forbid(Fault fault);

  private:
    struct Number {
        const OptionName* option;
        std::uint32_t value;
    };
    std::vector<Number> numbers_;
    std::uint32_t forbidden_ = 0;
};

// Every option, a line each.
std::string describe(const Options& options);

inline Duration milliseconds(std::uint32_t value) { return std::chrono::milliseconds(value); }
inline Duration microseconds(std::uint32_t value) { return std::chrono::microseconds(value); }

// As clients have them: how late an answer may be before its path is probed, and how late that
// probe's.
inline Duration request_deadline(const Options& options) {
    return milliseconds(options.deadline_ms != 0 ? options.deadline_ms
                                                 : options.heartbeat_timeout_ms / 2);
}
inline Duration probe_timeout(const Options& options) {
    return milliseconds(std::max(1u, options.heartbeat_timeout_ms / 4));
}
// How long a request may take while one of the paths is well, whatever becomes of the others.
Duration failover_patience(const Options& options);

}  // namespace failover
