#include "rnbd/remote_volume.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "rnbd/remote_session.h"
#include "rnbd/remote_volume_inside.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/bytes.h"
#include "rtrs/base/planted.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

constexpr rtrs::Duration retry_delay_min = 50ms;
constexpr rtrs::Duration retry_delay_max = 2s;
// Answer of an extents query: what fits into the session's response buffer.
constexpr std::uint32_t extents_response_bytes = 4096;

Operation wire_operation(VolumeOperation operation) {
    switch (operation) {
        case VolumeOperation::read:
            return Operation::read;
        case VolumeOperation::write:
            return Operation::write;
        case VolumeOperation::flush:
            return Operation::flush;
        case VolumeOperation::discard:
            return Operation::discard;
        case VolumeOperation::write_zeroes:
            return Operation::write_zeroes;
    }
    return Operation::read;
}

IoFlag wire_flags(const VolumeIo& io) {
    IoFlag flags = IoFlag::none;
    // As the kernel client: a flush carries both.
    if (io.operation == VolumeOperation::flush) flags = IoFlag::sync | IoFlag::fua;
    if (io.operation == VolumeOperation::read) flags = IoFlag::sync;
    if (io.force_unit_access) flags = flags | IoFlag::fua;
    if (io.operation == VolumeOperation::write_zeroes) {
        if (io.no_unmap) flags = flags | IoFlag::no_unmap;
        if (io.fast_only) flags = flags | IoFlag::fast_zero;
    }
    return flags;
}

bool moves_data(VolumeOperation operation) {
    return operation == VolumeOperation::read || operation == VolumeOperation::write;
}

bool writes(VolumeOperation operation) {
    return operation == VolumeOperation::write || operation == VolumeOperation::discard ||
           operation == VolumeOperation::write_zeroes;
}

}  // namespace

const char* to_string(VolumeOperation operation) noexcept {
    switch (operation) {
        case VolumeOperation::read:
            return "read";
        case VolumeOperation::write:
            return "write";
        case VolumeOperation::flush:
            return "flush";
        case VolumeOperation::discard:
            return "discard";
        case VolumeOperation::write_zeroes:
            return "write_zeroes";
    }
    return "?";
}

const char* to_string(VolumeState state) noexcept {
    switch (state) {
        case VolumeState::opening:
            return "opening";
        case VolumeState::open:
            return "open";
        case VolumeState::reopening:
            return "reopening";
        case VolumeState::closed:
            return "closed";
    }
    return "?";
}

RemoteVolume::Inside::Inside(RemoteVolume& its_self, RemoteSession::Inside& its_session,
                             RemoteVolumeOptions its_options, RemoteVolumeHandler& its_handler)
    : self(its_self),
      session(its_session),
      options(std::move(its_options)),
      handler(its_handler),
      retry_timer(session.environment.clock, this,
                  [](void* context) { static_cast<Inside*>(context)->send_open(); }),
      hold_timer(session.environment.clock, this,
                 [](void* context) {
                     auto& inside = *static_cast<Inside*>(context);
                     inside.hold_time_over = true;
                     inside.fail_all_held(rtrs::Error::no_path);
                 }),
      failure_timer(session.environment.clock, this,
                    [](void* context) { static_cast<Inside*>(context)->report_failures(); }),
      closed_timer(session.environment.clock, this,
                   [](void* context) {
                       auto& inside = *static_cast<Inside*>(context);
                       inside.handler.on_volume_closed(inside.self);
                   }),
      since(session.environment.clock.now()) {
    session.volumes.push_back(this);
    arm_hold();
    if (session.ready) link_ready();
}

RemoteVolume::Inside::~Inside() {
    RTRS_ASSERT(state == VolumeState::closed);
    std::erase(session.volumes, this);
}

void RemoteVolume::Inside::arm_hold() {
    hold_timer.disarm();
    if (closing || hold_time_over || state == VolumeState::open || state == VolumeState::closed)
        return;
    if (const auto hold = session.session.options().hold_time) hold_timer.arm(since + *hold);
}

