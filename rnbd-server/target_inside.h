// The inside of Target, shared by its files. Not for others.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "rnbd-server/target.h"

namespace rnbd {

struct Target::OpenVolume {
    static constexpr std::uint64_t answer_buffer_bytes_min = 64u << 10;
    std::uint32_t id = 0;  // the key of Session::opens
    Volume* volume = nullptr;
    Volume::Open* open = nullptr;
    std::string name;
    AccessMode access = AccessMode::read_only;
    // Its storage is a file or block device, whose I/O profits from pinned memory, writes at most
    // with so many bytes; and one whose reads are paced.
    bool pins = false;
    std::uint64_t pinned_write_bytes_max = 0;
    bool paces_reads = false;
    bool profits_from_pinning(Operation operation, std::uint64_t bytes) const noexcept {
        if (!pins || !carries_data(operation)) return false;
        if (operation == Operation::read) return !wants_answer_buffer(operation, bytes);
        return bytes <= pinned_write_bytes_max;
    }
    // What is small leaves the others' chunks in the processor's cache.
    bool wants_answer_buffer(Operation operation, std::uint64_t bytes) const noexcept {
        return paces_reads && operation == Operation::read && bytes >= answer_buffer_bytes_min;
    }
    // CLOSE waits for what is in flight.
    rtrs::ServerOp* closing = nullptr;
    // Taken away from the session: closed when what is in flight has ended.
    bool taken = false;
    // Its cache has another epoch: the session's requests are answered with ENOTCONN until it has
    // asked for it again. Then it has another id, too: by its old one a request may still come that
    // was sent before, a flush that the new cache would end well.
    bool asks_anew = false;
    bool ends() const noexcept { return closing != nullptr || taken; }
    // A full disk fails thousands of requests: one line tells it.
    std::error_code logged_error;
    rtrs::Instant logged_at{};
};

// What a session's open volume has in flight, and cannot close without.
struct Target::InFlight {
    Session* session = nullptr;
    rtrs::ServerOp* op = nullptr;
    OpenVolume* open = nullptr;
    std::uint64_t begun = 0;  // as the volume has it
};

// A storage request of a session, one per permit, made at the permit's first use.
struct Target::Io final : BlockRequest, InFlight {
    Io() : BlockRequest(&Target::completed) {}
    std::uint64_t losses = 0;  // of the volume, when it began
    rtrs::Instant started{};
    Operation wire_operation = Operation::read;
    // A write with PREFLUSH: the flush comes first.
    bool flush_first = false;
    bool paced = false;  // see ReadPacer
    // The chunk from its beginning on, so many bytes.
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
    // Not one that is in use, or was before: a request that names it is not for this volume.
    std::uint32_t fresh_device_id() noexcept {
        std::uint32_t id = next_device_id++;
        while (opens.contains(id)) id = next_device_id++;
        return id;
    }
    std::unordered_map<std::uint32_t, OpenVolume> opens;  // by device id; they stay in place
    std::uint32_t next_device_id = 0;
    // What was said last to an open of this name.
    std::map<std::string, std::string> refusals;
    SessionStatistics statistics;
    // Its large reads that wait, by the reactor's number in its group; made by the first read.
    ReadPacer::Line& reads_that_wait(const rtrs::Reactor& here) {
        if (!read_lines) read_lines = std::make_unique<ReadPacer::Line[]>(here.members());
        return read_lines[here.number()];
    }
    std::unique_ptr<ReadPacer::Line[]> read_lines;
};

}  // namespace rnbd
