#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "daemon/config_common.h"
#include "daemon/log.h"
#include "rnbd-server/target_inside.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/probe.h"

namespace rnbd {
namespace {

using rtrs::from_errno;

// Discard and write zeroes carry their length in the 32 bits of bi_size.
constexpr std::uint64_t range_bytes_max = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t pin_bytes_min = 4096;
// Names of refused opens that are remembered per session.
constexpr std::size_t refusals_max = 64;
// The same error of the same volume is logged again after this long.
constexpr rtrs::Duration failure_log_interval = std::chrono::seconds(10);

std::uint32_t sectors(std::uint64_t bytes) {
    return static_cast<std::uint32_t>(std::min(bytes, range_bytes_max) / sector_bytes);
}

OpenResponse describe(const StorageGeometry& geometry, std::uint32_t device_id,
                      std::uint32_t max_io_bytes) {
    // A length must be a whole number of blocks.
    const std::uint64_t block = geometry.logical_block_bytes;
    const auto whole = [&](std::uint64_t bytes) {
        return sectors(std::min(bytes, range_bytes_max) / block * block);
    };
    return {.device_id = device_id,
            .sectors = geometry.size_bytes / sector_bytes,
            .max_hw_sectors = max_io_bytes / sector_bytes,
            .max_write_zeroes_sectors = whole(geometry.write_zeroes_bytes_max),
            .max_discard_sectors = whole(geometry.discard_bytes_max),
            .discard_granularity_bytes = geometry.discard_granularity_bytes,
            .discard_alignment_bytes = 0,
            .physical_block_bytes = static_cast<std::uint16_t>(geometry.physical_block_bytes),
            .logical_block_bytes = static_cast<std::uint16_t>(geometry.logical_block_bytes),
            .max_segments = 128,  // what a kernel client uses anyway
            .secure_discard = 0,
            .fua = geometry.force_unit_access,
            .write_back = geometry.volatile_cache};
}

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

}  // namespace

Target::Target(rtrs::Reactor& reactor, const std::vector<ServerConfig::Export>& exports,
               EpochBook& epochs, Reads reads)
    : reactor_(reactor),
      reads_(reads),
      epochs_(epochs),
      deferred_(reactor),
      catalog_(reactor, volumes_) {
    for (std::uint32_t i = 0; i < reactor.members(); ++i) {
        pacers_.push_back(std::make_unique<ReadPacer>(
            reactor.member(i), this, [](void* self, BlockRequest& request) {
                static_cast<Target*>(self)->waited(request);
            }));
    }
    for (const auto& config : exports) {
        own(config);
    }
    catalog_.changed();
}

Target::~Target() = default;

// --- Sessions.

const KernelListener* Target::kernel_door(std::uint32_t door) const noexcept {
    const auto found = kernel_doors_.find(door);
    return found == kernel_doors_.end() ? nullptr : &found->second;
}

// A kernel's client asks for a device path; only exports can be found by it.
std::string Target::export_for(const Session& session, const std::string& asked) const {
    const KernelListener* kernel = kernel_door(session.session.door());
    return kernel != nullptr ? kernel->export_for(session.session.name(), asked) : asked;
}

std::error_code Target::on_path(const rtrs::Arrival& arrival) {
    const KernelListener* kernel = kernel_door(arrival.door);
    if (kernel == nullptr || kernel->allows(arrival.session, arrival.host)) return {};
    note_turned_away(std::string(arrival.session),
                     fmt::format("no entry of the listener's kernel.allow for this session and {}",
                                 arrival.host));
    return from_errno(EACCES);
}

void Target::note_turned_away(const std::string& session, const std::string& why) {
    const auto times = turned_away_.next(session, why, reactor_.now());
    if (!times) return;
    const std::string more =
        *times > 1 ? fmt::format(" ({} times since this was told)", *times) : "";
    logger("rnbd.session").warn("{}: turned away: {}{}", printable(session), why, more);
}

std::error_code Target::on_session_up(rtrs::ServerSession& session) {
    if (draining_ == Draining::on) {
        note_turned_away(session.name(), "the server is being drained");
        return from_errno(EBUSY);
    }
    auto* const made = new Session(*this, session);
    session.context = made;
    sessions_.push_back(made);
    catalog_.session_up(session);
    figures_.session_up(session);
    logger("rnbd.session").info("{}: up, from {}", printable(session.name()), session.peer_host());
    return {};
}

void Target::on_session_down(rtrs::ServerSession& session) {
    const std::unique_ptr<Session> gone(static_cast<Session*>(session.context));
    session.context = nullptr;
    std::erase(sessions_, gone.get());
    catalog_.session_down(session);
    figures_.session_down(session);
    for (auto& [id, open] : gone->opens) {
        open.volume->close(open.open);
        closed_one(*open.volume);
    }
    logger("rnbd.session").info("{}: down", printable(session.name()));
}

void Target::on_chunk_gone(void* chunk_context) {
    const std::unique_ptr<Io> gone(static_cast<Io*>(chunk_context));
    unpin(*gone);
}

const SessionStatistics& Target::statistics(const rtrs::ServerSession& session) {
    static const SessionStatistics none;
    const auto* ours = static_cast<const Session*>(session.context);
    return ours != nullptr ? ours->statistics : none;
}

SessionFigures Target::figures_of(const rtrs::ServerSession& session) {
    const rtrs::ServerSessionStatus status = session.status();
    const SessionStatistics& done = statistics(session);
    return {.queue_depth = status.queue_depth,
            .in_flight = status.in_flight,
            .reads = done.reads,
            .read_bytes = done.read_bytes,
            .writes = done.writes,
            .write_bytes = done.write_bytes,
            .others = done.other,
            .refused = done.refused,
            .storage_errors = done.errors - done.refused,
            .stale = status.stale,
            .p50 = done.latency.percentile(50),
            .p99 = done.latency.percentile(99),
            .longest = done.latency.max()};
}

void Target::on_request(rtrs::ServerOp& op) {
    auto& session = *static_cast<Session*>(op.session().context);
    const auto type = request_type(op.message());
    if (!type) return op.respond(from_errno(to_errno(type.error())));
    switch (*type) {
        case MessageType::session_info:
            return session_info(session, op);
        case MessageType::open:
            return open(session, op);
        case MessageType::close:
            return close(session, op);
        case MessageType::io:
            return io(session, op);
        case MessageType::extents:
            return extents(session, op);
        case MessageType::session_info_response:
        case MessageType::open_response:
        case MessageType::extents_response:
            break;
    }
    op.respond(from_errno(EINVAL));
}

// --- Control messages.

void Target::session_info(Session& session, rtrs::ServerOp& op) {
    const auto message = SessionInfoMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    if (op.data().size() < SessionInfoResponse::wire_bytes) return op.respond(from_errno(EINVAL));
    const auto response = SessionInfoResponse::to(*message, features_known);
    session.version = response.version;
    session.features = response.features;
    response.emit(op.data());
    op.respond({}, SessionInfoResponse::wire_bytes);
}

void Target::open(Session& session, rtrs::ServerOp& op) {
    const auto message = OpenMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    if (op.data().size() < OpenResponse::wire_bytes) return op.respond(from_errno(EINVAL));
    const auto answer = [&](std::uint32_t id, const Volume& volume) {
        OpenResponse response = describe(volume.geometry(), id, op.session().max_io_bytes());
        if (has(session.features, Feature::epoch)) response.epoch = volume.cache_epoch();
        response.emit(op.data());
        op.respond({}, OpenResponse::wire_bytes);
    };
    const auto before = std::ranges::find_if(session.opens, [&](const auto& one) {
        return one.second.name == message->device_name && !one.second.ends();
    });
    if (before != session.opens.end()) {
        auto& [id, open] = *before;
        // As the kernel: the same id, fresh geometry. Whatever access is asked for now, says the
        // kernel, so its clients get that; others get what they ask for or hear that they may not.
        const bool as_asked =
            open.access == message->access_mode || kernel_door(session.session.door()) != nullptr;
        if (as_asked && open.volume->storage(*open.open) != nullptr) {
            if (!std::exchange(open.asks_anew, false)) return answer(id, *open.volume);
            open.volume->is_told(*open.open);
            auto moved = session.opens.extract(before);
            open.id = moved.key() = session.fresh_device_id();
            session.opens.insert(std::move(moved));
            return answer(open.id, *open.volume);
        }
        // Of another access, or of a storage that is gone: the new one takes its place.
        take_away(session, id);
    }
    auto& log = logger("rnbd.session");
    const auto refuse = [&](std::error_code error, std::string_view why) {
        // A client tries again for as long as it lives: one line per reason tells it.
        if (session.refusals.size() > refusals_max) session.refusals.clear();
        auto& known = session.refusals[message->device_name];
        if (known == why) return op.respond(error);
        known = why;
        log.warn("{}: open of {} ({}) from {} refused: {}", printable(session.session.name()),
                 printable(message->device_name), to_word(message->access_mode),
                 session.session.peer_host(), why);
        op.respond(error);
    };
    if (draining_ == Draining::on) return refuse(from_errno(EBUSY), "the server is being drained");
    const std::string wanted = export_for(session, message->device_name);
    Volume* volume = find(wanted);
    if (volume == nullptr) {
        return refuse(from_errno(ENOENT),
                      wanted == message->device_name
                          ? std::string("no export has this name")
                          : "it stands for an export " + printable(wanted) + ", and there is none");
    }
    const auto open =
        volume->open(session.session.name(), session.session.peer_host(), message->access_mode);
    if (!open) {
        const bool waiting = open.error() == std::errc::no_such_file_or_directory;
        const bool taken = open.error() == std::errc::operation_not_permitted;
        const bool denied = open.error() == std::errc::permission_denied;
        const bool out = open.error() == std::errc::device_or_resource_busy;
        return refuse(open.error(), waiting  ? "the export waits: " + volume->reason()
                                    : taken  ? "another session has it open for writing"
                                    : denied ? "no allow entry for this session, address and access"
                                    : out    ? "the export was taken from this session for a while"
                                             : open.error().message());
    }
    session.refusals.erase(message->device_name);
    const std::uint32_t id = session.fresh_device_id();
    const StorageOptions& storage = volume->config().storage;
    const bool file = storage.kind == StorageOptions::Kind::path;
    session.opens[id] = {.id = id,
                         .volume = volume,
                         .open = *open,
                         .name = message->device_name,
                         .access = message->access_mode,
                         .pins = file,
                         .paces_reads = file && storage.io == StorageOptions::Io::buffered &&
                                        reads_ == Reads::in_portions};
    log.info("{}: opened {} ({})", printable(session.session.name()), volume->name(),
             to_word(message->access_mode));
    answer(id, *volume);
}

void Target::close(Session& session, rtrs::ServerOp& op) {
    const auto message = CloseMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    const auto found = session.opens.find(message->device_id);
    // An unknown id is closed already.
    if (found == session.opens.end() || found->second.closing != nullptr) return op.respond({});
    OpenVolume& open = found->second;
    if (open.open->in_flight > 0) {
        open.closing = &op;
        return;
    }
    logger("rnbd.session").info("{}: closed {}", printable(session.session.name()), open.name);
    Volume& volume = *open.volume;
    volume.close(open.open);
    session.opens.erase(found);
    op.respond({});
    closed_one(volume);
}

// --- I/O.

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
    io.begun = open.volume->begin(*open.open);
    io.losses = open.volume->losses();
    io.started = reactor_.now();
    RTRS_PROBE(server_request, &io, static_cast<unsigned>(io.wire_operation), io.offset, io.bytes);
    enter(io, *open.volume->storage(*open.open));
}