void RemoteVolume::Inside::set_state(VolumeState next, std::string why) {
    const bool changed = next != state || why != reason;
    const bool lost = state == VolumeState::open && next == VolumeState::reopening;
    if (next != state) since = session.environment.clock.now();
    state = next;
    reason = std::move(why);
    if (lost) arm_hold();
    if (!changed) return;
    const std::string subject = session.session.options().name + "/" + options.name;
    const bool trouble = next == VolumeState::opening || next == VolumeState::reopening;
    session.environment.tracer.trace(
        trouble ? rtrs::TraceLevel::warning : rtrs::TraceLevel::info, "rnbd.volume", subject,
        std::string(to_string(next)) + (reason.empty() ? "" : ": " + reason));
    if (next != VolumeState::closed) handler.on_volume_changed(self);
}

// --- Opening.

constexpr std::uint64_t sectors_max = (std::uint64_t{1} << 63) / sector_bytes - 1;

// What a broken server may say of a volume, and what everything above counts on.
bool RemoteVolume::Inside::usable(const OpenResponse& response) const {
    const std::uint32_t block = response.logical_block_bytes;
    return std::has_single_bit(block) && block >= sector_bytes &&
           block <= session.session.max_io_bytes() && response.sectors <= sectors_max;
}

bool RemoteVolume::Inside::usable_size(std::uint64_t size_bytes) const {
    const bool whole = size_bytes % geometry.logical_block_bytes == 0;
    return whole && size_bytes / sector_bytes <= sectors_max;
}

// Requests beyond a new end are the server's to refuse: they were in range when they were made.
void RemoteVolume::Inside::resized(std::uint64_t size_bytes) {
    if (asking) size_heard = size_bytes;
    if (state != VolumeState::open || size_bytes == geometry.size_bytes) return;
    if (!usable_size(size_bytes)) return;
    const std::uint64_t before = std::exchange(geometry.size_bytes, size_bytes);
    session.environment.tracer.trace(
        rtrs::TraceLevel::info, "rnbd.volume", session.session.options().name + "/" + options.name,
        "resized from " + std::to_string(before) + " to " + std::to_string(size_bytes) + " bytes");
    handler.on_volume_changed(self);
}

std::error_code RemoteVolume::Inside::set_size(std::uint64_t size_bytes) {
    if (state != VolumeState::open) return rtrs::from_errno(ENOENT);
    if (!usable_size(size_bytes)) return rtrs::from_errno(EINVAL);
    resized(size_bytes);
    return {};
}

void RemoteVolume::Inside::link_ready() {
    refusals = 0;
    if (closing) return close_if_idle();
    send_open();
}

void RemoteVolume::Inside::link_lost(std::error_code why) {
    retry_timer.disarm();
    open_at_server = false;
    if (closing) {
        // The server closes what a lost session had open.
        close_if_idle();
        return;
    }
    if (state == VolumeState::closed) return;
    open_error.clear();  // the server that comes back may answer otherwise
    set_state(state == VolumeState::opening ? VolumeState::opening : VolumeState::reopening,
              "the session has no path: " + why.message());
}

void RemoteVolume::Inside::send_open() {
    if (closing || asking || !session.ready) return;
    asking = true;
    size_heard.reset();
    maybe_open_at_server = true;
    std::byte message[OpenMessage::wire_bytes];
    OpenMessage{.access_mode = options.access, .device_name = options.name}.emit(message);
    session.session.submit_user(
        rtrs::Direction::read, message, OpenResponse::wire_bytes,
        [](void* context, std::error_code error, rtrs::Bytes response) {
            static_cast<Inside*>(context)->open_answered(error, response);
        },
        this);
}

void RemoteVolume::Inside::open_answered(std::error_code error, rtrs::Bytes response) {
    asking = false;
    // ENODEV may be of one that is open there, whose storage is gone.
    const bool refused = error && !unanswered(error) && error != std::errc::no_such_device;
    if (refused) maybe_open_at_server = false;
    if (closing) {
        const auto parsed =
            error ? std::unexpected(ParseError::too_short) : OpenResponse::parse(response);
        if (parsed) {
            device_id = parsed->device_id;
            open_at_server = session.ready;
        }
        return close_if_idle();
    }
    if (unanswered(error)) {
        // Lost with the link: the next link_ready() asks again. With another path left, ask now.
        if (session.ready) retry_timer.arm(session.environment.clock.now() + retry_delay_min);
        return;
    }
    if (!error) {
        const auto parsed = OpenResponse::parse(response);
        if (parsed && usable(*parsed)) return opened(*parsed);
        error = rtrs::Error::protocol;
        if (parsed) {
            device_id = parsed->device_id;
            open_at_server = true;
        }
    }
    rtrs::Duration delay = retry_delay_min;
    for (std::uint32_t i = 0; i < refusals && delay < retry_delay_max; ++i) delay *= 2;
    ++refusals;
    open_error = error;
    retry_timer.arm(session.environment.clock.now() + std::min(delay, retry_delay_max));
    std::string why = "the server refuses to open it: " + error.message();
    if (error == std::errc::permission_denied)
        why += " (its allow list does not have this session, or not with this access)";
    if (error == std::errc::operation_not_permitted) why += " (it is open for writing elsewhere)";
    if (error == std::errc::no_such_file_or_directory)
        why += " (no such export, or it waits for its storage)";
    set_state(state == VolumeState::open ? VolumeState::reopening : state, std::move(why));
}

