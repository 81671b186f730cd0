// Target: what a session asks for before its I/O. SESS_INFO, OPEN, CLOSE.

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "daemon/config/common.h"
#include "daemon/log/log.h"
#include "rnbd-server/target_inside.h"
#include "rtrs/base/error.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using rtrs::from_errno;

// Discard and write zeroes carry their length in the 32 bits of bi_size.
constexpr std::uint64_t range_bytes_max = std::numeric_limits<std::uint32_t>::max();
// The largest power of two for which OPEN's answer has room.
constexpr std::uint32_t physical_block_bytes_max = 32u << 10;
// Larger writes to the page cache are copied faster by the process's addresses than page by page
// of pinned memory (128 KiB to ext4: 0.86 of the server's CPU; to tmpfs, and of reads, the same).
constexpr std::uint64_t pinned_buffered_write_bytes_max = 32u << 10;
// A disk that does not write the writers' file: nobody waits longer than for one that cannot.
constexpr rtrs::Duration file_wait_max = std::chrono::seconds(5);
// Names of exports that were not opened that are remembered per session.
constexpr std::size_t not_open_max = 64;

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
            .physical_block_bytes = static_cast<std::uint16_t>(
                std::min(geometry.physical_block_bytes, physical_block_bytes_max)),
            .logical_block_bytes = static_cast<std::uint16_t>(geometry.logical_block_bytes),
            .max_segments = 128,  // what a kernel client uses anyway
            .secure_discard = 0,
            .fua = geometry.force_unit_access,
            .write_back = geometry.volatile_cache};
}

std::string why_not_open(const Volume& volume, std::error_code error) {
    switch (rtrs::to_errno(error)) {
        case ENOENT:
            return "the export waits: " + volume.reason();
        case EPERM:
            return "another session has it open for writing";
        case EAGAIN:
            return "those who had it open for writing are waited for";
        case EACCES:
            return "no allow entry for this session, address and access";
        case EBUSY:
            return "the export was taken from this session for a while";
        case EMEDIUMTYPE:
            return "it knows another file or device under this name: bring that back, or unmap and "
                   "map it there";
        case ESTALE:
            return "it was away while another one wrote, and may hold older writes: map it again";
        default:
            return error.message();
    }
}

}  // namespace

void Target::session_info(Session& session, rtrs::ServerOp& op) {
    const auto message = SessionInfoMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    if (op.data().size() < SessionInfoResponse::wire_bytes) return op.respond(from_errno(EINVAL));
    const auto response = SessionInfoResponse::to(*message, features_known);
    session.features = response.features;
    response.emit(op.data());
    op.respond({}, SessionInfoResponse::wire_bytes);
}

void Target::open(Session& session, rtrs::ServerOp& op, OpenWait wait) {
    const auto message = OpenMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    if (op.data().size() < OpenResponse::size(session.features)) {
        return op.respond(from_errno(EINVAL));
    }
    const bool writes = message->access_mode != AccessMode::read_only;
    const Writers::Id writer =
        writes && has(session.features, Feature::writer) ? message->writer : 0;
    const OpenVolume* open = opened_before(session, *message, writer);
    if (open == nullptr) {
        const auto opened = open_anew(session, *message, writer);
        if (!opened) {
            if (opened.error().is_waiting && may_wait_for_storage(session, wait.until)) {
                if (!wait.is_told)
                    log_not_open(session, *message, "not answered yet: " + opened.error().why);
                return wait_for_storage(session, op, wait.until);
            }
            log_not_open(session, *message, "refused: " + opened.error().why);
            return op.respond(opened.error().code);
        }
        session.not_open.erase(message->device_name);
        open = *opened;
    }
    const WriterFile::Ticket in_file = open->volume->in_file();
    if (writes && !writers_.is_written(in_file)) {
        opens_waiting_.push_back(
            {&session, &op, open->id, in_file, reactor_.now() + file_wait_max});
        if (!opens_timer_.armed()) opens_timer_.arm(opens_waiting_.front().until);
        return;
    }
    answer_open(session, op, *open);
}