std::error_code Target::prepare(Session& session, rtrs::ServerOp& op, Io& io) {
    const auto message = IoMessage::parse(op.message());
    if (!message) return from_errno(to_errno(message.error()));
    if (const auto checked = message->check_data(op.data().size()); !checked) {
        return from_errno(to_errno(checked.error()));
    }
    if (op.direction() == rtrs::Direction::write && message->operation == Operation::read) {
        return from_errno(EINVAL);
    }
    const auto found = session.opens.find(message->device_id);
    if (found == session.opens.end() || found->second.ends()) return from_errno(ENOTCONN);
    OpenVolume& open = found->second;
    if (open.asks_anew) return from_errno(ENOTCONN);
    if (open.volume->storage(*open.open) == nullptr) return from_errno(ENODEV);
    const StorageGeometry& geometry = open.volume->geometry();

    if (writes(message->operation) && open.access == AccessMode::read_only)
        return from_errno(EROFS);
    switch (message->operation) {
        case Operation::read:
            io.operation = BlockOperation::read;
            break;
        case Operation::write:
            io.operation = BlockOperation::write;
            break;
        case Operation::flush:
            io.operation = BlockOperation::flush;
            break;
        case Operation::discard:
            if (geometry.discard_bytes_max == 0) return from_errno(EOPNOTSUPP);
            io.operation = BlockOperation::discard;
            break;
        case Operation::write_zeroes:
            if (geometry.write_zeroes_bytes_max == 0) return from_errno(EOPNOTSUPP);
            io.operation = BlockOperation::write_zeroes;
            break;
        case Operation::secure_erase:
            return from_errno(EOPNOTSUPP);
    }
    const bool flush = message->operation == Operation::flush;
    // A flush names no range: its sector is all ones.
    io.bytes = flush ? 0 : message->bytes;
    io.offset = flush ? 0 : message->sector * sector_bytes;
    if (!flush) {
        if (message->sector > geometry.size_bytes / sector_bytes || io.bytes == 0 ||
            io.bytes > geometry.size_bytes - io.offset) {
            return from_errno(writes(message->operation) ? ENOSPC : EINVAL);
        }
        if (io.offset % geometry.logical_block_bytes != 0 ||
            io.bytes % geometry.logical_block_bytes != 0) {
            return from_errno(EINVAL);
        }
    }
    io.session = &session;
    io.op = &op;
    io.open = &open;
    io.wire_operation = message->operation;
    io.force_unit_access = !flush && has(message->flags, IoFlag::fua);
    io.no_unmap = has(message->flags, IoFlag::no_unmap);
    io.fast_only =
        has(message->flags, IoFlag::fast_zero) && has(session.features, Feature::fast_zero);
    io.flush_first =
        message->operation == Operation::write && has(message->flags, IoFlag::preflush);
    io.data = op.data();
    io.paced = open.paces_reads && message->operation == Operation::read;
    io.fixed_buffer_of = reactor_.here().number();
    io.fixed_buffer = open.pins && carries_data(message->operation)
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

void Target::enter(Io& io, Storage& storage) {
    if (io.paced && pacers_[reactor_.here().number()]->ask(io) == ReadPacer::Verdict::wait) return;
    start(io, storage);
}

void Target::waited(BlockRequest& request) {
    Io& io = static_cast<Io&>(request);
    OpenVolume& open = *io.open;
    if (Storage* storage = open.volume->storage(*open.open)) return start(io, *storage);
    completed(io, from_errno(ENODEV));
}

void Target::start(Io& io, Storage& storage) {
    if (io.flush_first) {
        io.operation = BlockOperation::flush;
        io.bytes = 0;
    }
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
    // Who opens it again fails it then.
    if (covers_loss) error = from_errno(open.asks_anew || open.taken ? ENOTCONN : EIO);
    if (io.flush_first && !error) {
        io.flush_first = false;
        io.operation = BlockOperation::write;
        io.bytes = op.data().size();
        if (Storage* storage = open.volume->storage(*open.open)) return start(io, *storage);
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
        if (!covers_loss) {
            if (sync) open.volume->sync_has_failed();
            session.target.log_failure(open, io, error);
            error = answered_as(error);
        }
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

// The last one of a volume that is to be closed closes it.
void Target::answer(InFlight& done, std::error_code error, std::uint32_t produced_bytes) {
    Session& session = *done.session;
    OpenVolume& open = *done.open;
    Target& target = session.target;
    rtrs::ServerOp* closing = nullptr;
    Volume* closed = nullptr;
    open.volume->end(*open.open, done.begun);
    if (open.open->in_flight == 0 && open.ends()) {
        closing = open.closing;
        closed = open.volume;
        closed->close(open.open);
        session.opens.erase(std::uint32_t{open.id});
    }
    done.op->respond(error, produced_bytes);  // may end the session
    if (closing != nullptr) closing->respond({});
    if (closed != nullptr) target.closed_one(*closed);
}

void Target::log_failure(OpenVolume& open, const Io& io, std::error_code error) {
    const rtrs::Instant now = reactor_.now();
    if (error == open.logged_error && now < open.logged_at + failure_log_interval) return;
    open.logged_error = error;
    open.logged_at = now;
    logger("rnbd.volume")
        .warn("{}: {} of {} bytes at {} for {} failed: {}", open.name, name_of(io.wire_operation),
              io.bytes, io.offset, printable(io.session->session.name()), error.message());
}

// --- The end.

void Target::flush_all(std::function<void()> done) {
    ending_ = true;
    flushes_ = volumes_.size() + 1;
    const auto one_done = [this, done = std::move(done)] {
        if (--flushes_ == 0) done();
    };
    for (const auto& volume : volumes_) {
        const auto leaving = leaving_.find(volume.get());
        if (leaving == leaving_.end()) {
            volume->flush([one_done](std::error_code) { one_done(); });
        } else {
            // Flushed, for it is about to go.
            leaving->second.waiting.emplace_back([one_done](std::error_code) { one_done(); });
        }
    }
    one_done();
}

void Target::give_up() {
    for (const auto& volume : volumes_) volume->give_up();
}

}  // namespace rnbd