std::error_code RemoteVolume::Inside::open_again() {
    if (closing || state == VolumeState::closed) return rtrs::from_errno(ENODEV);
    if (state == VolumeState::open) return rtrs::from_errno(EALREADY);
    if (!session.ready) return rtrs::from_errno(ECONNABORTED);
    open_error.clear();
    retry_timer.disarm();
    send_open();
    return {};
}

void RemoteVolume::Inside::opened(const OpenResponse& response) {
    device_id = response.device_id;
    open_at_server = true;
    refusals = 0;
    open_error.clear();
    const Feature features = session.features;
    geometry = {
        .size_bytes = response.sectors * sector_bytes,
        .logical_block_bytes = response.logical_block_bytes,
        .physical_block_bytes =
            std::max(response.physical_block_bytes, response.logical_block_bytes),
        .discard_bytes_max = std::uint64_t{response.max_discard_sectors} * sector_bytes,
        .discard_granularity_bytes = response.discard_granularity_bytes,
        .write_zeroes_bytes_max = std::uint64_t{response.max_write_zeroes_sectors} * sector_bytes,
        .fast_zero = has(features, Feature::fast_zero),
        .extents = has(features, Feature::extents),
        .write_cache = response.write_back,
        .force_unit_access = response.fua};
    // If the answer is newer, one more word of the catalog's is on its way.
    if (size_heard && usable_size(*size_heard)) geometry.size_bytes = *size_heard;
    if (has(features, Feature::epoch) && response.epoch != 0) note_epoch(response.epoch);
    hold_timer.disarm();
    hold_time_over = false;
    set_state(VolumeState::open, "");
    resume_held();
}

void RemoteVolume::Inside::resume_held() {
    // Sent before the link was lost: their message names a device id that is no more.
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        const rtrs::PermitId id{i};
        if (session.records[i].volume != this || !session.session.held(id)) continue;
        rtrs::store_le32(session.session.message(id).data() + IoMessage::device_id_offset,
                         device_id);
        session.records[i].device_id = device_id;
        session.records[i].epoch = epoch.value_or(0);
        session.session.resume(id);
    }
    std::deque<Waiting> ready;
    ready.swap(waiting);
    for (Waiting& one : ready) {
        if (one.error) {
            fail_later(std::move(one.permit), one.io, one.error, one.covers);
        } else {
            submit(std::move(one.permit), one.io, one.covers);
        }
    }
}

// --- Requests.

std::error_code RemoteVolume::Inside::check(const VolumeIo& io) const {
    const bool read_only = options.access == AccessMode::read_only;
    if (writes(io.operation) && read_only) return rtrs::from_errno(EROFS);
    if (io.operation == VolumeOperation::flush) return {};
    if (io.bytes == 0 || io.bytes % geometry.logical_block_bytes != 0 ||
        io.offset % geometry.logical_block_bytes != 0) {
        return rtrs::from_errno(EINVAL);
    }
    if (io.offset > geometry.size_bytes || io.bytes > geometry.size_bytes - io.offset) {
        return rtrs::from_errno(writes(io.operation) ? ENOSPC : EINVAL);
    }
    if ((io.operation == VolumeOperation::discard && geometry.discard_bytes_max == 0) ||
        (io.operation == VolumeOperation::write_zeroes &&
         (geometry.write_zeroes_bytes_max == 0 || (io.fast_only && !geometry.fast_zero)))) {
        return rtrs::from_errno(EOPNOTSUPP);
    }
    if (moves_data(io.operation) && io.bytes > session.session.max_io_bytes()) {
        return rtrs::from_errno(EINVAL);
    }
    return {};
}

