// What an export's storage is to be, as the configuration or rnbdctl says it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rnbd/medium_id.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// Slowness on purpose, put around any storage: for tests and for rehearsing failures. What is
// late for several reasons waits for all of them, at the gate first.
struct DelayOptions {
    // On which side of the medium an operation waits. before: it reaches the medium late, as one
    // that a dying server still has in its queues. after: it is done, and its answer is late.
    enum class When : std::uint8_t { before, after };
    enum class Gate : std::uint8_t { writes, reads, all };

    rtrs::Duration read{0};
    rtrs::Duration write{0};  // discard and write zeroes too
    rtrs::Duration flush{0};
    std::uint32_t every = 0;  // one of so many operations waits for `by` as well; 0: none
    rtrs::Duration by{0};
    When when = When::before;
    // Operations that arrive while a file of this path exists wait until it is gone. Empty: none.
    std::string gate;
    Gate gate_operations = Gate::writes;
    // Only so many that arrive while it exists, so that a retry of the same operation passes.
    std::optional<std::uint32_t> gate_count;

    bool operator==(const DelayOptions&) const = default;
};

struct StorageOptions {
    enum class Kind : std::uint8_t { path, memory, null, nbd };
    enum class Io : std::uint8_t { buffered, direct };
    enum class Use : std::uint8_t { read_only, read_write };
    Kind kind = Kind::path;
    std::string path;   // Kind::path: regular file or block device
    std::string uri{};  // Kind::nbd: of an NBD server's export, as libnbd takes it
    std::optional<std::uint64_t>
        size_bytes;  // creates an absent file with this size; memory, null: required
    Io io = Io::buffered;
    std::uint32_t logical_block_bytes = 512;
    Use use = Use::read_write;
    // What its medium is called, whatever it is; none: as the storage finds it.
    std::optional<Uuid> uuid{};
    std::optional<DelayOptions> delay{};  // around it
    // Kind::nbd: how long what the server does not answer waits for another connection to it.
    // Longer than a restart of an NBD server takes; shorter than the patience of who stops ours.
    rtrs::Duration nbd_hold_time = std::chrono::seconds(30);

    bool operator==(const StorageOptions&) const = default;
    // Where it is, which only those that read may share: path or URI. Empty: it is nobody else's.
    const std::string& place() const noexcept { return kind == Kind::nbd ? uri : path; }
    bool only_reads() const noexcept { return use == Use::read_only; }
    // Whether there may be an export of each at one time, as far as their places say.
    bool may_share_place(const StorageOptions& other) const noexcept {
        return place().empty() || place() != other.place() || (only_reads() && other.only_reads());
    }
};

}  // namespace rnbd