// Other clients ask again, and hear meanwhile what the export waits for.
bool Target::may_wait_for_storage(const Session& session, rtrs::Instant until) const noexcept {
    return !opens_end_ && reactor_.now() < until && session.session.connected() &&
           kernel_portal(session.session.portal()) != nullptr;
}

// Looks again in a second: a session whose paths are gone is not to end later for what it asked.
void Target::wait_for_storage(Session& session, rtrs::ServerOp& op, rtrs::Instant until) {
    opens_without_storage_.push_back({&session, &op, until});
    if (!storage_timer_.armed()) {
        storage_timer_.arm(std::min(until, reactor_.now() + std::chrono::seconds(1)));
    }
}

// An export may be there, or gone; or one may have waited for long enough.
void Target::opens_without_storage_go_on() {
    for (const auto& one : std::exchange(opens_without_storage_, {})) {
        open(*one.session, *one.op, {.until = one.until, .is_told = true});
    }
}

// In a turn of its own, since a volume may be in the middle of a change.
void Target::ask_opens_without_storage_again() {
    if (!opens_without_storage_.empty()) storage_timer_.arm(reactor_.now());
}

void Target::end_opens() {
    opens_end_ = true;
    opens_without_storage_go_on();
}

// What had to be in the writers' file before them may be there.
void Target::opens_go_on() {
    std::vector<WaitingOpen> waiting;
    waiting.swap(opens_waiting_);
    for (const WaitingOpen& one : waiting) {
        const auto open = one.session->opens.find(one.id);
        const bool overdue = reactor_.now() >= one.until;
        if (open == one.session->opens.end() || !may_be_answered(open->second)) {
            one.op->respond(from_errno(EAGAIN));  // it ends, or has ended, and is asked for again
        } else if (overdue || writers_.is_written(one.in_file)) {
            if (overdue) log_overdue(one.session->session, open->second);
            answer_open(*one.session, *one.op, open->second);
        } else {
            opens_waiting_.push_back(one);
        }
    }
    if (!opens_waiting_.empty()) opens_timer_.arm(opens_waiting_.front().until);
}

bool Target::may_be_answered(const OpenVolume& open) {
    return !open.ends() && !open.asks_anew && !open.open->is_out &&
           open.volume->storage(*open.open) != nullptr;
}

// As if it could not be written.
void Target::log_overdue(const rtrs::ServerSession& session, const OpenVolume& open) {
    logger("rnbd.server")
        .error(
            "{}: not written for {:g} s, {} has {} open all the same: a server that is started "
            "again may let it in although another one has written",
            writers_.path(), rtrs::in_seconds(file_wait_max), printable(session.name()), open.name);
}

// The server ends, and the disk of the writers' file does not answer.
void Target::opens_wait_no_longer() {
    for (const WaitingOpen& one : std::exchange(opens_waiting_, {})) {
        one.op->respond(from_errno(EAGAIN));
    }
}

void Target::answer_open(Session& session, rtrs::ServerOp& op, const OpenVolume& open) {
    const std::uint32_t bytes = OpenResponse::size(session.features);
    OpenResponse response = describe(open.volume->geometry(), open.id, op.session().max_io_bytes());
    if (has(session.features, Feature::epoch)) response.epoch = open.volume->cache_epoch();
    response.medium = open.volume->geometry().medium;
    response.emit(op.data().first(bytes));
    op.respond({}, bytes);
}

MediumId Target::expected_by(const Session& session, const OpenMessage& message) {
    return has(session.features, Feature::medium) ? message.medium : MediumId{};
}