void RemoteVolume::Inside::submit(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers) {
    RTRS_ASSERT(io.responded != nullptr);
    if (closing || state == VolumeState::closed) {
        return fail_later(std::move(permit), io, rtrs::Error::closed);
    }
    if (state != VolumeState::open) {
        if (hold_time_over) return fail_later(std::move(permit), io, rtrs::Error::no_path);
        // What waits here is not seen by the session, whose word counts all the same.
        const std::error_code refused = session.session.refuses_new();
        if (refused) return fail_later(std::move(permit), io, refused);
        waiting.push_back({std::move(permit), io, {}, covers, session.environment.clock.now()});
        return;
    }
    if (const auto error = check(io)) return fail_later(std::move(permit), io, error);
    if (io.operation == VolumeOperation::flush && untold > 0) {
        return fail_later(std::move(permit), io, rtrs::from_errno(EIO), covers);
    }
    send(std::move(permit), io, covers);
}

void RemoteVolume::Inside::send(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers) {
    const Operation operation = wire_operation(io.operation);
    const bool flush = io.operation == VolumeOperation::flush;
    std::byte message[IoMessage::wire_bytes];
    IoMessage{.device_id = device_id,
              .sector = flush ? IoMessage::sector_none : io.offset / sector_bytes,
              .operation = operation,
              .flags = wire_flags(io),
              .bytes = flush ? 0 : io.bytes}
        .emit(message);
    session.record(permit.id()) = {this, io, device_id, covers, false, epoch.value_or(0)};
    ++in_flight;
    session.session.submit(
        std::move(permit),
        {.direction = sent_as_read(operation) ? rtrs::Direction::read : rtrs::Direction::write,
         .message = message,
         .payload_bytes = moves_data(io.operation) ? io.bytes : 0,
         .responded =
             [](void* context, rtrs::Permit answered_permit, std::error_code error) {
                 static_cast<Inside*>(context)->answered(std::move(answered_permit), error);
             },
         .context = this});
}

void RemoteVolume::Inside::answered(rtrs::Permit permit, std::error_code error) {
    IoRecord& record = session.record(permit.id());
    RTRS_ASSERT(record.volume == this);
    record.volume = nullptr;
    --in_flight;
    const IoRecord done = record;
    if (done.lost) {
        error = rtrs::from_errno(EIO);
        told(done.covers);
    } else if (error == std::errc::not_connected && !closing && session.ready) {
        return submit_again(std::move(permit), done);
    } else if (!error) {
        succeeded(done);
    }
    done.io.responded(done.io.context, std::move(permit), error);
    if (closing) close_if_idle();
}

// The server has forgotten the device (it was closed there): ask for it again, unless that has been
// done since this request was sent.
void RemoteVolume::Inside::submit_again(rtrs::Permit permit, const IoRecord& record) {
    if (state == VolumeState::open && record.device_id != device_id) {
        return submit(std::move(permit), record.io, record.covers);
    }
    waiting.push_back(
        {std::move(permit), record.io, {}, record.covers, session.environment.clock.now()});
    device_forgotten(record.device_id);
}

void RemoteVolume::Inside::device_forgotten(std::uint32_t id) {
    if (state == VolumeState::open && id != device_id) return;
    open_at_server = false;
    maybe_open_at_server = asking;
    if (state == VolumeState::open) {
        set_state(VolumeState::reopening, "the server has closed the device");
    }
    if (!asking && !retry_timer.armed()) {
        retry_timer.arm(session.environment.clock.now() + retry_delay_min);
    }
}

void RemoteVolume::Inside::succeeded(const IoRecord& record) {
    if (record.io.operation == VolumeOperation::flush) {
        flushed = std::max(flushed, record.covers);
    } else if (writes(record.io.operation) &&
               !(record.io.force_unit_access && geometry.force_unit_access)) {
        ++acknowledged;
        if (record.epoch != 0 && record.epoch != epoch) lost_before_its_answer();
    }
}

void RemoteVolume::Inside::fail_later(rtrs::Permit permit, const VolumeIo& io,
                                      std::error_code error, std::uint64_t covers) {
    failing.push_back({std::move(permit), io, error, covers, session.environment.clock.now()});
    failure_timer.arm(session.environment.clock.now());
}

