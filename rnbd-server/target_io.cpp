// Target: the way of an IO request from its message to its answer.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <expected>

#include "daemon/log/log.h"
#include "rnbd-server/target_inside.h"
#include "rtrs/base/error.h"
#include "rtrs/base/probe.h"

namespace rnbd {
namespace {

using rtrs::from_errno;

constexpr std::size_t pin_bytes_min = 4096;
// The same error of the same volume is logged again after this long.
constexpr rtrs::Duration failure_log_interval = std::chrono::seconds(10);

const char* name_of(Operation operation) {
    switch (operation) {
        case Operation::read:
            return "read";
        case Operation::write:
            return "write";
        case Operation::flush:
            return "flush";
        case Operation::discard:
            return "discard";
        case Operation::secure_erase:
            return "secure erase";
        case Operation::write_zeroes:
            return "write zeroes";
    }
    return "?";
}

bool writes(Operation operation) {
    return operation == Operation::write || operation == Operation::discard ||
           operation == Operation::write_zeroes;
}

std::expected<BlockOperation, std::error_code> operation_for(const IoMessage& message,
                                                             const StorageGeometry& geometry) {
    switch (message.operation) {
        case Operation::read:
            return BlockOperation::read;
        case Operation::write:
            return BlockOperation::write;
        case Operation::flush:
            return BlockOperation::flush;
        case Operation::discard:
            if (geometry.discard_bytes_max == 0) break;
            return BlockOperation::discard;
        case Operation::write_zeroes:
            if (geometry.write_zeroes_bytes_max == 0) break;
            return BlockOperation::write_zeroes;
        case Operation::secure_erase:
            break;
    }
    return std::unexpected(from_errno(EOPNOTSUPP));
}

// What OPEN has announced. 0: of what moves data, the chunk is the limit.
std::uint64_t range_bytes_max(Operation operation, const StorageGeometry& geometry) {
    if (operation == Operation::discard) return geometry.discard_bytes_max;
    if (operation == Operation::write_zeroes) return geometry.write_zeroes_bytes_max;
    return 0;
}

// Of what has a range: some bytes, whole blocks, none beyond the end, no more than may be asked for
// at once.
std::error_code check_range(const IoMessage& message, const StorageGeometry& geometry) {
    const auto beyond = [&] { return from_errno(writes(message.operation) ? ENOSPC : EINVAL); };
    if (message.sector > geometry.size_bytes / sector_bytes || message.bytes == 0) return beyond();
    const std::uint64_t offset = message.sector * sector_bytes;
    if (message.bytes > geometry.size_bytes - offset) return beyond();
    if (!whole_blocks(offset | message.bytes, geometry.logical_block_bytes)) {
        return from_errno(EINVAL);
    }
    const std::uint64_t most = range_bytes_max(message.operation, geometry);
    if (most > 0 && message.bytes > most) return from_errno(EINVAL);
    return {};
}

}  // namespace

void Target::io(Session& session, rtrs::ServerOp& op) {
    // One per chunk: a permit's chunks on several paths are different memory.
    if (op.chunk_context() == nullptr) op.chunk_context() = new Io();
    Io& io = *static_cast<Io*>(op.chunk_context());
    if (const auto error = prepare(session, op, io)) {
        ++session.statistics.errors;
        ++session.statistics.refused;
        return op.respond(error);
    }
    OpenVolume& open = *io.open;
    begin(io);
    io.losses = open.volume->losses();
    io.started = reactor_.now();
    RTRS_PROBE(server_request, &io, static_cast<unsigned>(io.wire_operation), io.offset, io.bytes);
    if (writes(io.wire_operation) && !open.volume->may_write(*open.open)) {
        writes_waiting_.push_back(&io);
        return reactor_.post([this] { writes_go_on(); });
    }
    enter(io, *open.volume->storage(*open.open));
}

// What had to be in the writers' file before them may be there, or what had to end has ended.
void Target::writes_go_on() {
    std::vector<Io*> waiting;
    waiting.swap(writes_waiting_);
    // First those of who has been put out meanwhile: others wait for their end.
    std::erase_if(waiting, [](Io* io) {
        const bool out = io->open->open->is_out;
        if (out) answer(*io, from_errno(ENOTCONN), 0);
        return out;
    });
    for (Io* const io : waiting) {
        OpenVolume& open = *io->open;
        if (!open.volume->may_write(*open.open)) {
            writes_waiting_.push_back(io);
        } else {
            waited(*io);
        }
    }
}

// The server ends, and what they wait for does not: as if it could not be written.
void Target::writes_wait_no_longer() {
    std::vector<Io*> waiting;
    waiting.swap(writes_waiting_);
    if (waiting.empty()) return;
    logger("rnbd.server")
        .error(
            "{} writes have waited for {} for long enough: a server that is started again may "
            "let in a client that was away while they were made",
            waiting.size(), writers_.path().empty() ? "others to end" : writers_.path());
    for (Io* const io : waiting) waited(*io);
}

// ERRORS: ENOTCONN (it has to be opened first, or again), ENODEV (its storage is gone).
std::expected<Target::OpenVolume*, std::error_code> Target::find_open(Session& session,
                                                                      std::uint32_t device_id) {
    const auto found = session.opens.find(device_id);
    if (found == session.opens.end()) return std::unexpected(from_errno(ENOTCONN));
    OpenVolume& open = found->second;
    if (open.ends() || open.asks_anew || open.open->is_out) {
        return std::unexpected(from_errno(ENOTCONN));
    }
    if (open.volume->storage(*open.open) == nullptr) {
        // Of a former storage, in whose place there is one again, or none.
        const bool is_back = open.volume->state() == Volume::State::ready;
        return std::unexpected(from_errno(is_back ? ENOTCONN : ENODEV));
    }
    return &open;
}

std::error_code Target::prepare(Session& session, rtrs::ServerOp& op, Io& io) {
    const auto message = IoMessage::parse(op.message());
    if (!message) return from_errno(to_errno(message.error()));
    if (const auto checked = message->check_data(op.data().size()); !checked) {
        return from_errno(to_errno(checked.error()));
    }
    // The data's way has to be the operation's: a write that comes as an RTRS read brings none.
    if (carries_data(message->operation) &&
        (op.direction() == rtrs::Direction::read) != sent_as_read(message->operation)) {
        return from_errno(EINVAL);
    }
    const auto found = find_open(session, message->device_id);
    if (!found) return found.error();
    OpenVolume& open = **found;
    if (writes(message->operation) && open.access == AccessMode::read_only) {
        return from_errno(EROFS);
    }
    const StorageGeometry& geometry = open.volume->geometry();
    const auto operation = operation_for(*message, geometry);
    if (!operation) return operation.error();
    io.operation = *operation;
    const bool flush = message->operation == Operation::flush;
    if (!flush) {
        if (const auto error = check_range(*message, geometry)) return error;
    }
    // A flush names no range: its sector is all ones.
    io.bytes = flush ? 0 : message->bytes;
    io.offset = flush ? 0 : message->sector * sector_bytes;
    io.session = &session;
    io.op = &op;
    io.open = &open;
    io.wire_operation = message->operation;
    // Of a read it means nothing: one that fails is no failed sync.
    io.force_unit_access =
        !flush && message->operation != Operation::read && has(message->flags, IoFlag::fua);
    io.no_unmap = has(message->flags, IoFlag::no_unmap);
    io.fast_only =
        has(message->flags, IoFlag::fast_zero) && has(session.features, Feature::fast_zero);
    io.flush_first =
        message->operation == Operation::write && has(message->flags, IoFlag::preflush);
    io.data = op.data();
    io.paced = open.paces_reads && message->operation == Operation::read;
    io.fixed_buffer_of = reactor_.here().number();
    io.fixed_buffer = open.profits_from_pinning(message->operation, io.bytes)
                          ? pinned(op, io)
                          : rtrs::Reactor::FixedBuffer::none;
    return {};
}

// A permit's chunk is pinned when it is used, not for every session that might use it, and as much
// of it as was used. Without a free slot the request goes the ordinary way.
rtrs::Reactor::FixedBuffer Target::pinned(rtrs::ServerOp& op, Io& io) {
    const std::size_t bytes = op.data().size();
    rtrs::Reactor& here = reactor_.here();
    // A client may send one permit's requests by any connection; ours stay with one.
    if (here.number() != io.pinned_by) unpin(io);
    if (bytes <= io.pinned_bytes || io.cannot_pin) {
        return bytes <= io.pinned_bytes ? io.pinned : rtrs::Reactor::FixedBuffer::none;
    }
    unpin(io);
    const std::size_t wanted = std::min<std::size_t>(std::bit_ceil(std::max(bytes, pin_bytes_min)),
                                                     op.session().chunk_bytes());
    const auto slot = here.register_buffer({op.data().data(), wanted});
    io.cannot_pin = !slot;
    if (!slot) return rtrs::Reactor::FixedBuffer::none;
    io.pinned = *slot;
    io.pinned_by = here.number();
    io.pinned_bytes = wanted;
    return io.pinned;
}

void Target::unpin(Io& io) noexcept {
    if (io.pinned == rtrs::Reactor::FixedBuffer::none) return;
    reactor_.member(io.pinned_by).unregister_buffer(io.pinned);
    io.pinned = rtrs::Reactor::FixedBuffer::none;
    io.pinned_bytes = 0;
}

bool Target::waits(Io& io) {
    const rtrs::Reactor& here = reactor_.here();
    ReadPacer::Line& line = io.session->reads_that_wait(here);
    return pacers_[here.number()]->ask(io, line) == ReadPacer::Verdict::wait;
}

void Target::enter(Io& io, Storage& storage) {
    if (io.paced && waits(io)) return;
    start(io, storage);
}

void Target::waited(BlockRequest& request) {
    Io& io = static_cast<Io&>(request);
    OpenVolume& open = *io.open;
    if (Storage* storage = open.volume->storage(*open.open)) return start(io, *storage);
    io.failed_alone = true;
    completed(io, from_errno(ENODEV));
}

void Target::start(Io& io, Storage& storage) {
    // Only now: one that still waits for its turn needs none.
    if (io.open->wants_answer_buffer(io.wire_operation, io.bytes) && io.op->use_answer_buffer()) {
        io.data = io.op->data();
    }
    if (io.flush_first) {
        io.operation = BlockOperation::flush;
        io.bytes = 0;
    }
    io.failed_alone = false;
    RTRS_PROBE(storage_submitted, &io, static_cast<unsigned>(io.operation), io.offset, io.bytes);
    storage.submit(io);
}

void Target::Io::count(ExportCounters& counters, std::error_code error,
                       rtrs::Duration took) const noexcept {
    ExportCounters::Kind& kind = counters.of(wire_operation);
    ++kind.requests;
    kind.durations.add(took);
    if (error)
        ++kind.errors;
    else
        kind.bytes += bytes;
}

std::error_code Target::answered_as(std::error_code error) noexcept {
    const int number = rtrs::to_errno(error);
    return number == ENOTCONN || number == ESTALE ? from_errno(EIO) : error;
}

void Target::completed(BlockRequest& request, std::error_code error) {
    Io& io = static_cast<Io&>(request);
    RTRS_PROBE(storage_done, &io, error.value());
    Session& session = *io.session;
    OpenVolume& open = *io.open;
    rtrs::ServerOp& op = *io.op;
    const bool covers_loss = io.operation == BlockOperation::flush &&
                             open.volume->flush_covers_loss(*open.open, io.losses);
    const std::error_code failure = error;
    // Who opens it again fails it then.
    if (covers_loss) error = from_errno(open.asks_anew || open.taken ? ENOTCONN : EIO);
    if (io.flush_first && !error) {
        io.flush_first = false;
        io.operation = BlockOperation::write;
        io.bytes = op.data().size();
        if (Storage* storage = open.volume->storage(*open.open)) return start(io, *storage);
        io.failed_alone = true;
        error = from_errno(ENODEV);
    }
    const rtrs::Duration took = session.target.reactor_.now() - io.started;
    io.count(open.volume->counters(), error, took);
    SessionStatistics& statistics = session.statistics;
    statistics.latency.add(took);
    std::uint32_t produced = 0;
    if (error) {
        ++statistics.errors;
        const bool sync = io.operation == BlockOperation::flush || io.force_unit_access;
        if (!covers_loss && sync && !io.failed_alone) open.volume->sync_has_failed();
        // It may be what tells of the loss: then nothing else says why there was one.
        if (failure) session.target.note_failure(open, io, failure);
        if (!covers_loss) error = answered_as(error);
    } else if (io.wire_operation == Operation::read) {
        ++statistics.reads;
        statistics.read_bytes += io.bytes;
        produced = static_cast<std::uint32_t>(io.bytes);
    } else if (io.wire_operation == Operation::write) {
        ++statistics.writes;
        statistics.write_bytes += io.bytes;
    } else {
        ++statistics.other;
    }
    // By which of the two caches it was done is not known here: a client that knows them sends it
    // again. So what is acknowledged to a client that had the old one open was done by that one.
    const bool either_cache = !error && writes(io.wire_operation) && !io.force_unit_access &&
                              io.losses != open.volume->losses() &&
                              has(session.features, Feature::epoch);
    if (either_cache) error = from_errno(ENOTCONN);
    RTRS_PROBE(server_answered, &io, error.value());
    answer(io, error, produced);
}

void Target::begin(InFlight& accepted) {
    accepted.begun = accepted.open->volume->begin(*accepted.open->open);
    accepted.session->target.reactor_.begin_request();
}

// The last one of a volume that is to be closed closes it.
void Target::answer(InFlight& done, std::error_code error, std::uint32_t produced_bytes) {
    Session& session = *done.session;
    OpenVolume& open = *done.open;
    Target& target = session.target;
    const bool ends_what_is_out = open.open->is_out && open.open->in_flight == 1;
    std::vector<rtrs::ServerOp*> closing;
    Volume* closed = nullptr;
    open.volume->end(*open.open, done.begun);
    if (open.open->in_flight == 0 && open.ends()) {
        closing = std::move(open.closing);
        closed = open.volume;
        closed->close(open.open);
        session.opens.erase(std::uint32_t{open.id});
    }
    target.reactor_.end_request();
    done.op->respond(error, produced_bytes);  // may end the session
    for (rtrs::ServerOp* const op : closing) op->respond({});
    if (closed != nullptr) target.closed_one(*closed);
    // Others have waited for that with their writes.
    if (ends_what_is_out) target.reactor_.post([&target] { target.writes_go_on(); });
}

bool Target::OpenVolume::failure_is_news(std::error_code error, rtrs::Instant now) {
    const auto found = std::ranges::find(logged_failures, error, &LoggedFailure::error);
    if (found == logged_failures.end()) {
        logged_failures.push_back({error, now});
        return true;
    }
    if (now < found->at + failure_log_interval) return false;
    found->at = now;
    return true;
}

void Target::note_failure(OpenVolume& open, const Io& io, std::error_code error) {
    // Whoever asks for fast zeroes only writes slow ones then.
    if (io.fast_only && error == std::errc::operation_not_supported) return;
    const rtrs::Instant now = reactor_.now();
    std::string what = name_of(io.wire_operation);
    if (io.flush_first) what = "flush before a " + what;
    const std::uint64_t bytes = io.flush_first ? io.op->data().size() : io.bytes;
    if (bytes > 0) what += fmt::format(" of {} bytes at {}", bytes, io.offset);
    const std::string& session = io.session->session.name();
    if (error != std::errc::operation_not_supported) {
        ExportCounters::LastError& last = open.volume->counters().last_error;
        last = {what, session, error, now, last.errors + 1};
    }
    if (!open.failure_is_news(error, now)) return;
    logger("rnbd.volume")
        .warn("{}: {} for {} failed: {}", open.name, what, printable(session), error.message());
}

}  // namespace rnbd