// As the kernel: the same id, fresh geometry. Whatever access is asked for now, says the kernel, so
// its clients get that; others get what they ask for or hear that they may not.
const Target::OpenVolume* Target::opened_before(Session& session, const OpenMessage& message,
                                                Writers::Id writer) {
    const auto before = std::ranges::find_if(session.opens, [&](const auto& one) {
        return one.second.name == message.device_name && !one.second.ends();
    });
    if (before == session.opens.end()) return nullptr;
    auto& [id, open] = *before;
    const bool as_asked =
        open.access == message.access_mode || kernel_portal(session.session.portal()) != nullptr;
    const bool out = open.open->is_out || (writer != 0 && open.volume->is_out(writer));
    const bool another = open.volume->stands_for_another(expected_by(session, message));
    if (!as_asked || out || another || open.volume->storage(*open.open) == nullptr) {
        // Of another access, or of a storage that is gone: the new one takes its place. Or it will
        // be refused one.
        take_away(session, id);
        return nullptr;
    }
    if (open.access != AccessMode::read_only) open.volume->is_writer(*open.open, writer);
    if (std::exchange(open.asks_anew, false)) {
        open.volume->is_told(*open.open);
        auto moved = session.opens.extract(before);
        open.id = moved.key() = session.fresh_device_id();
        session.opens.insert(std::move(moved));
    }
    return &open;
}

std::expected<const Target::OpenVolume*, Target::Refusal> Target::open_anew(
    Session& session, const OpenMessage& message, Writers::Id writer) {
    const auto refused = [](std::error_code code, std::string why) {
        return std::unexpected(Refusal{code, std::move(why)});
    };
    if (draining_ == Draining::on) return refused(from_errno(EBUSY), "the server is being drained");
    const std::string wanted = export_for(session, message.device_name);
    Volume* volume = find(wanted);
    if (volume == nullptr) {
        return refused(from_errno(ENOENT), wanted == message.device_name
                                               ? "no export has this name"
                                               : "it stands for an export " + printable(wanted) +
                                                     ", and there is none");
    }
    const auto open = volume->open({.session = session.session.name(),
                                    .host = session.session.peer_host(),
                                    .access = message.access_mode,
                                    .writer = writer,
                                    .holder = &session.session,
                                    .expects = expected_by(session, message),
                                    .reopens = kernel_portal(session.session.portal()) != nullptr
                                                   ? Volume::Reopens::no
                                                   : Volume::Reopens::yes});
    if (!open) {
        return std::unexpected(Refusal{.code = open.error(),
                                       .why = why_not_open(*volume, open.error()),
                                       .is_waiting = open.error() == from_errno(ENOENT)});
    }
    const std::uint32_t id = session.fresh_device_id();
    const StorageOptions& storage = volume->config().storage;
    const bool file = storage.kind == StorageOptions::Kind::path;
    const bool buffered = storage.io == StorageOptions::Io::buffered;
    session.opens[id] = {.id = id,
                         .volume = volume,
                         .open = *open,
                         .name = message.device_name,
                         .access = message.access_mode,
                         .pins = file,
                         .pinned_write_bytes_max = buffered ? pinned_buffered_write_bytes_max
                                                            : session.session.chunk_bytes(),
                         .paces_reads = file && buffered && reads_ == Reads::in_portions};
    logger("rnbd.session")
        .info("{}: opened {} ({})", printable(session.session.name()), volume->name(),
              to_word(message.access_mode));
    return &session.opens[id];
}

// A client tries again for as long as it lives: one line per reason tells it.
void Target::log_not_open(Session& session, const OpenMessage& message, const std::string& why) {
    if (session.not_open.size() > not_open_max) session.not_open.clear();
    auto& known = session.not_open[message.device_name];
    if (known == why) return;
    known = why;
    logger("rnbd.session")
        .warn("{}: open of {} ({}) from {} {}", printable(session.session.name()),
              printable(message.device_name), to_word(message.access_mode),
              session.session.peer_host(), why);
}

void Target::close(Session& session, rtrs::ServerOp& op) {
    const auto message = CloseMessage::parse(op.message());
    if (!message) return op.respond(from_errno(to_errno(message.error())));
    const auto found = session.opens.find(message->device_id);
    // An unknown id is closed already.
    if (found == session.opens.end()) return op.respond({});
    OpenVolume& open = found->second;
    if (open.closing.empty()) open.volume->says_goodbye(*open.open);
    if (open.open->in_flight > 0) {
        open.closing.push_back(&op);
        return;
    }
    logger("rnbd.session").info("{}: closed {}", printable(session.session.name()), open.name);
    Volume& volume = *open.volume;
    volume.close(open.open);
    session.opens.erase(found);
    op.respond({});
    closed_one(volume);
}

}  // namespace rnbd