void RemoteVolume::Inside::report_failures() {
    std::deque<Waiting> now_failing;
    now_failing.swap(failing);
    for (Waiting& one : now_failing) {
        const bool tells =
            one.io.operation == VolumeOperation::flush && one.error == std::errc::io_error;
        if (tells) told(one.covers);
        one.io.responded(one.io.context, std::move(one.permit), one.error);
    }
    if (closing) close_if_idle();
}

void RemoteVolume::Inside::fail_all_held(std::error_code error) {
    while (!waiting.empty()) {
        fail_later(std::move(waiting.front().permit), waiting.front().io, error);
        waiting.pop_front();
    }
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        if (session.records[i].volume == this && session.session.held(rtrs::PermitId{i})) {
            session.session.fail(rtrs::PermitId{i}, error);
        }
    }
}

// --- What the server may lose.

void RemoteVolume::Inside::note_epoch(std::uint64_t now) {
    const bool another = epoch && *epoch != now;
    epoch = now;
    if (another && flushed < acknowledged && !rtrs::planted(rtrs::PlantedBug::flush_forgotten)) {
        cache_lost();
    }
}

// The write went to a cache that was lost; its answer came by another connection than the news of
// that, and later.
void RemoteVolume::Inside::lost_before_its_answer() {
    if (rtrs::planted(rtrs::PlantedBug::flush_forgotten)) return;
    ++losses.caches;
    ++losses.writes;
    session.environment.tracer.trace(
        rtrs::TraceLevel::error, "rnbd.volume", session.session.options().name + "/" + options.name,
        "a write was acknowledged by a cache that the server has lost since; a flush fails to say "
        "so");
    untold = acknowledged;
}

void RemoteVolume::Inside::cache_lost() {
    const std::uint64_t writes_lost = acknowledged - flushed;
    ++losses.caches;
    losses.writes += writes_lost;
    session.environment.tracer.trace(
        rtrs::TraceLevel::error, "rnbd.volume", session.session.options().name + "/" + options.name,
        "the server came back without its cache: up to " + std::to_string(writes_lost) +
            " acknowledged writes are lost that were not flushed; a flush fails to say so");
    untold = acknowledged;
    fail_lost_flushes();
    flushed = acknowledged;
}

// A flush that covers so many writes was reported as failed.
void RemoteVolume::Inside::told(std::uint64_t covers) {
    if (covers >= untold) untold = 0;
}

// Flushes that were submitted before the cache was lost.
void RemoteVolume::Inside::fail_lost_flushes() {
    const auto covers_lost = [&](const VolumeIo& io, std::uint64_t covers) {
        return io.operation == VolumeOperation::flush && covers > flushed;
    };
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        IoRecord& record = session.records[i];
        if (record.volume == this && covers_lost(record.io, record.covers)) record.lost = true;
    }
    for (Waiting& one : waiting) {
        if (covers_lost(one.io, one.covers)) one.error = rtrs::from_errno(EIO);
    }
}

// --- Extents.

namespace {

struct ExtentsQuery {
    RemoteVolume::ExtentsKnown known;
    void* context;
    RemoteVolume::Inside* volume;
    std::uint32_t device_id;
};

void extents_answered(void* context, std::error_code error, rtrs::Bytes response) {
    const std::unique_ptr<ExtentsQuery> query(static_cast<ExtentsQuery*>(context));
    RemoteVolume::Inside& volume = *query->volume;
    --volume.queries;
    if (error == std::errc::not_connected) {
        if (!volume.closing && volume.session.ready) volume.device_forgotten(query->device_id);
        error = rtrs::Error::path_lost;
    }
    std::vector<ExtentDescriptor> extents;
    if (!error) {
        const auto view = ExtentsResponseView::parse(response);
        if (!view) {
            error = rtrs::Error::protocol;
        } else {
            for (std::size_t i = 0; i < view->count(); ++i) extents.push_back(view->extent(i));
            if (extents.empty()) error = rtrs::Error::protocol;
        }
    }
    query->known(query->context, error, extents);
}

}  // namespace

void RemoteVolume::Inside::query_extents(std::uint64_t offset, std::uint64_t bytes,
                                         ExtentsKnown known, void* context) {
    RTRS_ASSERT(state == VolumeState::open && geometry.extents);
    std::byte message[ExtentsMessage::wire_bytes];
    ExtentsMessage{.device_id = device_id, .offset = offset, .length = bytes}.emit(message);
    ++queries;
    session.session.submit_user(rtrs::Direction::read, message, extents_response_bytes,
                                extents_answered,
                                new ExtentsQuery{known, context, this, device_id});
}

