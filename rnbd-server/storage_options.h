// How to make an export's storage, as the configuration or rnbdctl says. Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rnbd/medium_id.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// Deliberate delays around any storage, for tests and for rehearsing failures. If several delays
// apply to an operation, it waits for all of them, and first at the gate.
struct DelayOptions {
    // On which side of the medium an operation waits. before: it reaches the medium late, like an
    // operation that is still in the queues of a dying server. after: it is done in time, but its
    // answer is late.
    enum class When : std::uint8_t { before, after };
    enum class Gate : std::uint8_t { writes, reads, all };

    rtrs::Duration read{0};
    rtrs::Duration write{0};  // also for discard and write_zeroes
    rtrs::Duration flush{0};
    std::uint32_t every = 0;  // one of this many operations waits for `by` as well; 0: none
    rtrs::Duration by{0};
    When when = When::before;
    // Operations that arrive while a file with this path exists wait until it is gone. Empty: there
    // is no gate.
    std::string gate;
    Gate gate_operations = Gate::writes;
    // At most this many operations that arrive while the file exists are held, so that a retry of
    // the same operation passes.
    std::optional<std::uint32_t> gate_count;

    bool operator==(const DelayOptions&) const = default;
};

struct StorageOptions {
    enum class Kind : std::uint8_t { path, memory, null, nbd };
    enum class Io : std::uint8_t { buffered, direct };
    enum class Use : std::uint8_t { read_only, read_write };
    Kind kind = Kind::path;
    std::string path;   // Kind::path: a regular file or block device
    std::string uri{};  // Kind::nbd: an export of an NBD server, in the form that libnbd takes
    std::optional<std::uint64_t>
        size_bytes;  // an absent file is created with this size; memory, null: required
    Io io = Io::buffered;
    std::uint32_t logical_block_bytes = 512;
    Use use = Use::read_write;
    // The uuid of the medium, whatever the medium says; none: the one that the storage finds.
    std::optional<Uuid> uuid{};
    std::optional<DelayOptions> delay{};  // around the storage
    // Kind::nbd: how long requests that the server does not answer wait for another connection to
    // it. Longer than the restart of an NBD server takes, and shorter than the timeout of whoever
    // stops our server.
    rtrs::Duration nbd_hold_time = std::chrono::seconds(30);

    bool operator==(const StorageOptions&) const = default;
    // The path or URI of the storage. Only exports that are read-only may share it. Empty: the
    // storage is not shared with anybody.
    const std::string& place() const noexcept { return kind == Kind::nbd ? uri : path; }
    bool only_reads() const noexcept { return use == Use::read_only; }
    // Whether both may be exported at the same time, as far as their places say.
    bool may_share_place(const StorageOptions& other) const noexcept {
        return place().empty() || place() != other.place() || (only_reads() && other.only_reads());
    }
};

}  // namespace rnbd
