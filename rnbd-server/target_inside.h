// The inside of Target, shared by its own files only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rnbd-server/target.h"

namespace rnbd {

struct Target::OpenVolume {
    static constexpr std::uint64_t answer_buffer_bytes_min = 64u << 10;
    std::uint32_t id = 0;  // the key of Session::opens
    Volume* volume = nullptr;
    Volume::Open* open = nullptr;
    std::string name;
    AccessMode access = AccessMode::read_only;
    // The storage is a file or block device, whose I/O profits from pinned memory.
    bool pins = false;
    // Longer writes do not profit from pinned memory.
    std::uint64_t pinned_write_bytes_max = 0;
    // The storage is one whose reads are paced (ReadPacer).
    bool paces_reads = false;
    bool profits_from_pinning(Operation operation, std::uint64_t bytes) const noexcept {
        if (!pins || !carries_data(operation)) return false;
        if (operation == Operation::read) return !wants_answer_buffer(operation, bytes);
        return bytes <= pinned_write_bytes_max;
    }
    // Small reads do not push the chunks of others out of the processor's cache, and need no answer
    // buffer.
    bool wants_answer_buffer(Operation operation, std::uint64_t bytes) const noexcept {
        return paces_reads && operation == Operation::read && bytes >= answer_buffer_bytes_min;
    }
    // The CLOSE that waits for the requests in flight, and any that repeat it; no more than the
    // session has permits.
    std::vector<rtrs::ServerOp*> closing;
    // The volume was taken from the session: it is closed when the requests in flight have ended.
    bool taken = false;
    // The cache has another epoch. The session's requests are answered with ENOTCONN until it has
    // opened the volume again. Then the volume has another id, too: a request that was sent earlier
    // may still arrive with the old id, for example a flush, which would succeed in the new cache.
    bool asks_anew = false;
    bool ends() const noexcept { return !closing.empty() || taken; }
    // A full disk makes thousands of requests fail; the log has one line for all of them, and one
    // for each error where they fail in several ways in turn.
    struct LoggedFailure {
        std::error_code error;
        rtrs::Instant at{};
    };
    std::vector<LoggedFailure> logged_failures;
    bool failure_is_news(std::error_code error, rtrs::Instant now);
};

// A request in flight of a session's open volume, which is not closed before the request has ended.
struct Target::InFlight {
    Session* session = nullptr;
    rtrs::ServerOp* op = nullptr;
    OpenVolume* open = nullptr;
    std::uint64_t begun = 0;  // what Volume::begin() returned
};

// A storage request of a session, one per permit, made at the permit's first use.
struct Target::Io final : BlockRequest, InFlight {
    Io() : BlockRequest(&Target::completed) {}
    std::uint64_t losses = 0;  // Volume::losses() when the request began
    rtrs::Instant started{};
    Operation wire_operation = Operation::read;
    // A write with PREFLUSH: the flush comes first.
    bool flush_first = false;
    bool paced = false;  // see ReadPacer
    // The pinned part of the chunk: pinned_bytes from its beginning on.
    rtrs::Reactor::FixedBuffer pinned = rtrs::Reactor::FixedBuffer::none;
    std::uint32_t pinned_by = 0;  // the reactor's number in its group
    std::size_t pinned_bytes = 0;
    bool cannot_pin = false;
    void count(ExportCounters& counters, std::error_code error, rtrs::Duration took) const noexcept;
};

struct Target::Session {
    Session(Target& its_target, rtrs::ServerSession& its_session)
        : target(its_target), session(its_session) {}

    Target& target;
    rtrs::ServerSession& session;
    Feature features = Feature::none;
    // An id that is not in use, and was not used before, since a request with an old id is not for
    // this volume.
    std::uint32_t fresh_device_id() noexcept {
        std::uint32_t id = next_device_id++;
        while (opens.contains(id)) id = next_device_id++;
        return id;
    }
    std::unordered_map<std::uint32_t, OpenVolume> opens;  // by device id; elements stay in place
    std::uint32_t next_device_id = 0;
    // By name: what the last open of this name waits for, or why it was refused.
    std::map<std::string, std::string> not_open;
    SessionStatistics statistics;
    // The session's large reads that wait, by the reactor's number in its group. Made by the first
    // read.
    ReadPacer::Line& reads_that_wait(const rtrs::Reactor& here) {
        if (!read_lines) read_lines = std::make_unique<ReadPacer::Line[]>(here.members());
        return read_lines[here.number()];
    }
    std::unique_ptr<ReadPacer::Line[]> read_lines;
};

}  // namespace rnbd