// --- Closing.

void RemoteVolume::Inside::close() {
    if (closing) return;
    closing = true;
    retry_timer.disarm();
    hold_timer.disarm();
    fail_all_held(rtrs::Error::closed);
    close_if_idle();
}

void RemoteVolume::Inside::close_if_idle() {
    if (!closing || state == VolumeState::closed) return;
    fail_all_held(rtrs::Error::closed);
    // A CLOSE that was sent is always answered, with an error if the link is lost.
    if (close_sent) return;
    if (in_flight > 0 || !failing.empty() || asking || queries > 0) {
        // Neither the end of an extents query nor that a request in flight is held now, since its
        // path has drained, is reported to anybody.
        if (failing.empty() && (queries > 0 || !session.ready)) {
            failure_timer.arm(session.environment.clock.now() + retry_delay_min);
        }
        return;
    }
    if (!open_at_server || !session.ready) return closed();
    close_sent = true;
    std::byte message[CloseMessage::wire_bytes];
    CloseMessage{.device_id = device_id}.emit(message);
    session.session.submit_user(
        rtrs::Direction::write, message, 0,
        [](void* context, std::error_code error, rtrs::Bytes) {
            auto& inside = *static_cast<Inside*>(context);
            if (!unanswered(error)) inside.maybe_open_at_server = false;
            inside.closed();
        },
        this);
}

void RemoteVolume::Inside::closed() {
    if (state == VolumeState::closed) return;
    if (maybe_open_at_server) session.close_later(options);
    set_state(VolumeState::closed, "");
    closed_timer.arm(session.environment.clock.now());
}

std::vector<VolumeRequestStatus> RemoteVolume::Inside::requests() const {
    using Stage = VolumeRequestStatus::Stage;
    std::vector<VolumeRequestStatus> all;
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && all.size() < in_flight; ++i) {
        const IoRecord& record = session.records[i];
        if (record.volume != this) continue;
        all.push_back({Stage::session,
                       rtrs::PermitId{i},
                       record.io.operation,
                       record.io.offset,
                       record.io.bytes,
                       {}});
    }
    for (const Waiting& one : waiting) {
        all.push_back({Stage::waiting, one.permit.id(), one.io.operation, one.io.offset,
                       one.io.bytes, one.since});
    }
    return all;
}

// --- The public face.

RemoteVolume::RemoteVolume(RemoteSession& session, RemoteVolumeOptions options,
                           RemoteVolumeHandler& handler)
    : inside_(std::make_unique<Inside>(*this, *session.inside_, std::move(options), handler)),
      session_(session) {}
RemoteVolume::~RemoteVolume() = default;

void RemoteVolume::close() { inside_->close(); }
VolumeState RemoteVolume::state() const noexcept { return inside_->state; }
const std::string& RemoteVolume::reason() const noexcept { return inside_->reason; }
rtrs::Instant RemoteVolume::since() const noexcept { return inside_->since; }
std::error_code RemoteVolume::open_again() { return inside_->open_again(); }
std::error_code RemoteVolume::set_size(std::uint64_t size_bytes) {
    return inside_->set_size(size_bytes);
}
std::error_code RemoteVolume::open_error() const noexcept { return inside_->open_error; }
const VolumeGeometry& RemoteVolume::geometry() const noexcept { return inside_->geometry; }
const RemoteVolumeOptions& RemoteVolume::options() const noexcept { return inside_->options; }
const VolumeLosses& RemoteVolume::losses() const noexcept { return inside_->losses; }
std::uint64_t RemoteVolume::unflushed_writes() const noexcept {
    return inside_->acknowledged - inside_->flushed;
}
RemoteSession& RemoteVolume::session() noexcept { return session_; }
std::vector<VolumeRequestStatus> RemoteVolume::requests() const { return inside_->requests(); }

void RemoteVolume::submit(rtrs::Permit permit, const VolumeIo& io) {
    inside_->submit(std::move(permit), io, inside_->acknowledged);
}

void RemoteVolume::query_extents(std::uint64_t offset, std::uint64_t bytes, ExtentsKnown known,
                                 void* context) {
    inside_->query_extents(offset, bytes, known, context);
}

}  // namespace rnbd
